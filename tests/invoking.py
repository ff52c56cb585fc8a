"""`marpack` in this process: what it prints, its exit code, and the error that ended it.

A process of its own costs 170 ms more. Only tests of signals, terminals, streams and start-up need one.
"""

import gc
import io
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from conformance.forking import forked_workers, shared
from msgspec import Struct

from marpack.cli import main as cli
from marpack.errors import MarpackError
from marpack.render.console import STDERR
from marpack.runner.client import Worker
from marpack.runner.process import Zygote

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


class Invoked(Struct, frozen=True, kw_only=True):
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str
    error: MarpackError | None  # that ended it

    @property
    def cause(self) -> str:
        """The code of the error that ended it; empty if none did."""
        return self.error.code if self.error else ""


def invoke(
    *args: str,
    cwd: Path | None = None,
    stdin: str | bytes = "",
    code: int | None = 0,
    env: Mapping[str, str] | None = None,
    forks: bool = True,
) -> Invoked:
    """Run one command in this process, and assert its exit code.

    Args:
        args: The words after `marpack`.
        cwd: The working directory; None: this process's.
        stdin: What the command can read.
        code: The exit code that the command must end with; None: any.
        env: Variables that are added to the environment.
        forks: Whether workers are forked from a process that has imported torch.
    """
    given, *files = (tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115 - closed below
    given.write(stdin.encode() if isinstance(stdin, str) else stdin)
    given.seek(0)
    stdin_stream = io.TextIOWrapper(given, encoding="utf-8")
    # The command may replace the descriptors that it writes to: what it wrote is read from others.
    streams = [open(os.dup(file.fileno()), "w", encoding="utf-8") for file in files]  # noqa: PTH123, SIM115
    errors: list[MarpackError] = []
    finish = cli._finish

    def noted(error: MarpackError, words: Any) -> int:
        errors.append(error)
        return finish(error, words)

    with _kept_process(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        patch.setattr(sys, "stdin", stdin_stream)
        patch.setattr(sys, "argv", ["marpack", *args])
        patch.setattr(cli, "_finish", noted)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        if forks:
            patch.setattr(Worker, "spawn", forked_workers(shared))
            patch.setattr(Zygote, "start", lambda _: None)  # one of these commands' own would come too late
        with pytest.raises(SystemExit) as ended:
            copy_context().run(cli.main, args)
    for stream in (*streams, stdin_stream):
        stream.close()
    stdout, stderr = map(_content, files)
    returncode = ended.value.code
    assert isinstance(returncode, int)
    assert code in {None, returncode}, stdout + stderr
    assert "Traceback" not in stderr
    assert "which is a bug" not in stderr
    return Invoked(returncode=returncode, stdout=stdout, stderr=stderr, error=errors[-1] if errors else None)


def _content(file: BinaryIO) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")


@contextmanager
def _kept_process() -> Iterator[None]:
    """Leave this process as it was: its signal handlers, environment, garbage collection and verbosity."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    wakeup, environment, collects = signal.set_wakeup_fd(-1), dict(os.environ), gc.isenabled()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        if os.environ != environment:
            os.environ.clear()
            os.environ.update(environment)
        STDERR.quiet = STDERR.verbose = False
        if collects:  # `inspect` ends before there is anything to collect
            gc.enable()
