"""Tests are left out only as long as nothing has changed on which their result depends."""

from pathlib import Path

import independent
import pytest
from conformance.probes.catalogue import PROBES
from conformance.test_live import is_decided_by_recording

FILES = {
    "constraints.txt": "torch==2.13.0\n",
    "examples/digits/train.py": "",
    "tests/conformance/probes/rows.py": "",
    "tests/conformance/recorded/cells.json": "{}",
    "tests/conformance/recorded/rows.json": "[]",
    "tests/conformance/test_live.py": "",
}


@pytest.fixture
def verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout whose recordings are verified."""
    monkeypatch.delenv("MARPACK_COMPARE", raising=False)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / independent.VERIFIED).write_text(f"{independent.digest('recordings', tmp_path)} recordings\n")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    ["tests/conformance/recorded/cells.json", "tests/conformance/new.py", "examples/digits/new.py", "constraints.txt"],
)
def test_a_changed_or_new_file_needs_all(verified: Path, name: str) -> None:
    (verified / name).write_text("changed")
    assert not independent.is_verified("recordings", verified)


def test_a_part_without_a_digest_and_a_demand_for_all_need_all(verified: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not independent.is_verified("examples", verified)
    monkeypatch.setenv("MARPACK_COMPARE", "all")
    assert not independent.is_verified("recordings", verified)
    monkeypatch.delenv("MARPACK_COMPARE")
    (verified / independent.VERIFIED).unlink()
    assert not independent.is_verified("recordings", verified)


@pytest.mark.parametrize("name", ["tests/conformance/test_live.py", "examples/digits/digits.mar"])
def test_tests_and_built_archives_may_change(verified: Path, name: str) -> None:
    assert independent.is_verified("recordings", verified)
    (verified / name).write_text("changed")
    assert independent.is_verified("recordings", verified)


def test_every_part_has_files() -> None:
    empty = independent.digest("recordings", Path("/nonexistent"))
    assert [part for part in independent.PARTS if independent.digest(part) == empty] == []


def test_what_no_recording_decides_is_always_compared() -> None:
    undecided = {probe.name for probe in PROBES if not is_decided_by_recording(probe)}
    assert {"digits"} < undecided
    assert len(undecided) < len(PROBES) / 3
