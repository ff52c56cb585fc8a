"""`marpack run --watch` from outside: change the project, wait for the answer."""

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

_PAUSE = 2.0  # seconds between two saves: meanwhile the next worker imports torch


def change_to_answer(project: Path, folder: Path, rounds: int = 6) -> list[float]:
    """Return the seconds from each change of a copy of the digits project to the new answer on the screen."""
    copy = folder / "watched"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "marpack", "run", "--watch", "--input", "samples/seven.png"]
    process = subprocess.Popen(command, cwd=copy, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    handler = (copy / "handler.py").read_text()
    try:
        _wait_for(ours, "Ctrl-C ends")
        times = []
        for number in range(rounds):
            top = 1 + number % 3
            changed = re.sub(r"^TOP = .*$", f"TOP = {top}", handler, flags=re.MULTILINE)
            started = time.perf_counter()
            (copy / "handler.py").write_text(f"{changed}\n# {number}\n")
            _wait_for(ours, r"seven\.png +200 ")
            times.append(time.perf_counter() - started)
            _wait_for(ours, "Ctrl-C ends")
            time.sleep(_PAUSE)
        return times[1:]
    finally:
        process.terminate()
        process.wait()
        os.close(ours)


def _wait_for(terminal: int, pattern: str) -> None:
    seen = ""
    while not re.search(pattern, seen):
        seen += re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", os.read(terminal, 65536).decode("utf-8", "replace"))
