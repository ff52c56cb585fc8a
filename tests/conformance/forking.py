"""A fork server: workers that need not import torch again, for tests that start hundreds of them.

Run as a script it is the server's own process, which imports torch once and forks a worker when asked: one that has
nothing of any model yet, and loads one as every other worker does. It has a socket with a name, so that commands, too,
can ask it: for each of them it forks a process that forks that one's workers and waits for their ends.
"""

import atexit
import contextlib
import importlib
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from marpack.errors import WorkerError
from marpack.protocol.messages import Pipe
from marpack.runner.client import Worker
from marpack.runner.process import WorkerProcess

_GLANCE = 0.05  # seconds between two looks at what another thread may have read


class Fork(Struct, frozen=True, tag=True):
    """To the server: fork a worker; its socket and the pipe of what it prints come along."""

    marker: bytes
    max_memory: int  # bytes; 0: no bound
    environment: dict[str, str]


class Forked(Struct, frozen=True, tag=True):
    """From the server: a worker was forked."""

    pid: int


class Exited(Struct, frozen=True, tag=True):
    """From the server: a worker ended."""

    pid: int
    code: int  # negative: the signal that ended it


class ForkServer:
    """A process that has torch imported, as one of those who ask it for workers sees it."""

    def __init__(self, address: str, process: subprocess.Popen[bytes] | None = None) -> None:
        """Ask the server at a socket's path; `process` is the server, if it is to end with this."""
        self.address = address
        self._process = process
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(address)
        self._pipe = Pipe(self._sock, Forked | Exited)
        self._ended: dict[int, int] = {}  # pid → code
        self._lock = threading.Lock()  # servers under test start and end workers in several threads

    @classmethod
    def start(cls, *, with_torch: bool = True, modules: Sequence[str] = ()) -> Self:
        """Start a server, which imports torch while the caller goes on; it ends with the caller.

        `with_torch`: Whether its workers have torch imported, which takes as long as a hundred starts without.
        `modules`: What they have imported besides.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TS_", "COVERAGE"))}
        address = str(Path(tempfile.mkdtemp(prefix="forks-"), "socket"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(listener.fileno()), *(["torch"] if with_torch else []), *modules],
                stdin=subprocess.PIPE,  # closed when we are gone, however that comes
                stdout=subprocess.DEVNULL,
                pass_fds=(listener.fileno(),),
                env=environment | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},  # as in the recordings
                cwd=Path(__file__).parent,  # the test that starts it may have one that is removed soon
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        return cls(address, process)

    def launch(self, *, environment: Mapping[str, str] | None = None, max_memory: int | None = None) -> WorkerProcess:
        """Return a worker's process, which waits for a model; raises WorkerError if the server is gone."""
        ours, theirs = socket.socketpair()
        logs, log_end = os.pipe()
        marker = f"\x1e{secrets.token_hex(8)}\x1e".encode()
        try:
            with self._lock:
                socket.send_fds(self._sock, [b"F"], [theirs.fileno(), log_end])
                self._pipe.send(Fork(marker, max_memory or 0, dict(os.environ if environment is None else environment)))
                pid = self._forked()
        except OSError as error:
            ours.close()
            os.close(logs)
            raise WorkerError(f"the fork server is gone: {error}") from error
        finally:
            theirs.close()
            os.close(log_end)
        return WorkerProcess(ForkedChild(self, pid), ours, logs, marker)

    def _forked(self) -> int:
        while not isinstance(message := self._pipe.receive(), Forked):
            if message is None:
                raise ConnectionResetError("it has closed its end")
            self._note(message)
        return message.pid

    def _note(self, message: Any) -> None:  # Any: what Pipe decodes
        if isinstance(message, Exited):
            self._ended[message.pid] = message.code

    def code_of(self, pid: int, timeout: float | None) -> int | None:
        """Return how a worker ended, waiting for it; None if it has not within `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                if not self._read_ends():
                    return self._ended.get(pid, 1)  # the server is gone, and with it whoever could tell
                if pid in self._ended:
                    return self._ended[pid]
            left = _GLANCE if until is None else min(_GLANCE, until - time.monotonic())
            if left <= 0.0:
                return None
            select.select([self._sock], [], [], left)  # another thread may read of this end

    def _read_ends(self) -> bool:
        """Note the ends that were told so far; False once the server is gone."""
        while True:
            while (message := self._pipe.arrived()) is not None:
                self._note(message)
            if not select.select([self._sock], [], [], 0.0)[0]:
                return True
            if not self._pipe.fill():
                return False

    def close(self) -> None:
        """Ask no more; a server of our own ends. The workers are ended by those who asked for them."""
        self._sock.close()
        if self._process is not None:
            with self._process:
                self._process.kill()
            shutil.rmtree(Path(self.address).parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def shared(*, with_torch: bool = True, modules: tuple[str, ...] = ()) -> ForkServer:
    """Return the server that all tests of this process share, started when it is first asked for."""
    server = ForkServer.start(with_torch=with_torch, modules=modules)
    atexit.register(server.close)
    return server


def forked_workers(server: Callable[[], ForkServer]) -> Callable[..., Worker]:
    """Return what replaces `Worker.spawn`: it forks a worker, unless the worker needs an interpreter of its own."""
    spawn = Worker.spawn

    def fork(
        *,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        max_memory: int | None = None,
        **options: Any,
    ) -> Worker:
        if python != sys.executable:
            return spawn(environment=environment, python=python, max_memory=max_memory, **options)
        # A fork has imported torch already (`preload`, `zygote`), and a process with threads cannot leave the network
        # (`offline`).
        return Worker(server().launch(environment=environment, max_memory=max_memory))

    return fork


class ForkedChild:
    """A worker that is the fork server's child, and not ours."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("marpack.worker", timeout or 0)
        return self.returncode


class _Forker:
    """A child of the server's, for one who asks: forks workers and says how each of them ended."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._pipe = Pipe(sock, Fork)
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve until the other end is closed."""
        poll = select.poll()
        for descriptor in (self._sock.fileno(), self._wake):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                self._tell_ends()
            if self._sock.fileno() in ready and not self._serve():
                return

    def _serve(self) -> bool:
        """Fork one worker; False once the other end is closed."""
        _, descriptors, _, _ = socket.recv_fds(self._sock, 1, 2)
        if len(descriptors) != 2:
            return False
        asked = self._pipe.receive()
        if not isinstance(asked, Fork):
            return False
        pid = os.fork()
        if pid == 0:
            self._become_worker(asked, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # done by the child already; who asked may want to end the group at once
            os.setpgid(pid, pid)
        self._pipe.send(Forked(pid))
        return True

    def _become_worker(self, asked: Fork, sock: int, prints: int) -> None:
        """Go on as `python -m marpack.worker` would, and never return."""
        from marpack.worker.__main__ import end, main

        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)  # stray children end with the group
            self._sock.close()
            os.dup2(prints, 1)
            os.dup2(prints, 2)
            os.close(prints)
            os.environ.clear()
            os.environ.update(asked.environment)
            code = main(sock, asked.marker, asked.max_memory)
        finally:
            end(code)

    def _tell_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._pipe.send(Exited(ended[0], os.waitstatus_to_exitcode(ended[1])))


def listen(listener: socket.socket) -> None:
    """Fork a process for each who asks, until stdin is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # they are not waited for
    while select.select([listener, 0], [], [])[0] == [listener]:
        sock, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _Forker(sock).run()
            os._exit(0)
        sock.close()


if __name__ == "__main__":
    from marpack.worker.__main__ import preload  # not needed by those who ask

    if sys.argv[2:]:
        preload()
    for module in sys.argv[3:]:
        importlib.import_module(module)
    listen(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
