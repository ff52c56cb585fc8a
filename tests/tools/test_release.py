"""What a release has to show: each part on its own; all of it is for `make release-check`."""

import io
import os
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools import release
from tools.package_page import PackagePage, absolute
from tools.release import BAD, GOOD, NOT_SHOWN, Line, ReleaseError

ROOT = Path(__file__).parents[2]
AT = "https://example.com/me/marpack"
LINKS = [
    ("[a](docs/a.md)", f"[a]({AT}/blob/v1.2.3/docs/a.md)"),
    ("![a picture](docs/a.svg)", f"![a picture]({AT}/raw/v1.2.3/docs/a.svg)"),
    ("![a picture](a.png) [b](LICENSE)", f"![a picture]({AT}/raw/v1.2.3/a.png) [b]({AT}/blob/v1.2.3/LICENSE)"),
    ("[a](https://example.com/b.md)", "[a](https://example.com/b.md)"),
    ("[a](mailto:a@example.com)", "[a](mailto:a@example.com)"),
    ("[a](#below)", "[a](#below)"),
    ("values[0] (docs/a.md)", "values[0] (docs/a.md)"),
]
SOURCES = ["marpack/__init__.py", "marpack/cli/main.py", "templates/onnx/handler.py.j2"]
IN_WHEEL = ["marpack/__init__.py", "marpack/cli/main.py", "marpack/templates/onnx/handler.py.j2"]
IN_SDIST = [*SOURCES, "tools/package_page.py", "pyproject.toml", "PKG-INFO"]
INFO = ["marpack-1.2.3.dist-info/METADATA", "marpack-1.2.3.dist-info/RECORD"]
LACK = f"lacks: {SOURCES[1]}"
STRANGE = "holds what is none of ours: "
CONTENTS = {
    "all": ([], [], None),
    "a test": (["tests/test_a.py"], [], f"{STRANGE}tests/test_a.py"),
    "a cache": (["marpack/__pycache__/a.pyc"], [], f"{STRANGE}marpack/__pycache__/a.pyc"),
    "one is missing": ([], [SOURCES[1]], LACK),
    "many": ([f"docs/{n}.md" for n in range(7)], [], STRANGE),
}
PROJECT = {
    "requires-python": ">=3.11",
    "dependencies": ["click>=8.1.7", "torch>=2.6", "ray[data]>=2.60,<2.64; python_version < '3.14'"],
    "optional-dependencies": {"s3": ["s3fs>=2024.2", "click>=8.1.7"], "dev": ["ruff>=0.6"], "docs": ["mkdocs>=1"]},
}


@pytest.mark.parametrize(("text", "expected"), LINKS)
def test_a_pages_links_lead_into_the_repository(text: str, expected: str):
    assert absolute(text, AT, "1.2.3") == expected


@pytest.mark.parametrize("repository", ["", AT])
def test_the_page_and_the_addresses_follow_from_the_one_constant(tmp_path: Path, repository: str):
    (tmp_path / "README.md").write_text("[a](docs/a.md) → b")
    metadata = {"version": "1.2.3"}
    PackagePage(str(tmp_path), {"repository": repository}).update(metadata)
    text = metadata["readme"]["text"]  # type: ignore[index]
    assert text == (f"[a]({AT}/blob/v1.2.3/docs/a.md) → b" if repository else "[a](docs/a.md) → b")
    assert set(metadata["urls"]) == ({"Homepage", "Documentation", "Issues", "Releases"} if repository else set())
    assert all(str(each).startswith(AT) for each in metadata["urls"].values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("heading", ["## 1.2.3", "## [1.2.3]", "## 1.2.3 - 2026-11-23", "## 1.2.3 (2026-11-23)"])
def test_the_changelog_has_the_version(heading: str):
    assert release.released("1.2.3", f"# Changelog\n\n{heading}\n", "uses: a/marpack@v1.2.3").startswith("1.2.3, ")


@pytest.mark.parametrize(
    ("heading", "page"),
    [
        *((heading, "") for heading in ("## Unreleased", "## 1.2.30", "## 1.2.3.1", "## 1.2.3rc1", "### 1.2.3")),
        *(("## 1.2.3", page) for page in ("- uses: a/marpack@v1.2.2\n", "    rev: v1.2.2\n")),
    ],
)
def test_a_changelog_or_a_page_without_the_version(heading: str, page: str):
    with pytest.raises(ReleaseError):
        release.released("1.2.3", f"# Changelog\n\n{heading}\n", page)


@pytest.mark.parametrize(
    ("repository", "page", "fault"),
    [
        ("", "uses: OWNER/marpack@v1", "no address: README's links lead nowhere on a package page"),
        (AT, "uses: OWNER/marpack@v1", f"still says OWNER/marpack, where {AT} is meant"),
        (AT, "uses: me/marpack@v1", None),
    ],
)
def test_an_address_is_there_and_named_by_pages(repository: str, page: str, fault: str | None):
    line = release.attempt("address", release.addressed, repository, page)
    assert line.mark == (BAD if fault else GOOD)
    assert line.detail.endswith(fault or AT)


@pytest.mark.parametrize("case", CONTENTS)
def test_a_distribution_holds_what_is_ours(case: str, tmp_path: Path):
    more, less, fault = CONTENTS[case]
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel, tarfile.open(tmp_path / "a.tar.gz", "w:gz") as sdist:
        for name in {*IN_WHEEL, *INFO, *more}.difference(less):
            wheel.writestr(name, "")
        for name in {*IN_SDIST, *more}.difference(less):
            sdist.addfile(tarfile.TarInfo(f"marpack-1.2.3/{name}"), io.BytesIO())
    for file, sources in (("a.whl", SOURCES), ("a.tar.gz", [*SOURCES, "tools/package_page.py"])):
        line = release.attempt("contents", release.contents, tmp_path / file, sources)
        assert line.mark == (BAD if fault else GOOD)
        assert line.detail.startswith(fault or file)


def test_links_that_stayed_relative_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(release, "call", lambda *command: "")
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr(INFO[0], "Name: marpack\n\n[a](docs/a.md) and [b](https://example.com)\n")
    assert release.page_renders(tmp_path / "a.whl", tmp_path / "a.tar.gz", "") == "an index would take and render it"
    with pytest.raises(ReleaseError, match=r"links that lead nowhere: docs/a\.md$"):
        release.page_renders(tmp_path / "a.whl", tmp_path / "a.tar.gz", AT)


def test_the_floors_are_those_of_the_project_and_its_extras_torch_aside():
    assert release.floors(PROJECT) == ["click==8.1.7", 'ray==2.60; python_version < "3.14"', "s3fs==2024.2"]


def test_a_python_that_is_on_path_and_does_not_start_is_passed_over(tmp_path: Path):
    for folder, code in (("shims", 127), ("real", 0)):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "python3.12"
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
    path = os.pathsep.join(str(tmp_path / each) for each in ("none", "shims", "real"))
    assert release.find(12, path) == str(tmp_path / "real" / "python3.12")
    assert release.find(12, str(tmp_path / "shims")) is None
    assert release.find(13, path) is None


def test_a_python_that_is_not_here_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tries: list[tuple[str, list[str]]] = []

    def tried(python: str, file: str, pins: list[str], home: Path) -> str:
        tries.append((f"{python} {file}", pins))
        return "fine"

    monkeypatch.setattr(release, "tried", tried)
    monkeypatch.setattr(release, "find", lambda minor: None if minor in {11, 14} else f"python3.{minor}")
    lines = list(release.trials(Path("a.whl"), Path("a.tar.gz"), PROJECT, tmp_path))
    assert [(line.mark, line.what) for line in lines] == [
        (NOT_SHOWN, "Python 3.11"),
        *((GOOD, f"Python 3.12: {what}") for what in ("wheel, newest", "sdist, newest", "wheel, oldest")),
        *((GOOD, f"Python 3.13: {what}") for what in ("wheel, newest", "sdist, newest")),
        (NOT_SHOWN, "Python 3.14"),
        (NOT_SHOWN, "oldest torch"),
    ]
    assert lines[0].detail.startswith("Python 3.11 ")
    files = ["3.12 a.whl", "3.12 a.tar.gz", "3.12 a.whl[s3]", "3.13 a.whl", "3.13 a.tar.gz"]
    assert [what for what, _ in tries] == [f"python{each}" for each in files]
    assert all(pins[0].startswith("torch==") for _, pins in tries)
    assert [len(pins) for _, pins in tries] == [1, 1, 4, 1, 1]


def test_the_tutorial_notices_a_marpack_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "marpack").write_text("#!/bin/sh\n")
    (programs / "marpack").chmod(0o755)
    line = release.attempt("tutorial", release.play_tutorial, programs, tmp_path)
    assert line.mark == BAD
    assert re.match(r"docs/tutorial\.md:\d+: marpack build\n +does not say: ", line.detail)


def test_a_command_that_fails_says_what_it_said_and_sees_nothing_of_the_checkout(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    assert release.call("sh", "-c", 'echo "<$PYTHONPATH>"') == "<>\n"
    with pytest.raises(ReleaseError, match=r"ended with 3:\nno luck"):
        release.call("sh", "-c", "echo no luck >&2; exit 3")


@pytest.mark.parametrize(
    ("without_address", "repository", "code", "mark"),
    [(False, "", 1, "✗"), (True, "", 0, "not shown"), (True, AT, 0, "✓"), (False, AT, 0, "✓")],
)
def test_the_exit_code_is_one_where_a_line_is_bad(
    without_address: bool, repository: str, code: int, mark: str, monkeypatch: pytest.MonkeyPatch, capsys
):
    settings = {"tool": {"hatch": {"metadata": {"hooks": {"custom": {"repository": repository}}}}}, "project": {}}
    monkeypatch.setattr(tomllib, "loads", lambda text: settings)
    monkeypatch.setattr(release, "released", lambda *_: "1.2.3")
    monkeypatch.setattr(release, "NOBODYS", "what no page says")

    def call(*command: str | Path) -> str:
        if "build" in command:
            [(Path(command[-2]) / name).touch() for name in ("a.whl", "a.tar.gz")]
        return "a word"

    monkeypatch.setattr(release, "call", call)
    for name in ("contents", "page_renders"):
        monkeypatch.setattr(release, name, lambda *_: "fine")
    monkeypatch.setattr(release, "trials", lambda *_: [Line(NOT_SHOWN, "Python 3.14", "Python 3.14 is not here")])
    assert release.main(["--without-address"] if without_address else []) == code
    table = capsys.readouterr().out.splitlines()
    assert [line[:10].strip() for line in table] == ["✓", mark, "✓", "✓", "✓", "✓", "not shown"]
