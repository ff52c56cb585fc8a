"""The one HTTP client: kept connections, bounded waiting, safe redirects, and one kind of error.

Proxies (HTTP_PROXY, HTTPS_PROXY, NO_PROXY) and certificates (SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE) come
from the environment, as other HTTP clients take them. Nothing is decompressed, so that digests apply to the bytes sent.
"""

import base64
import http.client
import io
import ipaddress
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from marpack.archive.addresses import is_exposed, is_http, public_address
from marpack.errors import MarpackError, describe_os_error, shortened
from marpack.version import __version__

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONNECT = 10  # seconds to reach a host
TIMEOUT = 30  # seconds without a byte
MAX_WAIT = 120  # seconds of waiting for a server in all, beside the time its bytes take…
_SLOWEST = 16 * 1024  # …at this many bytes a second, the slowest useful connection
MAX_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_BLOCK = 1 << 20  # bytes that are read at once
_DRAINED = 1 << 16  # bytes of a rest that is read to keep the connection
_CONNECTIONS, _HOSTS = 16, 32  # kept to each host, and hosts
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_HEADERS = {"User-Agent": f"marpack/{__version__}", "Accept-Encoding": "identity"}
_CERTIFICATES = "Set REQUESTS_CA_BUNDLE to a file with the certificate of the server's authority."
_FINAL = "Use the address that the file has without redirects."
_BROKEN = (HTTPError, OSError, http.client.HTTPException, ValueError)  # raised by urllib3 and the modules below it

IsAllowed = Callable[[str], bool]  # an IP address, or the address of a redirect → whether it is allowed


class HttpError(MarpackError):
    """A request failed. Its sender replaces it with an error of its own kind.

    The codes: unreachable, tls-failed, timed-out (idle), too-slow (budget spent),
    connection-failed, invalid-address, forbidden-address, https-downgrade, insecure-redirect, too-many-redirects.
    """

    code = "connection-failed"
    fix = "Check the address and the network, then try again."


class WaitBudget:
    """The time that requests may wait for their servers in all, however little arrives at a time."""

    def __init__(self, seconds: float = MAX_WAIT, *, idle: float | None = None, slowest: float = _SLOWEST) -> None:
        """Take the seconds in all, the seconds without a byte, and the bytes a second that cost nothing."""
        self.left = self._seconds = seconds
        self._idle = idle
        self._slowest = slowest

    @property
    def spent(self) -> float:
        """Seconds of waiting so far."""
        return self._seconds - self.left

    @property
    def timeout(self) -> float:
        """Seconds that the next byte may take."""
        return max(0.001, min(TIMEOUT if self._idle is None else self._idle, self.left))

    @contextmanager
    def waiting(self, received: Callable[[], int] = lambda: 0) -> Iterator[None]:
        """Count the time spent within, less what the received bytes may take; raise TimeoutError if none is left."""
        if self.left <= 0:
            raise TimeoutError
        started = time.monotonic()
        try:
            yield
        finally:
            self.left -= max(0.0, time.monotonic() - started - received() / self._slowest)


_BUDGET: ContextVar[WaitBudget] = ContextVar("budget")  # of the request that is being sent


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, budget: WaitBudget) -> None:
        self._raw = sock.makefile("rb", buffering=0)
        self._sock = sock
        self._budget = budget
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        self._count = 0
        with self._budget.waiting(lambda: self._count):
            self._sock.settimeout(self._budget.timeout)
            self._count = self._raw.readinto(buffer) or 0
        return self._count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:  # Any: http.client's
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedReader(sock, _BUDGET.get()))


class _Connection(HTTPConnection):
    """A connection that is made within the budget of its first request, to allowed addresses only."""

    response_class = _TimedResponse

    def __init__(self, *args: Any, is_allowed: IsAllowed | None = None, **options: Any) -> None:  # Any: urllib3's
        super().__init__(*args, **options)
        self._is_allowed = is_allowed

    def connect(self) -> None:
        budget = _BUDGET.get()
        with budget.waiting():
            self.timeout = min(CONNECT, budget.timeout)
            super().connect()

    def _new_conn(self) -> socket.socket:
        """Connect to the first address of the host that responds; each is checked before it is connected to."""
        if self._is_allowed is None:
            return super()._new_conn()
        problem = OSError("the host has no address")
        try:
            for family, kind, protocol, _, place in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
                if not self._is_allowed(str(place[0])):
                    what = "the address is in a private network, on this machine or reserved"
                    raise HttpError(what, hint="Use the address of a public server.", code="forbidden-address")
                sock = socket.socket(family, kind, protocol)
                try:
                    sock.settimeout(self.timeout)
                    sock.connect(place)
                except OSError as error:
                    sock.close()
                    problem = error
                else:
                    return sock
        except OSError as error:
            problem = error
        raise NewConnectionError(self, str(problem)) from problem


class _SecureConnection(_Connection, HTTPSConnection):
    """As `_Connection`, with TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class HttpResponse(AbstractContextManager["HttpResponse"]):
    """A response whose body is still to be read. Use it in a `with`."""

    def __init__(self, raw: urllib3.HTTPResponse, url: str, budget: WaitBudget) -> None:
        self._raw = raw
        self._budget = budget
        self.url = url
        self.status: int = raw.status
        self.reason: str = raw.reason or ""
        self.headers: Mapping[str, str] = raw.headers
        self.size: int | None = raw.length_remaining  # bytes of the body; None: unknown

    @property
    def version(self) -> str:
        """What the server distinguishes versions of a file by, or ""."""
        return self.headers.get("ETag") or self.headers.get("Last-Modified") or ""

    @property
    def content_range(self) -> tuple[int, int] | None:
        """The body's offset within the whole file, and the size of that; None: the server states neither."""
        found = _CONTENT_RANGE.fullmatch(self.headers.get("Content-Range", ""))
        return (int(found[1]), int(found[3])) if found else None

    @property
    def redirect(self) -> str | None:
        """The address that a redirect leads to; None: not a redirect."""
        location = self.headers.get("Location")
        if not location or self.status not in _REDIRECTS:
            return None
        try:
            return urljoin(self.url, location)
        except ValueError:
            what = f"the server redirects to an invalid address: {shortened(public_address(location))}"
            raise HttpError(what, hint=_FINAL, code="invalid-address") from None

    def read(self, count: int) -> bytes:
        """Return up to `count` of the next bytes, none at the end. Raises HttpError."""
        try:
            return self._raw.read1(min(count, _BLOCK), decode_content=False)
        except _BROKEN as error:
            raise _failure(error, self.url, self._budget) from None

    def read_up_to(self, count: int) -> bytes:
        """Return the next `count` bytes, or all if there are fewer. Raises HttpError for a body that ends early."""
        data = bytearray()
        while len(data) < count and (block := self.read(count - len(data))):
            data += block
        if self.size is not None and len(data) < min(count, self.size):
            raise HttpError(f"the connection broke off after {len(data):,} of {self.size:,} bytes")
        return bytes(data)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A connection is kept for the next request only when all of its response was read.
        left = self._raw.length_remaining
        with suppress(*_BROKEN):
            if kind is None and left is not None and left <= _DRAINED:
                self._raw.drain_conn()
        self._raw.close()


class HttpClient(AbstractContextManager["HttpClient"]):
    """Requests over kept connections; several threads may share a client. Close it, or use it in a `with`."""

    def __init__(
        self, *, proxies: bool = True, is_allowed: IsAllowed | None = None, may_redirect: IsAllowed | None = None
    ) -> None:
        self._proxies = proxies
        self._is_allowed = is_allowed
        self._may_redirect = may_redirect
        self._managers: dict[tuple[str, str | None], urllib3.PoolManager] = {}

    def close(self) -> None:
        """Close all connections."""
        for manager in self._managers.values():
            manager.clear()

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | Callable[[], Iterable[bytes]] | None = None,
        budget: WaitBudget,
    ) -> HttpResponse:
        """Send one request, and return its response whatever its status; redirects are not followed.

        The URL has no user and password. A body in pieces has its Content-Length in `headers`. Raises HttpError.
        """
        token, url = _BUDGET.set(budget), url.partition("#")[0]
        repeatable = method in ("GET", "HEAD")
        try:
            if not is_http(url):
                raise HttpError("not an http or https address", code="invalid-address")
            if not (netloc := urlsplit(url).netloc).isascii():
                url = url.replace(netloc, netloc.encode("idna").decode(), 1)
            while True:
                try:
                    raw = self._manager(url).urlopen(
                        method,
                        url,
                        headers={**_HEADERS, **(headers or {})},
                        body=body() if callable(body) else body,
                        redirect=False,
                        retries=False,
                        preload_content=False,
                        decode_content=False,
                        enforce_content_length=False,
                        timeout=urllib3.Timeout(connect=CONNECT, read=budget.timeout),
                    )
                    return HttpResponse(
                        cast("urllib3.HTTPResponse", raw), url, budget
                    )  # urllib3 returns only this kind
                except ProtocolError:  # the server may have closed a kept connection
                    if not repeatable:
                        raise
                    repeatable = False
        except _BROKEN as error:
            raise _failure(error, url, budget) from None
        finally:
            _BUDGET.reset(token)

    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: str | None = None,
        budget: WaitBudget,
    ) -> HttpResponse:
        """Get an address, and follow redirects. The authorization goes to the first host only. Raises HttpError."""
        own = {"Authorization": authorization} if authorization else {}
        for _ in range(MAX_REDIRECTS + 1):
            with ExitStack() as undo:
                response = undo.enter_context(
                    self.request("GET", url, headers={**(headers or {}), **own}, budget=budget)
                )
                if (target := response.redirect) is None:
                    undo.pop_all()
                    return response
                url, own = check_redirect(response, target), {}
                if self._may_redirect is not None and not self._may_redirect(url):
                    what = f"the server redirects to {public_address(url)}, which is not allowed"
                    raise HttpError(what, hint=_FINAL, code="forbidden-address")
        what = f"the server redirects ({response.status}) more than {MAX_REDIRECTS} times"
        raise HttpError(what, hint=_FINAL, code="too-many-redirects")

    def _manager(self, url: str) -> urllib3.PoolManager:
        """Return the connections for an address; certificates are read when the first one of https is used."""
        scheme, proxy = url.partition("://")[0].lower(), _proxy_for(url) if self._proxies else None
        manager = self._managers.get((scheme, proxy))
        if manager is None:
            settings: dict[str, Any] = {"maxsize": _CONNECTIONS, "num_pools": _HOSTS}  # Any: urllib3's
            if scheme == "https":
                bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
                settings["ssl_context"] = trusted_certificates(bundle)
            if proxy is None:
                manager = urllib3.PoolManager(**settings)
            elif not is_http(proxy):
                what = f"the proxy {public_address(proxy)} is not one of http or https"
                hint = "Set HTTP_PROXY and HTTPS_PROXY to an http or https address."
                raise HttpError(what, hint=hint, code="unreachable")
            else:
                proxy, credentials = split_credentials(proxy)
                headers = {"Proxy-Authorization": credentials} if credentials else None
                manager = ProxyManager(proxy, proxy_headers=headers, **settings)
            manager.pool_classes_by_scheme = {
                "http": partial(_Pool, is_allowed=self._is_allowed),  # type: ignore[dict-item]  # makes one
                "https": partial(_SecurePool, is_allowed=self._is_allowed),  # type: ignore[dict-item]  # as above
            }
            self._managers[scheme, proxy] = manager
        return manager


def check_redirect(response: HttpResponse, target: str) -> str:
    """Return the target of a redirect. Raise HttpError for another scheme, and for plain http after a safe address."""
    before, after = urlsplit(response.url), urlsplit(target)
    what = f"the server redirects ({response.status}) from {before.scheme}: to a {after.scheme}: address"
    if after.scheme == "http" and (before.scheme == "https" or (is_exposed(target) and not is_exposed(response.url))):
        raise HttpError(what, hint=_FINAL, code="https-downgrade")
    if after.scheme not in ("http", "https"):
        raise HttpError(what, hint=_FINAL, code="insecure-redirect")
    if "@" in after.netloc:
        what = "the server redirects to an address with a user or password"
        raise HttpError(what, hint=_FINAL, code="insecure-redirect")
    return target


@cache
def trusted_certificates(bundle: str | None) -> ssl.SSLContext:
    """Return the certificates of a file or folder, or the system's; reading them takes longer than many a request."""
    if bundle is None:
        return ssl.create_default_context()
    try:
        is_folder = Path(bundle).is_dir()
        return ssl.create_default_context(cafile=None if is_folder else bundle, capath=bundle if is_folder else None)
    except OSError as error:
        what = f"cannot read the certificates in {bundle}: {describe_os_error(error)}"
        raise HttpError(what, hint=_CERTIFICATES, code="tls-failed") from None


def _proxy_for(url: str) -> str | None:
    parts, proxies = urlsplit(url), getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    with suppress(ValueError):  # NO_PROXY may also name networks, as in 10.0.0.0/8
        address = ipaddress.ip_address(parts.hostname or "")
        for text in proxies.get("no", "").split(","):
            with suppress(ValueError):
                if "/" in text and address in ipaddress.ip_network(text.strip(), strict=False):
                    return None
    return found if "://" in found else f"http://{found}"


def split_credentials(address: str) -> tuple[str, str | None]:
    """Split user and password off an address; return them as an Authorization header. Raises HttpError."""
    try:
        parts = urlsplit(address)
    except ValueError:
        raise HttpError("not an address", code="invalid-address") from None
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return address, None
    token = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {token}"


def _failure(error: BaseException, url: str, budget: WaitBudget) -> HttpError:
    """Return the error for a failed request, without the secrets of its address."""
    host = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if budget.left <= 0:
        return HttpError(f"{host} is too slow: waited {budget.spent:.1f} s", code="too-slow")
    inner: BaseException = error
    while nested := inner.__cause__ or next((each for each in inner.args if isinstance(each, Exception)), None):
        inner = nested
    if isinstance(error, ValueError) or isinstance(inner, http.client.InvalidURL):
        return HttpError("not an address", code="invalid-address")
    reason = shortened(describe_os_error(inner), 160)
    match error:
        case SSLError():
            return HttpError(f"no secure connection to {host}: {reason}", hint=_CERTIFICATES, code="tls-failed")
        case NewConnectionError() | ProxyError():
            return HttpError(f"cannot reach {host}: {reason}", code="unreachable")
        case ConnectTimeoutError():
            return HttpError(f"cannot reach {host}: no response in {CONNECT} s", code="unreachable")
        case ReadTimeoutError():
            return HttpError(f"{host} sent nothing for a while", code="timed-out")
    return HttpError(f"the connection to {host} broke off: {reason}")
