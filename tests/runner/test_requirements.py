"""Requirements against the packages that are installed here."""

from importlib import metadata

import pytest

from marpack.archive.reader import open_archive
from marpack.runner.environments import count_requirements, has_requirements, unmet

CLICK = metadata.version("click")


def told(make_mar, text: str, *, file: str = "requirements.txt", **more: str) -> list[tuple[str, str]]:
    files = {file: text, **{f"{name}.txt": content for name, content in more.items()}}
    with open_archive(make_mar("x = 1", files=files, requirementsFile=file)) as archive:
        return [(str(finding.where).rpartition("!")[2], finding.message) for finding in unmet(archive)]


@pytest.mark.parametrize(
    "line",
    [
        "CLICK", "click>=8", f"click=={CLICK}", "click[extra]", "click>=8 # ours", "# nobody", "", "  ",
        "-i https://example.org/simple", "--no-index", "./wheels/nobody.whl", "nobody; python_version < '3'",
        "click >=8 --hash=sha256:00", "click \\\n  >=8", "this is none", "click @ https://example.org/click.whl",
        "importlib-metadata; python_version < '3'",
    ],
)  # fmt: skip
def test_what_is_met_or_says_nothing(make_mar, line: str):
    assert told(make_mar, line) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nobody-at-all", "nobody-at-all is not installed here"),
        ("Nobody_At.All>=1", "nobody-at-all is not installed here"),
        ("nobody-at-all; python_version > '3'", "nobody-at-all is not installed here"),
        ("click<1", f"click {CLICK} is installed here, and the archive requires <1"),
        ("click==0.1 --hash=sha256:00", f"click {CLICK} is installed here, and the archive requires ==0.1"),
        ("nobody-at-all @ git+https://example.org/nobody", "nobody-at-all is not installed here"),
        ("git+https://example.org/nobody.git#egg=nobody-at-all", "nobody-at-all is not installed here"),
    ],
)
def test_what_is_not_met(make_mar, line: str, message: str):
    assert told(make_mar, f"# first\n{line}\n") == [("requirements.txt:2", message)]


def test_a_version_that_no_specifier_knows_meets_any(make_mar, tmp_path, monkeypatch: pytest.MonkeyPatch):
    for name, version in (("nobody-odd", "one-of-ours"), ("nobody-early", "2.0rc1")):
        info = tmp_path / "site" / f"{name.replace('-', '_')}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert told(make_mar, "nobody-odd>=1\nnobody-early>=1\n") == []
    (finding,) = told(make_mar, "nobody-odd\nnobody-early>=2\n")
    assert {"nobody-early", "2.0rc1", ">=2"} <= set(finding[1].split())


def test_a_file_of_a_megabyte_is_read_and_no_larger_one(make_mar):
    for size, found in ((1 << 20, 1), ((1 << 20) + 1, 0)):
        assert len(told(make_mar, "nobody-at-all\n".ljust(size, "#"))) == found


def test_included_files_count_once(make_mar):
    found = told(make_mar, "-r more.txt\nclick\n", more="-r requirements.txt\n-r gone.txt\nnobody-at-all\n")
    assert [(where, message.split()[0]) for where, message in found] == [("more.txt:3", "nobody-at-all")]
    beside = {"deps/more": "nobody-at-all\n", "more": "nobody-else\n"}  # the file that includes it
    found = told(make_mar, "-r ./more.txt\n", file="deps/all.txt", **beside)
    assert [message.split()[0] for _, message in found] == ["nobody-at-all"]


def test_they_are_counted(make_mar):
    files = {"requirements.txt": "click\nnumpy>=1\n-i https://example.org\n"}
    with open_archive(make_mar("x = 1", files=files, requirementsFile="requirements.txt")) as archive:
        assert (count_requirements(archive), has_requirements(archive)) == (2, True)
    for mar in (make_mar(""), make_mar("", name="gone", requirementsFile="gone.txt")):
        with open_archive(mar) as archive:
            assert (count_requirements(archive), has_requirements(archive)) == (0, False)


def test_a_run_notes_what_it_lacks_and_names_the_way_out(make_mar):
    files = {"r.txt": "nobody-at-all\nmsgspec<0.1\n"}  # which cannot be isolated: workers share the installed one
    with open_archive(make_mar("", files=files, requirementsFile="r.txt")) as archive:
        notes = list(unmet(archive, as_notes=True))
    assert [(note.severity, "--env isolated" in note.hint) for note in notes] == [("note", True), ("note", False)]
