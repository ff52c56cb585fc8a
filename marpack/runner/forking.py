"""The parent's side of the fork server: workers that need not import torch again."""

import os
import secrets
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Self

from marpack.errors import WorkerError
from marpack.runner.process import WorkerProcess
from marpack.torchserve.messages import Exited, Fork, Forked, Pipe

_GRACE = 2.0  # seconds that the server is given to end by itself


class ForkServer:
    """One process that has torch imported, and the workers forked from it."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, max_memory: int | None) -> None:
        self._process = process
        self._sock = sock
        self._max_memory = max_memory
        self._pipe = Pipe(sock, Forked | Exited)
        self._ended: dict[int, int] = {}  # pid → code

    @classmethod
    def start(cls, *, environment: Mapping[str, str] | None = None, max_memory: int | None = None) -> Self:
        """Start the server, which imports torch while the caller goes on.

        Args:
            environment: Of the workers; None: this process's.
            max_memory: Bytes of data a worker may have; None: no bound.

        Raises WorkerError if it cannot be started.
        """
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "marpack.worker.fork_server", str(theirs.fileno())]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=None if environment is None else dict(environment),
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        except OSError as error:
            ours.close()
            raise WorkerError(f"the fork server could not be started: {error}", where=sys.executable) from error
        finally:
            theirs.close()
        return cls(process, ours, max_memory)

    def launch(self) -> WorkerProcess:
        """Return a worker's process, which waits for a model; raises WorkerError if the server is gone."""
        ours, theirs = socket.socketpair()
        logs, log_end = os.pipe()
        marker = f"\x1e{secrets.token_hex(8)}\x1e".encode()
        try:
            socket.send_fds(self._sock, [b"F"], [theirs.fileno(), log_end])
            self._pipe.send(Fork(marker, self._max_memory or 0))
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
                raise ConnectionResetError(f"exit code {self._process.wait()}")
            self._note(message)
        return message.pid

    def _note(self, message: Any) -> None:  # Any: what Pipe decodes
        if isinstance(message, Exited):
            self._ended[message.pid] = message.code

    def code_of(self, pid: int, timeout: float | None) -> int | None:
        """Return how a worker ended, waiting for it; None if it has not within `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while pid not in self._ended:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._sock], [], [], left)[0]:
                return None
            message = self._pipe.receive()
            if message is None:
                return 1  # the server is gone, and with it whoever could tell
            self._note(message)
        return self._ended[pid]

    def close(self) -> None:
        """End the server; its workers are ended by those who asked for them."""
        self._sock.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
