"""The report of `make soak ABUSE=1`, in seconds instead of minutes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.peer
def test_a_server_under_abuse_loses_only_the_requests_of_killed_workers():
    words = ["--part", "soak", "--abuse", "--minutes", "2", "--interval", "1.5", "--kill-every", "0.6", "--slow", "30"]
    command = [sys.executable, "-m", "benchmarks.serve", *words]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr  # it ends once every worker has come back
    rows = re.findall(r"^interval (\d+): ([\d.]+) MB, \d+ open files; so far (.*)$", done.stdout, re.MULTILINE)
    assert [number for number, _, _ in rows] == ["1", "2"]
    assert all(float(memory) > 10 for _, memory, _ in rows)
    counts = {what: int(count.replace(",", "")) for count, what in re.findall(r"(\d[\d,]*) ([a-z]+)", rows[-1][2])}
    assert counts["killed"] > 1
    assert counts["answered"] > 1
