"""action.yml and .pre-commit-hooks.yaml: what a runner or pre-commit would execute, executed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "run" in step}
EXPRESSION = re.compile(r"\$\{\{ (inputs\.[\w-]+|github\.action_path) \}\}")
NO_PYTHON = "def predict(:\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a project, and beside it the programs that are on PATH."""
    shutil.copytree(ROOT / "examples" / "function_handler", tmp_path / "work", ignore=shutil.ignore_patterns("*.mar"))
    (tmp_path / "bin").mkdir()
    for program, script in (
        ("marpack", f'exec {shlex.quote(sys.executable)} -m marpack "$@"'),
        ("python", f'for each; do printf "%s " "$each"; done >>{tmp_path}/calls; echo >>{tmp_path}/calls'),
    ):
        path = tmp_path / "bin" / program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return tmp_path / "work"


def execute(place: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{place.parent}/bin{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"} | more
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=120)


def step(place: Path, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as a runner does: what it is given is in its environment, the script stands as it is."""
    values = {f"inputs.{key}": str(each.get("default", "")) for key, each in ACTION["inputs"].items()}
    values |= {f"inputs.{key.replace('_', '-')}": value for key, value in inputs.items()}
    values["github.action_path"] = "/runner/action"
    environment = {
        key: EXPRESSION.sub(lambda found: values[found[1]], text) for key, text in STEPS[name]["env"].items()
    }
    assert not [text for text in environment.values() if "${{" in text]
    return execute(place, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"], **environment)


def test_no_input_becomes_code():
    assert [name for name, step in STEPS.items() if "${{" in step["run"]] == []


def test_every_input_is_used_and_none_other():
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("", "/runner/action"), ("0.2.0", "marpack==0.2.0"), ("1; rm -rf .", "marpack==1; rm -rf .")],
)
def test_the_action_installs_the_version_that_is_wanted(place: Path, version: str, wanted: str):
    done = step(place, "Install marpack", version=version, torch_index="https://example.com/cpu")
    assert done.returncode == 0, done.stderr
    assert (place.parent / "calls").read_text().splitlines() == [
        "-m pip install --quiet torch --index-url https://example.com/cpu ",
        f"-m pip install --quiet {wanted} ",
    ]


def test_the_action_checks_a_project_and_options_may_hold_blanks(place: Path):
    folder = place.parent / "my project"
    place.rename(folder)
    place.mkdir()
    options = "--only\nmanifest\n--input\n../my project/samples/setosa.csv\n--report\nmy report.html\n\n"
    done = step(place, "marpack check", source="../my project", options=options)
    assert done.returncode == 0, done.stderr
    assert "passed: manifest" in done.stdout
    assert (place / "my report.html").is_file()
    assert ET.parse(place / "marpack-junit.xml").getroot().tag == "testsuites"
    assert (place / "marpack.sarif").stat().st_size


@pytest.mark.parametrize(("options", "code"), [("", 2), ("--nonsense", 2)])
def test_the_action_fails_where_check_fails(place: Path, options: str, code: int):
    (place / "handler.py").write_text(NO_PYTHON)
    assert step(place, "marpack check", options=options).returncode == code


def hook(place: Path, name: str, *args: str, files: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a hook's entry as pre-commit does: split like a shell's line, then the arguments, then the files."""
    return execute(place, *shlex.split(HOOKS[name]["entry"]), *args, *files)


def test_the_hook_builds_a_good_project(place: Path):
    done = hook(place, "marpack-build", "../work")
    assert done.returncode == 0, done.stderr
    assert (place / "iris.mar").is_file()


def test_the_hook_finds_what_is_wrong_with_a_project(place: Path):
    (place / "handler.py").write_text(NO_PYTHON)
    done = hook(place, "marpack-build")
    assert done.returncode == 2
    assert "handler.py:1" in done.stderr


def test_the_hook_takes_warnings_for_errors(place: Path):
    project = place / "marpack.yaml"
    project.write_text(project.read_text().replace("handler.py:predict", "handler.py:predict\nconfig: {batchSise: 4}"))
    assert hook(place, "marpack-build").returncode == 2


@pytest.mark.slow
def test_the_hook_looks_into_every_archive(place: Path):
    (place / "table.bin").write_bytes(bytes(5_000_000) + b"last")  # too large to be read without being asked
    with (place / "marpack.yaml").open("a") as project:
        project.write("files: [table.bin]\n")
    assert execute(place, "marpack", "build", "--output", "good one.mar").returncode == 0
    whole = (place / "good one.mar").read_bytes()
    (place / "cut.mar").write_bytes(whole[:900])
    (place / "changed.mar").write_bytes(whole.replace(b"last", b"lost"))
    assert hook(place, "marpack-inspect", files=("good one.mar",)).returncode == 0
    for files in (("cut.mar", "good one.mar"), ("good one.mar", "changed.mar")):
        assert hook(place, "marpack-inspect", files=files).returncode == 1, files


@pytest.mark.slow  # pre-commit makes repositories and clones them
@pytest.mark.parametrize(("good", "code"), [(True, 0), (False, 1)])
def test_pre_commit_itself_runs_them(place: Path, good: bool, code: int):
    pytest.importorskip("pre_commit", reason="pre-commit is not installed")
    assert execute(place, "marpack", "build").returncode == 0
    if not good:
        (place / "handler.py").write_text(NO_PYTHON)
    hooks = place.parent / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    for folder in (hooks, place):
        commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]
        for words in (["init", "-q"], ["add", "-A"], commit):
            execute(folder, "git", *words).check_returncode()
    command: list[Any] = [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), "--all-files"]
    done = execute(place, *command, PRE_COMMIT_HOME=str(place.parent / "cache"))
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.count("Passed") == 2 if good else "handler.py:1" in done.stdout
