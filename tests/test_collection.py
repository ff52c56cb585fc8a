"""Collecting the tests of what never imports torch or Ray imports neither."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
COLLECT = """
import json, sys
import pytest
assert pytest.main(["--collect-only", "-qq", *sys.argv[1:]]) == 0
print(json.dumps([name for name in ("torch", "ray") if name in sys.modules]))
"""
FOLDERS = ("cli", "trust", "exporting", "archive", "project", "runner", "serving", "conformance", "examples")


@pytest.mark.slow  # it takes as long as a hundred other tests
def test_collecting_imports_neither_torch_nor_ray() -> None:
    folders = [str(TESTS / name) for name in FOLDERS]
    line = [sys.executable, "-c", COLLECT, *folders]
    done = subprocess.run(line, cwd=TESTS.parent, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
