"""The child of `--watch`: `python -m marpack.worker.fork_server FD` imports torch once, then forks a worker when asked.

A forked worker has torch imported and nothing of any model: it loads one as every other worker does.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import sys

from marpack.torchserve.messages import Exited, Fork, Forked, Pipe
from marpack.worker.__main__ import end, main

# What a model's first request would import; by name, since not every environment has them all.
_PRELOADED = (
    "torch",
    "numpy",
    "PIL.PngImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.BmpImagePlugin",
    "PIL.PpmImagePlugin",
    "marpack.worker.handlers.vision",
    "marpack.worker.loaders.registry",
)


class ForkServer:
    """Forks workers and says how each of them ended."""

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
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)  # stray children end with the group
            self._sock.close()
            os.dup2(prints, 1)
            os.dup2(prints, 2)
            os.close(prints)
            code = main(sock, asked.marker, asked.max_memory)
        finally:
            end(code)

    def _tell_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._pipe.send(Exited(ended[0], os.waitstatus_to_exitcode(ended[1])))


def preload() -> None:
    """Import what takes long, and is no model's own."""
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    preload()
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).run()
    end(0)
