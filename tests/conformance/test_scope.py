"""Comparisons are left out only as long as nothing has changed on which the recordings depend."""

import shutil
from pathlib import Path

import pytest
from conformance import scope
from conformance.probes.catalogue import PROBES


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the conformance suite all of whose comparisons have passed."""
    monkeypatch.delenv("MARPACK_COMPARE", raising=False)
    folder = tmp_path / "conformance"
    shutil.copytree(scope.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / scope.COMPARED).write_text(scope.digest(folder))
    return folder


def test_what_was_compared_needs_a_sample(compared: Path) -> None:
    assert not scope.needs_all(compared)


@pytest.mark.parametrize("name", ["recorded/cells.json", "probes/rows.py", "make_peer.py", "handlers/new.py"])
def test_a_changed_recording_probe_or_server_needs_all(compared: Path, name: str) -> None:
    (compared / name).touch()
    with (compared / name).open("a") as file:
        file.write("\n")
    assert scope.needs_all(compared)


def test_files_that_swap_their_names_need_all(compared: Path) -> None:
    one, two = compared / "recorded/cells.json", compared / "recorded/children.json"
    contents = one.read_bytes(), two.read_bytes()
    two.write_bytes(contents[0])
    one.write_bytes(contents[1])
    assert scope.needs_all(compared)


def test_a_missing_digest_and_a_demand_for_all_need_all(compared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARPACK_COMPARE", "all")
    assert scope.needs_all(compared)
    monkeypatch.delenv("MARPACK_COMPARE")
    (compared / scope.COMPARED).unlink()
    assert scope.needs_all(compared)


def test_a_test_may_change(compared: Path) -> None:
    (compared / "test_live.py").write_text("")
    assert not scope.needs_all(compared)


def test_the_sampled_files_exist() -> None:
    root = Path(__file__).parents[2]
    assert [path for path in scope.SAMPLED if not (root / path).exists()] == []


def test_the_sample_is_of_a_tenth() -> None:
    share = sum(scope.is_sampled(probe.name) for probe in PROBES) / len(PROBES)
    assert 0.05 < share < 0.2


def test_what_no_recording_decides_is_always_compared() -> None:
    undecided = {probe.name for probe in PROBES if not scope.is_decided_by_recording(probe)}
    assert {"digits"} < undecided
    assert len(undecided) < len(PROBES) / 3
