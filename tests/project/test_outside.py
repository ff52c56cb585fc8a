"""Files outside the project folder are refused, however they are named, unless they are allowed."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import marpack
from marpack.cli.main import main
from marpack.errors import ProjectError
from marpack.project.load import load_project
from marpack.project.planning import plan_project

Make = Callable[..., Path]
HEAD = "name: tiny\nversion: '1.0'\nhandler: handler.py\n"
SOUND = "def handle(data, context):\n    return data\n"


@pytest.fixture
def project(make_project: Make, tmp_path: Path) -> Path:
    """Return a project with links to a secret, in a folder beside one that its name begins."""
    for place in ("secret.json", "store/secret.json", "project-2/secret.json", "Project/secret.json"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text('{"0": "secret"}')
    folder = make_project(HEAD, **{"handler.py": SOUND, "data/a.txt": "a", "pack/__init__.py": "", "inner.txt": ""})
    (folder / "data/link.json").symlink_to(tmp_path / "secret.json")
    (folder / "data/again.json").symlink_to("link.json")
    (folder / "elsewhere").symlink_to(tmp_path / "store")
    (folder / "root").symlink_to("/")
    (folder / "pack/mod.py").symlink_to(tmp_path / "secret.json")
    (folder / "requirements.txt").symlink_to(tmp_path / "secret.json")
    return folder


def codes(folder: Path, yaml: str, **options: object) -> list[tuple[str, str | None]]:
    """Return the errors that stop a build, as (code, place in marpack.yaml)."""
    (folder / "marpack.yaml").write_text(HEAD + yaml)
    try:
        plan_project(load_project(folder), check=False, **options)
    except ProjectError as error:
        return [(each.code, (each.where or "").rpartition(":")[2].strip()) for each in error.findings]
    return []


# What asks for a file outside, in marpack.yaml → the key that is named.
ATTACKS = {
    "an absolute path": ("files: [/etc/passwd]", "files[0]"),
    "a path that climbs": ("files: [../secret.json]", "files[0]"),
    "a path that climbs within": ("files: [data/../../secret.json]", "files[0]"),
    "under another name": ("files: [{from: ../secret.json, to: data/x}]", "files[0]"),
    "a folder": ("files: [../store]", "files[0]"),
    "the root": ("files: [/]", "files[0]"),
    "a folder whose name begins as the project's": ("files: [../project-2/secret.json]", "files[0]"),
    "the project's name in another case": ("files: [../Project/secret.json]", "files[0]"),
    "a link to a file": ("files: [data/link.json]", "files[0]"),
    "a link to a link": ("files: [data/again.json]", "files[0]"),
    "a file through a linked folder": ("files: [elsewhere/secret.json]", "files[0]"),
    "a linked folder": ("files: [elsewhere]", "files[0]"),
    "a link to the root": ("files: [root]", "files[0]"),
    "a folder with a link": ("files: [data]", "files[0]"),
    "the project, with a link to the root": ("files: [.]", "files[0]"),
    "a pattern that climbs": ("files: ['../*.json']", "files[0]"),
    "a pattern with '..' inside": ("files: ['data/../../*.json']", "files[0]"),
    "a pattern from the root": ("files: ['/etc/pass*']", "files[0]"),
    "a pattern that finds a link": ("files: ['data/*.json']", "files[0]"),
    "a pattern through a linked folder": ("files: ['else*/*.json']", "files[0]"),
    "the second entry": ("files: [inner.txt, ../secret.json]", "files[1]"),
    "labels": ("labels: ../secret.json", "labels"),
    "labels through a link": ("labels: data/link.json", "labels"),
    "a config": ("config: ../secret.json", "config"),
    "requirements": ("requirements: ../secret.json", "requirements"),
    "requirements that are vendored": ("requirements: requirements.txt\nvendor: {python: '3.9'}", "requirements"),
    "a model file": ("model_file: ../secret.json", "model_file"),
    "a sample": ("samples: [{input: ../secret.json}]", "samples[0].input"),
    "a file that does not exist": ("files: [../gone.json]", "files[0]"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_file_outside_is_refused(name: str, project: Path) -> None:
    yaml, key = ATTACKS[name]
    started = time.monotonic()
    found = codes(project, yaml)
    assert ("outside-project", key) in found
    assert [code for code, _ in found].count("outside-project") == 1
    assert time.monotonic() - started < 2  # nothing outside is listed


def test_a_module_that_is_a_link_is_refused(project: Path) -> None:
    (project / "handler.py").write_text("import pack.mod\n" + SOUND)
    assert codes(project, "") == [("outside-project", "handler")]


def test_a_lock_of_wheels_that_is_a_link_is_refused(project: Path, tmp_path: Path) -> None:
    (project / "vendor.lock").symlink_to(tmp_path / "secret.json")
    (project / "requirements.txt").unlink()
    (project / "requirements.txt").write_text("six\n")
    assert codes(project, "requirements: requirements.txt\nvendor: {python: '3.9'}") == [("outside-project", "vendor")]


ALLOWED = {
    "an absolute path into the project": "files: ['{project}/inner.txt']",
    "a path that leaves and comes back": "files: [../project/inner.txt, data/../inner.txt]",
    "weights": "weights: ../secret.json",
    "linked weights": "weights: data/link.json",
    "a hard link": "files: [hard.json]",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_inside_or_exempt_is_packed(name: str, project: Path, tmp_path: Path) -> None:
    yaml = ALLOWED[name].format(project=project)
    (tmp_path / "linked").symlink_to(project)
    os.link(tmp_path / "secret.json", project / "hard.json")
    assert codes(project, yaml) == codes(tmp_path / "linked", yaml) == []


def test_a_handler_outside_is_packed_with_its_modules(project: Path, tmp_path: Path) -> None:
    (tmp_path / "store/handler.py").write_text("import beside\n" + SOUND)
    (tmp_path / "store/beside.py").touch()
    (project / "marpack.yaml").write_text(HEAD.replace("handler.py", "../store/handler.py"))
    members = plan_project(load_project(project), check=False).plan.members
    assert [member.name for member in members] == ["beside.py", "handler.py"]


def test_outside_files_are_packed_where_they_are_allowed(project: Path) -> None:
    assert codes(project, "files: [../secret.json, elsewhere, data]", allow_outside=True) == []


COMMANDS = {
    "build": ["build", "."],
    "inspect": ["inspect", "."],
    "diff": ["diff", ".", "."],
    "unpack": ["unpack", ".", "-d", "laid"],
    "export": ["export", ".", "--to", "ray-serve", "--no-lock", "-o", "exported"],
    "check": ["check", ".", "--only", "manifest"],
    "check against": ["check", ".", "--against", ".", "--data", "1"],
    "run": ["run", ".", "--data", "1"],
    "run unpacked": ["run", ".", "--unpacked", "--data", "1"],
    "score": ["score", ".", "--input", "rows.jsonl", "--text", "a", "--output", "scored", "--format", "jsonl"],
    "serve": ["serve", ".", "--port", "0", "--metrics-port", "0"],
}


def ended(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_builds_refuses_and_names_the_option(
    name: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    (project / "rows.jsonl").write_text('{"a": "x"}\n')
    (project / "marpack.yaml").write_text(HEAD + "files: [../secret.json]\n")
    assert ended(COMMANDS[name]) == 2
    assert "--allow-outside" in capsys.readouterr().err
    is_static = name in {"build", "inspect", "diff", "unpack", "export"}
    assert ended([*COMMANDS[name], "--allow-outside", *([] if is_static else ["--help"])]) == 0
    assert (project / "tiny.mar").exists() == is_static


def test_the_functions_take_it(project: Path) -> None:
    (project / "marpack.yaml").write_text(HEAD + "files: [../secret.json]\n")
    for call in (marpack.build, marpack.inspect, marpack.load):
        with pytest.raises(ProjectError) as caught:
            call(project)
        assert [each.code for each in caught.value.findings] == ["outside-project"]
    marpack.build(project, allow_outside=True)
    names = {member.name for member in marpack.inspect(project, allow_outside=True).members}
    assert "secret.json" in names
    assert marpack.check(project, only=["manifest"], allow_outside=True).archive.endswith("tiny.mar")


def test_flags_name_files_anywhere(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(project)
    words = ["--model-name", "m", "--version", "1", "--handler", "handler.py", "--extra-files", "../secret.json"]
    assert ended(["build", *words, "--export-path", str(tmp_path)]) == 0


@pytest.mark.parametrize("form", ["tgz", "default", "no-archive"])
@pytest.mark.parametrize("entry", [".", "*"])
def test_a_project_that_packs_itself_builds_again(form: str, entry: str, make_project: Make) -> None:
    folder = make_project(f"{HEAD}files: ['{entry}']\n", **{"handler.py": SOUND, "a.txt": "a"})
    first = marpack.build(folder, archive_format=form)
    (folder / f"{Path(first.path).name}.sig").write_text("signature")
    (folder / ".tiny.tar.gz.0a1b.marpack-tmp").write_text("left by a build that was killed")
    again = marpack.build(folder, archive_format=form)
    assert again.content_digest == first.content_digest
    names = [member.name for member in marpack.inspect(again.path).members if "MAR-INF" not in member.name]
    assert names == ["a.txt", "handler.py"]
