"""One fault at a time: the check that names it fails, and no other does."""

from pathlib import Path

import pytest
from gate.archives import examine, failures
from gate.broken import FAULTS, Slow

pytestmark = pytest.mark.usefixtures("small_windows")

WAITS = {"a batch that hangs", "it keeps its requests, and has little time"}  # for seconds: not by day
CASES = [
    pytest.param(check, code, name, id=f"{check}: {name}", marks=[pytest.mark.nightly] if name in WAITS else [])
    for (check, code), faults in FAULTS.items()
    for name in faults
]


@pytest.mark.parametrize(("check", "code", "name"), CASES)
def test_only_the_check_that_names_the_fault_fails(check: str, code: str, name: str, tmp_path: Path):
    fault = FAULTS[check, code][name]
    slow = fault if isinstance(fault, Slow) else Slow(fault)
    report = examine(slow.make(tmp_path / "project"), timeout=slow.timeout, startup_timeout=slow.startup_timeout)
    found = failures(report)
    assert list(found) == [check]
    assert found[check][0] == code
