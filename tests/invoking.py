"""Run `marpack` in this process; one of its own takes 170 ms more."""

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

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    """Run one command in this process, with variables added to the environment, and assert its exit code (None: any).

    Workers are forked from a process that has imported torch, unless `forks` is false.
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
        names = {"stdout": streams[0], "stderr": streams[1], "stdin": stdin_stream, "argv": ["marpack", *args]}
        for name, value in names.items():
            patch.setattr(sys, name, value)
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
    stdout, stderr = (_read(file) for file in files)
    returncode = ended.value.code
    assert isinstance(returncode, int)
    assert code in {None, returncode}, stdout + stderr
    assert "Traceback" not in stderr
    assert "which is a bug" not in stderr
    return Invoked(returncode=returncode, stdout=stdout, stderr=stderr, error=errors[-1] if errors else None)


def _read(file: BinaryIO) -> str:
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
