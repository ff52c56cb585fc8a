"""Requests over http and https whose answers are waited for only so long, however little comes at a time."""

from __future__ import annotations

import http.client
import io
import ipaddress
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib import request
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import OpenerDirector, Request

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from _typeshed import WriteableBuffer

TIMEOUT = 30  # seconds without a byte
MAX_WAIT = 120  # seconds that one look waits for a server in all, beside what its bytes may take…
_SLOWEST = 16 * 1024  # …at so many bytes a second: the slowest line that anyone looks at archives over


def is_loopback(host: str | None) -> bool:
    """Say whether a host's name, without its port, is this machine's own."""
    if host is None or host == "localhost":
        return host is not None
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_exposed(address: str) -> bool:
    """Say whether others on the way could change what an address sends: plain http, from another machine."""
    parts = urlsplit(address)
    return parts.scheme == "http" and not is_loopback(parts.hostname)


class WaitBudget:
    """How long one look goes on waiting for its servers, however little they send at a time."""

    def __init__(self, seconds: float = MAX_WAIT) -> None:
        self.left = self._seconds = seconds

    @property
    def spent(self) -> float:
        """Seconds that were waited so far."""
        return self._seconds - self.left

    @contextmanager
    def waiting(self, received: Callable[[], int]) -> Iterator[None]:
        """Count the time spent within, less what the bytes received in it may take; TimeoutError if none is left."""
        if self.left <= 0:
            raise TimeoutError
        started = time.monotonic()
        try:
            yield
        finally:
            self.left -= max(0.0, time.monotonic() - started - received() / _SLOWEST)


class _TimedReader(io.RawIOBase):
    """The bytes of a connection, as long as the budget lasts."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, budget: WaitBudget) -> None:
        self._raw = raw
        self._sock = sock
        self._budget = budget
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        self._count = 0
        with self._budget.waiting(lambda: self._count):
            self._sock.settimeout(min(TIMEOUT, self._budget.left))
            self._count = self._raw.readinto(buffer) or 0
        return self._count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Timed(request.AbstractHTTPHandler):
    """Asks over connections that are waited for as long as the budget lasts."""

    def __init__(self, budget: WaitBudget) -> None:
        super().__init__()
        self._budget = budget

    # Any: urllib's
    def do_open(self, http_class: Any, req: Request, **http_conn_args: Any) -> http.client.HTTPResponse:
        def connection(host: str, **details: Any) -> http.client.HTTPConnection:  # Any: urllib's
            made: http.client.HTTPConnection = http_class(host, **details)
            made.response_class = self._response  # type: ignore[assignment]  # what makes one will do
            return made

        return super().do_open(connection, req, **http_conn_args)

    def _response(self, sock: socket.socket, **details: Any) -> http.client.HTTPResponse:  # Any: http.client's
        response = http.client.HTTPResponse(sock, **details)
        raw = response.fp.detach()
        response.fp = io.BufferedReader(_TimedReader(raw, sock, self._budget))
        return response


class _TimedHttp(_Timed, request.HTTPHandler):
    pass


class _TimedHttps(_Timed, request.HTTPSHandler):
    pass


class _Redirects(request.HTTPRedirectHandler):
    """Follows no redirect to another kind of address, nor one from where nobody else listens to where they may."""

    # Any: urllib's
    def http_error_302(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage) -> Any:
        """Ask where it leads to, if that is allowed."""
        target = urljoin(req.full_url, headers.get("Location", ""))
        scheme = urlsplit(target).scheme
        is_lower = scheme == "http" and (req.type == "https" or (is_exposed(target) and not is_exposed(req.full_url)))
        if scheme not in ("http", "https") or is_lower:
            what = f"{msg}, leading to a {scheme}: address, which is not followed from {req.type}:"
            raise HTTPError(req.full_url, code, what, headers, fp)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


_HANDLERS = (
    request.ProxyHandler,
    _Redirects,
    request.HTTPErrorProcessor,
    request.HTTPDefaultErrorHandler,
    request.UnknownHandler,
)


def opener(budget: WaitBudget) -> OpenerDirector:
    """Return an opener for http and https, through the proxies of the environment; no file:, no ftp:."""
    opener = OpenerDirector()
    for handler in (*(make() for make in _HANDLERS), _TimedHttp(budget), _TimedHttps(budget)):
        opener.add_handler(handler)
    return opener
