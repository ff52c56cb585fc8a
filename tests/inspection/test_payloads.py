"""The attacker's corpus: that every payload runs code, and that none of them is told safe."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from inspection.payloads import PAYLOADS

from marpack.inspection.pickles import PickleScan, PickleVerdict

TESTS = Path(__file__).parents[1]


@pytest.mark.nightly
def test_every_payload_runs_code() -> None:
    command = [sys.executable, "-m", "inspection.prover"]
    done = subprocess.run(command, input=json.dumps(list(PAYLOADS)), capture_output=True, text=True, cwd=TESTS)
    assert done.returncode == 0, done.stderr

    assert json.loads(done.stdout) == []  # the names of those that ran none


def test_no_payload_is_told_safe(
    scan: Callable[..., PickleScan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told_safe = []
    for name, payload in PAYLOADS.items():
        found = scan(payload.make(), payload.member)
        if found.verdict is PickleVerdict.SAFE and not found.unscanned:
            told_safe.append(name)

    assert list(tmp_path.iterdir()) == []  # looking ran none of them
    assert told_safe == []
