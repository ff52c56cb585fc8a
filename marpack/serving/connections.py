"""Addresses that are bound, and what is held against clients that are too many or too slow."""

import asyncio
import errno
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from marpack.errors import UsageError, describe_os_error
from marpack.serving.settings import Address

_BACKLOG = 1024  # connections that wait to be accepted
_RESERVE = 256  # descriptors for all but connections: workers, archives, logs


def bound(address: Address) -> socket.socket:
    """Return a socket that listens on an address; raises UsageError for one that cannot be listened on."""
    try:
        if address.path is not None:
            _remove_left(address.path)
            return _listening(socket.AF_UNIX, address.path)
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)  # as clients mostly ask for it
        return _listening(family, place)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "end what listens there, or choose another address" if taken else None
        code = "address-in-use" if taken else "address-not-available"
        raise UsageError(f"cannot listen on {address}: {describe_os_error(error)}", hint=hint, code=code) from error


def _listening(family: int, place: Any) -> socket.socket:  # Any: each family has its own
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(_BACKLOG)  # here, as of two servers on one port the later one may learn of it only now
    except OSError:
        sock.close()
        raise
    return sock


def _remove_left(path: str) -> None:
    """Remove a Unix socket that nobody listens on any more: who left it was killed."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()


def room_for(connections: int) -> int:
    """Raise this process's soft limit of descriptors as far as so many connections need; return how many fit.

    The limit is raised no further than that: workers inherit it, and some programs walk through all that it allows.
    """
    try:
        import resource  # noqa: PLC0415 - not every system has it
    except ImportError:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _RESERVE
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    return max(1, possible - _RESERVE)


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:  # Any: as typing has it
    """Run a server's main coroutine to its end, in the fastest event loop there is."""
    try:
        import uvloop  # noqa: PLC0415 - not every system has it
    except ImportError:
        return asyncio.run(main())
    return uvloop.run(main())


_AT_ONCE = struct.pack("ii", 1, 0)  # for SO_LINGER: what is closed is reset
_LOOK = 0.02  # seconds between two looks whether something is so
_ROOM_AGAIN = 0.9  # of the bound: below it, a bound that is met again is told again


class ConnectionBound:
    """Counts connections, and says when there are too many."""

    def __init__(self, most: int, noted: Callable[[str], None]) -> None:
        """Take the bound, and who is told when it is met."""
        self.count = 0
        self._most = most
        self._noted = noted
        self._is_told = False

    def opened(self) -> bool:
        """Count one more; False if there was no room for it."""
        self.count += 1
        if self.count <= self._most:
            return True
        if not self._is_told:
            self._is_told = True
            self._noted(f"{self._most} connections are open: until some end, further ones are closed at once")
        return False

    def closed(self) -> None:
        """Count one less."""
        self.count -= 1
        if self.count < self._most * _ROOM_AGAIN:
            self._is_told = False


class WriteWatch:
    """Breaks a connection off whose client takes nothing of what is written to it."""

    __slots__ = ("_grace", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, grace: float) -> None:
        """Take the seconds that a client may take nothing."""
        self._loop = loop
        self._grace = grace
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """Watch: something is left that was not taken."""
        left = transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._grace, self._look, transport, left)

    def end(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, transport: asyncio.Transport, left: int) -> None:
        if transport.get_write_buffer_size() >= left:
            transport.abort()
        else:
            self.begin(transport)


async def wait_for(done: Callable[[], bool], end: float) -> None:
    """Wait until something is so, or it is that time by the monotonic clock."""
    while not done() and time.monotonic() < end:
        await asyncio.sleep(_LOOK)


def reset(transport: asyncio.BaseTransport) -> None:
    """End a connection so that no client takes it for the end of its answer."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()
