"""One fault at a time: the check that names it fails, and no other does."""

from pathlib import Path

import pytest
from gate.archives import examine, failures
from gate.broken import FAULTS, Fault

pytestmark = pytest.mark.usefixtures("small_windows")

WAITS = {"a batch that hangs", "it keeps its requests, and has little time"}  # for seconds: not by day
CASES = [
    pytest.param(check, fault, id=f"{check}: {name}", marks=[pytest.mark.nightly] if name in WAITS else [])
    for check, faults in FAULTS.items()
    for name, fault in faults.items()
]


@pytest.mark.parametrize(("check", "fault"), CASES)
def test_only_the_check_that_names_the_fault_fails(check: str, fault: Fault, tmp_path: Path):
    found = failures(examine(fault.make(tmp_path / "project"), **fault.settings))
    assert list(found) == [check]
    assert found[check][0] == fault.code
