"""requirements.txt as pip reads it: files that it names, in every spelling, and the names that addresses give."""

from collections.abc import Callable
from pathlib import Path

import pytest

import marpack
from marpack.inspection.requirements import LineKind, beside, read_lines, read_requirements

MakeMar = Callable[..., Path]
USES = "import shapely\n\n\ndef handle(data, context):\n    return data\n"


def names(files: dict[str, str]) -> list[str | None]:
    def read(name: str) -> bytes | None:
        return files[name].encode() if name in files else None

    return [line.name for _, line in read_requirements("requirements.txt", read) if line.sort is LineKind.REQUIREMENT]


SPELLINGS = (
    *("-r more.txt", "-rmore.txt", "-r\tmore.txt", "--requirement more.txt", "--requirement=more.txt"),
    *("-r 'more.txt'", '-r "more.txt"', "-r ./more.txt", "-r sub/../more.txt # why"),
)


@pytest.mark.parametrize("line", SPELLINGS)
def test_a_file_of_requirements_is_read_however_it_is_spelt(line: str) -> None:
    assert names({"requirements.txt": f"numpy\n{line}\n", "more.txt": "shapely\n"}) == ["numpy", "shapely"]


@pytest.mark.parametrize("line", ["-c more.txt", "-cmore.txt", "--constraint more.txt", "--constraint=more.txt"])
def test_a_file_of_constraints_requires_nothing(line: str) -> None:
    files = {"requirements.txt": f"numpy\n{line}\n", "more.txt": "shapely==2.0\n"}
    assert names(files) == ["numpy"]
    read = read_requirements("requirements.txt", lambda name: files[name].encode())
    assert [(each.sort, each.text) for _, each in read][-1] == (LineKind.LIMIT, "shapely==2.0")


def test_files_that_include_each_other_are_read_once() -> None:
    files = {"requirements.txt": "-r a/b.txt\none\n", "a/b.txt": "-r ../requirements.txt\n-r c.txt\n", "a/c.txt": "two"}
    assert names(files) == ["one", "two"]


def test_what_is_required_and_a_constraint_is_required() -> None:
    assert names({"requirements.txt": "-c both.txt\n-r both.txt\n", "both.txt": "one\n"}) == ["one"]
    assert names({"requirements.txt": "-r a.txt\n-c b.txt\n", "a.txt": "-r b.txt\n", "b.txt": "one\n"}) == ["one"]


def test_an_endless_chain_of_files_ends() -> None:
    read: list[str] = []

    def endless(name: str) -> bytes:
        read.append(name)
        return f"-r {len(read)}.txt\n".encode()

    assert len(list(read_requirements("requirements.txt", endless))) <= 100


@pytest.mark.parametrize("line", ["-r", "--requirement=", "-r 'more.txt", "-c"])
def test_an_option_that_names_no_file_is_wrong(line: str) -> None:
    assert [each.sort for each in read_lines(line.encode())] == [LineKind.WRONG]


@pytest.mark.parametrize(
    "line", ["--require-hashes", "--requir x", "-i https://x", "--no-index", "--extra-index-url x"]
)
def test_other_options_name_no_file(line: str) -> None:
    assert [each.sort for each in read_lines(line.encode())] == [LineKind.OPTION]


def test_a_name_is_seen_from_the_file_that_it_stands_in() -> None:
    assert beside("a/b.txt", "../c.txt") == "c.txt"
    assert beside("a/b.txt", "./c.txt") == "a/c.txt"
    assert beside("b.txt", "../c.txt") == "../c.txt"
    assert beside("a/b.txt", "/etc/c.txt") == "/etc/c.txt"


ADDRESSES = {
    "https://host/some-name-1.0.tar.gz": "some-name",
    "https://host/Some_Name-1.0rc1.zip": "some-name",
    "https://host/name-1.0.tar.gz#sha256=00": "name",
    "https://host/name-1.0.tar.gz?token=x": "name",
    "https://host/name%2D1.0.tar.gz": "name",
    "https://host/some_name-1.0-py3-none-any.whl": "some-name",
    "https://host/archive/refs/tags/v1.0.tar.gz": None,
    "https://host/archive/main.zip": None,
    "https://host/repo-main.zip": None,
    "https://host/": None,
    "https://host/name-1.0.txt": None,
    "git+https://host/repo.git": None,
    "git+https://host/repo-1.0.tar.gz": None,
    "git+https://host/repo.git@v1#egg=Real_Name": "real-name",
    "git+https://host/repo.git#egg=name[extra]&subdirectory=x": "name",
    "git+https://host/repo.git#subdirectory=x&egg=name": "name",
    "-e git+https://host/repo.git#egg=name": "name",
    "-egit+https://host/repo.git": None,
    "name @ https://host/other-1.0.tar.gz": "name",
    "name[extra] @ git+https://host/other.git": "name",
}


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_gives_its_own_name_or_none(text: str) -> None:
    assert [line.name for line in read_lines(text.encode())] == [ADDRESSES[text]]


def codes(mar: Path) -> set[str]:
    return {finding.code for finding in marpack.inspect(mar).findings}


@pytest.mark.parametrize("line", ["-rmore.txt", "--requirement=more.txt"])
def test_what_a_nested_file_requires_is_no_missing_import(line: str, make_mar: MakeMar) -> None:
    files = {"requirements.txt": f"{line}\n", "more.txt": "shapely\n"}
    assert "import-unlisted" not in codes(make_mar(USES, files=files, requirementsFile="requirements.txt"))


@pytest.mark.parametrize("line", ["-rgone.txt", "--requirement=gone.txt", "-cgone.txt", "--constraint gone.txt"])
def test_a_nested_file_that_is_not_packed_is_a_finding(line: str, make_mar: MakeMar) -> None:
    mar = make_mar(USES, files={"requirements.txt": f"{line}\nshapely\n"}, requirementsFile="requirements.txt")
    assert "requirements-missing" in codes(mar)
