"""`marpack run` as a person runs it: a process of its own, and on a terminal where that matters."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from command import command
from invoking import Invoked, invoke

COMMAND = [sys.executable, "-m", "marpack"]  # with workers of its own


def marpack(*args: str, **how: Any) -> Invoked:
    """Run a command in this process, as `invoke` does."""
    return invoke(*args, **how)


def apart(
    *args: str, cwd: Path | None = None, code: int = 0, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command as a process of its own: its streams, its start-up and a model in it are no other's."""
    done = subprocess.run(
        command(*args), cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def results(*args: str, code: int = 0, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(marpack("run", *args, "--json", code=code, **options).stdout)["results"]
    return found


class Terminal:
    """A command on a terminal of its own, which is typed into and read from."""

    def __init__(self, *args: str, cwd: Path | None = None, forked: bool = True, colors: bool = False) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command(*args) if forked else [*COMMAND, *args],
            cwd=cwd,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"},
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""
        self._colors = colors  # are seen as well

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, pattern: str, *, seconds: float = 60) -> str:
        """Read until what is new on the screen matches, and return it up to there."""
        until = time.monotonic() + seconds
        while (found := re.search(pattern, self.seen)) is None:
            if not self._read(until - time.monotonic()):
                raise AssertionError(f"{pattern!r} is not in {self.seen!r}")
        text, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return text

    def end(self, *, seconds: float = 30) -> int:
        """Read to the end, and return the exit code."""
        while self._read(seconds):
            pass
        return self.process.wait(seconds)

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        text = piece.decode("utf-8", "replace")
        self.seen += text if self._colors else re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
        return bool(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
