"""The child's stdin: nobody ever types there, and the server's worker waits for it until it is ended."""

import io
import os
import sys

from marpack.torchserve.response import WorkerDeath


class StdinError(WorkerDeath):
    """The author's code reads stdin, as `input()` and `breakpoint()` do."""

    kind = "stdin"
    hint = "take it out; to debug, run with --pdb, or with --in-process"


class _Silence(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise StdinError("the handler reads stdin: the server's worker waits there until its time is up, and dies")

    def fileno(self) -> int:
        return 0


def fall_silent() -> None:
    """Let what reads stdin fail at once as it would fail in the end; what a child of the handler's reads stays open."""
    read, _ = os.pipe()  # the other end is this process's as long as it lives
    os.dup2(read, 0)
    os.close(read)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_Silence()), encoding="utf-8")
