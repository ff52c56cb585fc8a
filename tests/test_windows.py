"""Windows, as far as it can be had elsewhere: what looks or packs works, what runs handlers says why it does not."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from invoking import invoke

ROOT = Path(__file__).parents[1]
WINDOWS = str(Path(__file__).with_name("windows.py"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return shutil.copytree(ROOT / "examples" / "function_handler", tmp_path / "project")


def marpack(folder: Path, *args: str, code: int = 0) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MARPACK_CACHE_DIR": str(folder / "cache"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, WINDOWS, *args], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["run", "check"])
def test_what_runs_a_handler_says_where_it_can(tmp_path: Path, name: str) -> None:
    said = marpack(tmp_path, name, "a.mar", "--json", code=2)
    assert '"unsupported-platform"' in said
    assert "WSL" in said


def test_the_same_bytes_are_built_there(project: Path) -> None:
    marpack(project, "build", "-o", "there.mar")
    marpack(project, "build", "-o", "there.mar")  # which replaces it
    invoke("build", "-o", "here.mar", cwd=project)
    assert (project / "there.mar").read_bytes() == (project / "here.mar").read_bytes()
    assert not list(project.glob(".*marpack-tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["default", "tgz", "no-archive"])
def test_an_archive_is_built_looked_into_compared_and_unpacked_there(project: Path, form: str) -> None:
    output = {"default": "a.mar", "tgz": "a.tar.gz", "no-archive": "folder"}[form]
    for _ in range(2):
        marpack(project, "build", "--archive-format", form, "-o", output)
    assert json.loads(marpack(project, "inspect", output, "--verify", "--json"))["form"]
    assert "same" in marpack(project, "diff", output, output)
    marpack(project, "unpack", output, "-d", "out")
    invoke("unpack", output, "-d", "here", cwd=project)
    assert content(project / "out") == content(project / "here")
    assert not list(project.glob(".*marpack-tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["check", "--help"], ["--version"]])
def test_help_is_given_there(tmp_path: Path, args: list[str]) -> None:
    assert marpack(tmp_path, *args)


@pytest.mark.slow
def test_a_project_is_begun_there(tmp_path: Path) -> None:
    marpack(tmp_path, "init", "begun", "--template", "function")
    marpack(tmp_path / "begun", "build")
