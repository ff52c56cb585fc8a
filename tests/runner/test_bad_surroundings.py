"""`run` and `check` where the system refuses what marpack would use: responses and verdicts are the same."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_RESTRICTED = Path(__file__).parents[1] / "restricted.py"
_REFUSED = ("memfd", "namespaces", "fork")
# A pool that has lost two workers forks the next one, if it can.
_HANDLER = """
import os, torch

def handle(data, context):
    if data is None:
        return None
    if b"die" in data[0]["body"]:
        os._exit(3)
    return [torch.ones(2, 2).sum().item()] * len(data)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux refuses these")


@pytest.fixture
def mar(make_mar: Callable[..., Path]) -> Path:
    return make_mar(_HANDLER, files={"model.bin": b"x"})


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.bin").write_bytes(b"die" if number < 3 else b"live")
    return folder


def restricted(*what: str) -> list[str]:
    """Return the words that run a command where something is refused; skip if that cannot be arranged."""
    words = [sys.executable, str(_RESTRICTED), *what, "--"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"this system cannot refuse {', '.join(what)}")
    return words


def outcome(prefix: list[str], *words: object) -> tuple[int, Any]:
    """Return the exit code and the JSON of a command; it prints at most one line beside it."""
    command = [*prefix, sys.executable, "-m", "marpack", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.peer
def test_run_gives_the_same_responses(mar: Path, inputs: Path) -> None:
    code, report = outcome(restricted(*_REFUSED, "shm"), "run", mar, "--input", inputs)
    assert (code, report["summary"]["restarts"]) == (1, 3)
    assert [each["status"] for each in report["results"]] == [500] * 3 + [200] * 3
    assert [each["body"] for each in report["results"][3:]] == ["4.0"] * 3


@pytest.mark.slow
def test_check_gives_the_same_verdict(mar: Path, inputs: Path) -> None:
    sample = inputs / "5.bin"
    verdicts = [
        (code, report["verdict"], [(check["name"], check["verdict"]) for check in report["checks"]])
        for code, report in (
            outcome(prefix, "check", mar, "--input", sample) for prefix in ([], restricted(*_REFUSED, "shm"))
        )
    ]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][0] == 0
