"""What the system lends a server: an event loop, addresses that are bound, descriptors for its connections."""

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from marpack.errors import UsageError
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
        raise UsageError(f"cannot listen on {address}: {error.strerror or error}", hint=hint) from error


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
