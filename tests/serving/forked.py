"""Servers forked from a process that has imported their modules, which takes 0.5 s of CPU.

As a script it is that process. A request comes with four descriptors: the server's stdin, stdout and stderr, and a
socket for its process id and its exit code.
"""

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

import msgspec
from conformance.forking import ForkServer, forked_workers, shared
from msgspec import Struct

from marpack.runner.client import Worker

_TESTS = Path(__file__).parents[1]
_MODULES = ("marpack.cli.main", "marpack.cli.serve", "marpack.cli.serve_settings", "serving.faulty")


class _Start(Struct, frozen=True):
    module: str  # that has a function `main`
    words: tuple[str, ...]  # of the command line
    folder: str
    environment: dict[str, str]
    forks: str = ""  # the address of a fork server, whose workers have no torch imported


class ForkedServer:
    """A server's process, with what a subprocess.Popen has of it."""

    def __init__(self, report: socket.socket, stdout: IO[str], stderr: IO[str]) -> None:
        self._report = report
        self.stdout, self.stderr = stdout, stderr
        self.pid = int(report.recv(32))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, as subprocess.Popen does; raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("marpack serve", timeout or 0.0)
            self.returncode = int(self._report.recv(32))
            self._report.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, None as long as the server runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    module: str,
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: IO[bytes] | None = None,
    forks: bool = False,
) -> ForkedServer:
    """Return a process that calls a module's `main` with the words of a command line.

    `log` gets its stdout and stderr, otherwise pipes do. With `forks`, its workers are also forked, without torch.
    """
    asked = _Start(
        module=module,
        words=tuple(words),
        folder=str(cwd or Path.cwd()),
        environment=dict(os.environ if environment is None else environment),
        forks=shared(with_torch=False).address if forks else "",
    )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    nothing = os.open(os.devnull, os.O_RDONLY)
    (out, out_end), (error, error_end) = os.pipe(), os.pipe()
    for end in (out_end, error_end) if log is not None else ():
        os.dup2(log.fileno(), end)
    ends = [nothing, out_end, error_end, theirs.fileno()]
    socket.send_fds(_origin(), [msgspec.json.encode(asked)], ends)
    theirs.close()
    for descriptor in ends[:3]:
        os.close(descriptor)
    server = ForkedServer(ours, open(out, encoding="utf-8"), open(error, encoding="utf-8"))  # noqa: PTH123, SIM115
    if log is not None:
        server.stdout.close()
        server.stderr.close()
    return server


@cache
def _origin() -> socket.socket:
    """Return the socket of the process that servers are forked from; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "serving.forked", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=os.environ | {"PYTHONPATH": os.pathsep.join((str(_TESTS.parent), str(_TESTS)))},
            start_new_session=True,  # without Ctrl-C
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def main(descriptor: int) -> None:
    """Fork servers until the other end is closed."""
    for name in _MODULES:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the processes that wait for a server need no wait
    asking = socket.socket(fileno=descriptor)
    asking.set_inheritable(False)
    while True:
        message, descriptors, _, _ = socket.recv_fds(asking, 1 << 20, 4)
        if not message:
            return
        if os.fork() == 0:
            asking.close()
            _watch(msgspec.json.decode(message, type=_Start), *descriptors)
        for each in descriptors:
            os.close(each)


def _watch(asked: _Start, stdin: int, stdout: int, stderr: int, report: int) -> NoReturn:
    """Fork a server and report its end, or, in the fork, be the server."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(report)
        os.setsid()
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        _serve(asked)
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    with socket.socket(fileno=report) as told:
        told.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        told.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _serve(asked: _Start) -> NoReturn:
    os.chdir(asked.folder)
    tempfile.tempdir = None  # of another environment

    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(asked.environment)
    sys.argv = ["marpack", *asked.words]
    if asked.forks:
        server = ForkServer(asked.forks)
        Worker.spawn = forked_workers(lambda: server)  # type: ignore[method-assign]
    main_of: Any = sys.modules[asked.module].main  # type: ignore[attr-defined]
    sys.exit(main_of(*(asked.words if asked.module == "serving.faulty" else ())))


if __name__ == "__main__":
    main(int(sys.argv[1]))
