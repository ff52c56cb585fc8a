"""The original archiver's flags: where it goes wrong, marpack says so. Side by side with it: test_peer.py."""

import os
from pathlib import Path

import pytest

from marpack.errors import OutputExistsError, ProjectError
from marpack.project.plan import Format, Plan
from marpack.project.planning import Flags, plan_flags

CUSTOM = {"model_name": "m", "version": "1.0", "handler": "handler.py", "serialized_file": "digits.pt"}


@pytest.fixture(autouse=True)
def _here(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workshop)


def plan(check: bool = False, **flags: str) -> Plan:
    return plan_flags(Flags(**(CUSTOM | flags)), check=check).plan


def errors(**flags: str) -> list[tuple[str | None, str, str]]:
    with pytest.raises(ProjectError) as caught:
        plan(**flags)
    return [(finding.where, finding.code, finding.message) for finding in caught.value.findings]


ERRORS = {
    "name": ({"model_name": "a/b"}, ("--model-name", "model-name", "'a/b' is not a model name")),
    "handler": ({"handler": "nowhere"}, ("--handler", "missing-file", "nowhere.py does not exist")),
    "handler with function": ({"handler": "nowhere:f"}, ("--handler", "missing-file", "nowhere.py does not exist")),
    "built-in": (
        {"handler": "image_clasifier"},
        ("--handler", "missing-file", "image_clasifier is neither a built-in handler nor a file"),
    ),
    "notebook": (
        {"handler": "h.ipynb:f"},
        ("--handler", "notebook", "h.ipynb:f is a notebook, and the server imports Python files"),
    ),
    "library": ({"handler": "lib", "runtime": "LSP"}, ("--handler", "missing-file", "lib.so does not exist")),
    "weights": ({"serialized_file": "a.pt"}, ("--serialized-file", "missing-file", "a.pt does not exist")),
    "weights, a folder": ({"serialized_file": "more"}, ("--serialized-file", "not-a-file", "more is a folder")),
    "model": ({"model_file": "a.py"}, ("--model-file", "missing-file", "a.py does not exist")),
    "requirements": ({"requirements_file": "a.txt"}, ("--requirements-file", "missing-file", "a.txt does not exist")),
    "config": ({"config_file": "a.yaml"}, ("--config-file", "missing-file", "a.yaml does not exist")),
    "extra": ({"extra_files": "a.txt"}, ("--extra-files", "missing-file", "a.txt does not exist")),
    "over the handler": (
        {"extra_files": "other/handler.py"},
        (
            "--extra-files",
            "name-collision",
            "two files would be handler.py in the archive: handler.py and other/handler.py",
        ),
    ),
    "over each other": (
        {"extra_files": "part1.csv,another"},
        (
            "--extra-files",
            "name-collision",
            "two files would be part1.csv in the archive: part1.csv and another/part1.csv",
        ),
    ),
    "two roles": (
        {"model_file": "other/handler.py"},
        (
            "--model-file",
            "name-collision",
            "two files would be handler.py in the archive: handler.py and other/handler.py",
        ),
    ),
    "a manifest": (
        {"extra_files": "model"},
        (
            "--extra-files",
            "reserved-name",
            "MAR-INF/MANIFEST.json is in MAR-INF/, which is reserved for marpack",
        ),
    ),
}


@pytest.mark.parametrize(("flags", "expected"), ERRORS.values(), ids=ERRORS)
def test_what_the_original_gets_wrong_is_an_error(flags: dict[str, str], expected: tuple[str, str, str]) -> None:
    for name in ("other/handler.py", "another/part1.csv", "model/MAR-INF/MANIFEST.json"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"something else than {Path(name).name}")
    assert errors(**flags) == [expected]


def test_all_that_is_wrong_is_told_in_one_go() -> None:
    found = errors(model_name="-", handler="a", serialized_file="b", extra_files="c, d ,*.csv,e/f", config_file="g")
    assert [(code, message.split()[0]) for _, code, message in found] == [
        ("model-name", "'-'"),
        *(("missing-file", name) for name in ("a.py", "b", "g", "c", "d", "e/f")),
    ]


def test_spaces_after_commas_are_no_part_of_a_name() -> None:
    assert {member.name for member in plan(extra_files="part1.csv, part2.csv , more/e.txt,").members} == {
        "digits.pt", "e.txt", "handler.py", "part1.csv", "part2.csv",
    }  # fmt: skip


def test_an_empty_version_is_none_at_all() -> None:
    assert [plan(version=version).manifest.model.version for version in ("2", "")] == ["2", None]


def test_a_glob_without_a_match_is_a_warning() -> None:
    planned = plan_flags(Flags(**CUSTOM, extra_files="*.nothing"), check=False)
    (finding,) = planned.findings
    assert (finding.severity, finding.code) == ("warning", "glob-without-match")
    assert "*.nothing" in finding.message


def test_trees_that_overlap_are_merged_where_the_original_breaks() -> None:
    Path("second/nested").mkdir(parents=True)
    Path("second/nested/g.txt").touch()
    names = {member.name for member in plan(extra_files="extras,second").members}
    assert {"nested/deep/c.txt", "nested/g.txt", ".hidden"} <= names


def test_symlinks_in_an_extra_folder_are_followed_and_told() -> None:
    Path("snapshot").mkdir()
    Path("snapshot/vocab.txt").symlink_to("../part1.csv")
    planned = plan_flags(Flags(**CUSTOM, extra_files="snapshot"), check=False)
    assert "vocab.txt" in {member.name for member in planned.plan.members}
    assert [finding.code for finding in planned.findings] == ["symlink-outside"]


@pytest.mark.parametrize(
    ("form", "name"),
    [(Format.DEFAULT, "m.mar"), (Format.ZIP_STORE, "m.mar"), (Format.TGZ, "m.tar.gz"), (Format.NO_ARCHIVE, "m")],
)
def test_an_existing_output_is_replaced_by_force_only(form: Format, name: str) -> None:
    output = Path("out") / name
    output.mkdir(parents=True) if form is Format.NO_ARCHIVE else output.parent.mkdir()
    output.touch()
    flags = Flags(**CUSTOM, export_path="out")
    with pytest.raises(OutputExistsError) as caught:
        plan_flags(flags, form=form, check=False)
    assert (caught.value.where, caught.value.hint) == (f"out/{name}", "--force replaces it")
    assert plan_flags(flags, form=form, check=False, replace=True).plan.output == output


def test_force_does_not_wipe_a_folder_of_someone_else() -> None:
    Path("m").mkdir()
    Path("m/thesis.txt").touch()
    with pytest.raises(ProjectError) as caught:
        plan_flags(Flags(**CUSTOM), form=Format.NO_ARCHIVE, replace=True, check=False)
    assert caught.value.findings[0].code == "output"
    assert "MAR-INF/MANIFEST.json" in caught.value.findings[0].message


def test_an_export_path_that_is_a_file() -> None:
    ((where, code, message),) = errors(export_path="part1.csv")
    assert (where, code, message.split()[0]) == ("part1.csv/m.mar", "output", "part1.csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")
def test_special_files_are_refused_and_not_opened() -> None:
    os.mkfifo("more/pipe")
    ((where, code, message),) = errors(extra_files="more")
    assert (where, code, message.split()[0]) == ("--extra-files", "not-a-file", "more/pipe")


def test_a_package_among_the_extra_files_is_told_to_lose_its_folder_and_what_is_advised_keeps_it() -> None:
    Path("handler.py").write_text("from pkg.mod import X\n\n\ndef handle(data, context):\n    return [X]\n")
    Path("parts/pkg").mkdir(parents=True)
    Path("parts/pkg/__init__.py").touch()
    Path("parts/pkg/mod.py").write_text("X = 1\n")
    [finding] = plan_flags(Flags(**(CUSTOM | {"extra_files": "parts/pkg"})), check=True).findings
    assert (finding.where, finding.code) == ("handler.py:1", "import-not-packed")
    assert "mkdir parts && cp -r pkg parts/, then --extra-files parts" in str(finding.hint)
    assert "pkg/mod.py" in {member.name for member in plan(check=True, extra_files="parts").members}


def test_a_notebook_is_told_how_it_becomes_a_handler() -> None:
    with pytest.raises(ProjectError) as caught:
        plan(handler="h.ipynb:f")
    assert str(caught.value.findings[0].hint).startswith("jupyter nbconvert --to script h.ipynb, ")
