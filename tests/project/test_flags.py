"""The original archiver's flags: where it goes wrong, marpack says so. Side by side with it: test_peer.py."""

import os
from pathlib import Path

import pytest

from marpack.errors import ProjectError
from marpack.project.plan import Plan
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


# Arguments → the flag, the code of the one error, and a word of its message.
ERRORS = {
    "name": ({"model_name": "a/b"}, ("--model-name", "model-name", "'a/b'")),
    "handler with function": ({"handler": "nowhere:f"}, ("--handler", "missing-file", "nowhere.py")),
    "built-in": ({"handler": "image_clasifier"}, ("--handler", "missing-file", "image_clasifier")),
    "notebook": ({"handler": "h.ipynb:f"}, ("--handler", "notebook", "h.ipynb:f")),
    "library": ({"handler": "lib", "runtime": "LSP"}, ("--handler", "missing-file", "lib.so")),
    "weights, a folder": ({"serialized_file": "more"}, ("--serialized-file", "not-a-file", "more")),
    "over each other": (
        {"extra_files": "part1.csv,another"},
        ("--extra-files", "name-collision", "part1.csv and another/part1.csv"),
    ),
    "two roles": (
        {"model_file": "other/handler.py"},
        ("--model-file", "name-collision", "handler.py and other/handler.py"),
    ),
    "a manifest": ({"extra_files": "model"}, ("--extra-files", "reserved-name", "MAR-INF/MANIFEST.json")),
    "an export path that is a file": ({"export_path": "part1.csv"}, ("part1.csv/m.mar", "output", "part1.csv")),
    "a FIFO, which is not opened": ({"extra_files": "pipes"}, ("--extra-files", "not-a-file", "pipes/pipe")),
}


@pytest.mark.parametrize(("flags", "expected"), ERRORS.values(), ids=ERRORS)
def test_what_the_original_gets_wrong_is_an_error(flags: dict[str, str], expected: tuple[str, str, str]) -> None:
    for name in ("other/handler.py", "another/part1.csv", "model/MAR-INF/MANIFEST.json"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"something else than {Path(name).name}")
    Path("pipes").mkdir()
    os.mkfifo("pipes/pipe")
    ((where, code, message),) = errors(**flags)
    assert (where, code) == expected[:2]
    assert expected[2] in message


def test_all_that_is_wrong_is_told_in_one_go() -> None:
    named = {"handler": "a", "serialized_file": "b", "model_file": "c", "requirements_file": "d", "config_file": "e"}
    places = [f"--{name.replace('_', '-')}" for name in named] + ["--extra-files"] * 3
    found = [(where, code, text.split()[0]) for where, code, text in errors(**named, extra_files="f, g ,*.csv,h/i")]
    missing = zip(places, ("a.py", "b", "c", "d", "e", "f", "g", "h/i"), strict=True)
    assert found == [(place, "missing-file", name) for place, name in missing]


def test_spaces_after_commas_are_no_part_of_a_name() -> None:
    names = [member.name for member in plan(extra_files="part1.csv, part2.csv , more/e.txt,").members]
    assert names == ["digits.pt", "e.txt", "handler.py", "part1.csv", "part2.csv"]


def test_an_empty_version_is_left_out() -> None:
    assert [plan(version=version).manifest.model.version for version in ("2", "")] == ["2", None]


def test_trees_that_overlap_are_merged_where_the_original_breaks() -> None:
    Path("second/nested").mkdir(parents=True)
    Path("second/nested/g.txt").touch()
    names = {member.name for member in plan(extra_files="extras,second").members}
    assert {"nested/deep/c.txt", "nested/g.txt", ".hidden"} <= names


def test_symlinks_and_patterns_without_a_match_are_warnings() -> None:
    Path("snapshot").mkdir()
    Path("snapshot/vocab.txt").symlink_to("../part1.csv")
    planned = plan_flags(Flags(**CUSTOM, extra_files="snapshot,*.nothing"), check=False)
    assert "vocab.txt" in {member.name for member in planned.plan.members}
    assert [finding.code for finding in planned.findings] == ["symlink-outside", "glob-without-match"]


def test_a_package_among_the_extra_files_is_told_to_lose_its_folder_and_what_is_advised_keeps_it() -> None:
    Path("handler.py").write_text("from pkg.mod import X\n\n\ndef handle(data, context):\n    return [X]\n")
    Path("parts/pkg").mkdir(parents=True)
    Path("parts/pkg/__init__.py").touch()
    Path("parts/pkg/mod.py").write_text("X = 1\n")
    [finding] = plan_flags(Flags(**(CUSTOM | {"extra_files": "parts/pkg"})), check=True).findings
    assert (finding.where, finding.code) == ("handler.py:1", "import-not-packed")
    assert "mkdir parts && cp -r pkg parts/, then --extra-files parts" in str(finding.hint)
    assert "pkg/mod.py" in {member.name for member in plan(check=True, extra_files="parts").members}
