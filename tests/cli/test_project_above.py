"""A project is found from its subfolders, within the repository or the home folder, and never another user's."""

import os
from pathlib import Path

import pytest
from invoking import Invoked, invoke

from marpack.project.source import find_project


def project(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "marpack.yaml").write_text('name: x\nversion: "1.0"\nhandler: handler.py\n')
    (folder / "handler.py").write_text("def handle(data, context):\n    return data\n")
    return folder


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    """Return a subfolder of a project in a repository."""
    folder = project(tmp_path / "repository/project") / "a/b"
    folder.mkdir(parents=True)
    (tmp_path / "repository/.git").mkdir()
    return folder


def run(words: str, cwd: Path, code: int = 0) -> Invoked:
    return invoke(*words.split(), cwd=cwd, code=code)


def test_commands_use_the_project_above_and_say_so(inner: Path):
    told = "using the project in ../..\n"
    assert told in run("build", inner).stderr
    assert (inner.parents[1] / "x.mar").is_file()
    for words in ("inspect", "run --data x", "export --to docker --no-lock --dry-run"):
        assert told in run(words, inner).stderr
    assert run("inspect -q", inner).stderr == ""
    assert told not in run("inspect", inner.parents[1]).stderr
    assert told not in run("inspect ../../x.mar", inner).stderr


def test_options_of_the_archiver_need_no_project(inner: Path):
    assert "using" not in run("build --model-name m --version 1 --handler ../../handler.py", inner).stderr
    assert (inner / "m.mar").is_file()


def test_the_nearest_project_is_found_within_bounds(inner: Path, tmp_path: Path):
    repository, home = inner.parents[2], tmp_path / "elsewhere"
    assert find_project(inner, home) == inner.parents[1]
    assert find_project(inner.parents[1], home) is None  # it is the project itself
    assert find_project(inner, inner.parents[1]) == inner.parents[1]  # the home folder is in bounds
    assert find_project(inner, inner.parent) is None
    (inner / ".git").touch()  # of a worktree or a submodule
    assert find_project(inner, home) is None
    project(tmp_path)
    assert find_project(repository, home) is None
    assert run("build", repository, 2).cause == "no-project"


def test_nothing_is_found_outside_of_repositories_and_the_home_folder(inner: Path, tmp_path: Path):
    (inner.parents[2] / ".git").rmdir()
    assert find_project(inner, tmp_path / "elsewhere") is None
    assert find_project(inner, tmp_path) == inner.parents[1]


def test_a_link_to_a_folder_is_followed(inner: Path, tmp_path: Path):
    project(tmp_path / "other")
    (tmp_path / "other/.git").mkdir()
    (tmp_path / "other/link").symlink_to(inner)
    assert find_project(tmp_path / "other/link", tmp_path / "elsewhere") == inner.parents[1]


def test_a_project_of_another_user_is_not_used(inner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: (inner / "..").stat().st_uid + 1)
    assert find_project(inner, tmp_path / "elsewhere") is None
    monkeypatch.undo()
    file = inner.parents[1] / "marpack.yaml"
    file.rename(tmp_path / "marpack.yaml")
    file.symlink_to(tmp_path / "marpack.yaml")
    assert find_project(inner, tmp_path / "elsewhere") is None
