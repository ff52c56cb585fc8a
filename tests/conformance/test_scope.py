"""Comparisons are left out only where every changed file is known not to affect them."""

import subprocess
from pathlib import Path

import pytest
from conformance import scope
from conformance.probes.catalogue import PROBES


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a clone's work tree on a branch of one commit that changes the docs."""
    monkeypatch.setattr(scope, "ROOT", tmp_path)
    for name in ("MARPACK_BASE", "MARPACK_COMPARE"):
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "--initial-branch=main")
    commit(tmp_path, "marpack/worker/loop.py")
    git(tmp_path, "switch", "--create", "change")
    commit(tmp_path, "docs/page.md")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    line = ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", *words]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(name)
    git(folder, "add", "--all")
    git(folder, "commit", "--message", name)


def test_a_change_of_the_docs_needs_a_sample(repository: Path) -> None:
    assert not scope.needs_all()


@pytest.mark.parametrize("name", ["marpack/worker/loop.py", "marpack/new.py", "constraints.txt", "tests/lazy.py"])
def test_any_other_file_needs_all(repository: Path, name: str) -> None:
    commit(repository, "marpack/render/page.py")
    assert not scope.needs_all()
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("changed")  # not committed, and in part not tracked
    assert scope.needs_all()


def test_a_file_that_moved_counts_at_both_places(repository: Path) -> None:
    (repository / "docs" / "loop.py").write_bytes((repository / "marpack/worker/loop.py").read_bytes())
    (repository / "marpack/worker/loop.py").unlink()
    assert scope.needs_all()


def test_an_unknown_base_needs_all(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARPACK_BASE", "0" * 40)
    assert scope.needs_all()
    monkeypatch.setenv("MARPACK_BASE", "main")
    assert not scope.needs_all()
    monkeypatch.delenv("MARPACK_BASE")
    git(repository, "switch", "main")
    assert scope.needs_all()
    git(repository, "switch", "--detach", "change")
    git(repository, "branch", "--delete", "--force", "main")
    assert scope.needs_all()


def test_a_demand_for_all_and_no_repository_need_all(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARPACK_COMPARE", "all")
    assert scope.needs_all()
    monkeypatch.delenv("MARPACK_COMPARE")
    (repository / ".git").rename(repository / "elsewhere")
    assert scope.needs_all()


def test_paths_that_are_named_exist() -> None:
    root = Path(__file__).parents[2]
    assert [path for path in (*scope.UNRELATED, *scope.SAMPLED) if not (root / path).exists()] == []


def test_the_sample_is_of_a_tenth() -> None:
    share = sum(scope.is_sampled(probe.name) for probe in PROBES) / len(PROBES)
    assert 0.05 < share < 0.2
