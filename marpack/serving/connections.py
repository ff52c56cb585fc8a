"""What is held against clients' connections: how many there may be, and how long one may take nothing of its answer."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable

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
