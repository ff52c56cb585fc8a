"""The one HTTP client: kept connections, bounded waiting, safe redirects, and one kind of error.

Proxies (HTTP_PROXY, HTTPS_PROXY, NO_PROXY) and certificates (SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE) come
from the environment, as other HTTP clients take them. Nothing is decompressed, so that digests apply to the bytes sent.
"""

import base64
import http.client
import ipaddress
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ProxyError, ReadTimeoutError, SSLError
from urllib3.util import parse_url

from marpack.archive.addresses import is_exposed, is_http, public_address
from marpack.errors import MarpackError, describe_os_error, shortened
from marpack.version import __version__

CONNECT = 10  # seconds to reach a host
TIMEOUT = 30  # seconds without a byte
MAX_WAIT = 120  # seconds for a response, beside the time its bytes take…
_SLOWEST = 16 * 1024  # …at this many bytes a second, the slowest useful connection
MAX_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_PORTS = {"http": 80, "https": 443}
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

    The codes: unreachable, tls-failed, timed-out (idle), too-slow (deadline), connection-failed,
    invalid-address, forbidden-address, https-downgrade, insecure-redirect, too-many-redirects.
    """

    code = "connection-failed"
    fix = "Check the address and the network, then try again."


class Deadline:
    """The end of a request, redirects included; it moves with the bytes of the body, but not by a byte now and then."""

    def __init__(self, seconds: float = MAX_WAIT, *, slowest: float = _SLOWEST) -> None:
        """Take the seconds from now, and the bytes a second that cost nothing."""
        self._end = time.monotonic() + seconds
        self._slowest = slowest

    @property
    def left(self) -> float:
        """Seconds from now."""
        return self._end - time.monotonic()

    def timeout(self, most: float) -> float:
        """Return the seconds to wait for the next bytes; raise TimeoutError if none are left."""
        left = self.left
        if left <= 0:
            raise TimeoutError
        return min(most, left)

    def extend(self, count: int) -> None:
        """Add the time that the received bytes may take."""
        self._end += count / self._slowest

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let sockets wait only until this deadline."""
        token = _DEADLINE.set(self)
        try:
            yield
        finally:
            _DEADLINE.reset(token)


_DEADLINE: ContextVar[Deadline] = ContextVar("deadline")  # of the request that is being sent or read


class _Socket(socket.socket):
    """A socket whose every read ends at the deadline: a timeout alone never ends a slow drip of headers."""

    def recv_into(self, *arguments: Any, **options: Any) -> int:  # Any: socket's
        self.settimeout(_DEADLINE.get().timeout(TIMEOUT))
        return super().recv_into(*arguments, **options)


class _SecureSocket(ssl.SSLSocket):
    """As `_Socket`, with TLS."""

    def read(self, *arguments: Any) -> Any:  # Any: ssl's
        self.settimeout(_DEADLINE.get().timeout(TIMEOUT))
        return super().read(*arguments)


class _Connection(HTTPConnection):
    """A connection to allowed addresses only."""

    def __init__(self, *args: Any, is_allowed: IsAllowed | None = None, **options: Any) -> None:  # Any: urllib3's
        super().__init__(*args, **options)
        self._is_allowed = is_allowed

    def _new_conn(self) -> socket.socket:
        """Connect to the first address of the host that responds; each is checked before it is connected to."""
        problem = OSError("the host has no address")
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            problem, found = error, []
        for family, kind, protocol, _, place in found:
            if self._is_allowed is not None and not self._is_allowed(str(place[0])):
                what = "the address is in a private network, on this machine or reserved"
                raise HttpError(what, hint="Use the address of a public server.", code="forbidden-address")
            try:
                with ExitStack() as undo:
                    sock = undo.enter_context(_Socket(family, kind, protocol))
                    sock.settimeout(_DEADLINE.get().timeout(CONNECT))  # of the TLS handshake also
                    sock.connect(place)
                    undo.pop_all()
            except OSError as error:
                problem = error
            else:
                return sock
        raise NewConnectionError(self, str(problem)) from problem


class _SecureConnection(_Connection, HTTPSConnection):
    """As `_Connection`, with TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class HttpResponse(AbstractContextManager["HttpResponse"]):
    """A response whose body is still to be read. Use it in a `with`."""

    def __init__(self, raw: urllib3.HTTPResponse, url: str, deadline: Deadline) -> None:
        self._raw = raw
        self._deadline = deadline
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

    def read(self, count: int) -> bytes:
        """Return up to `count` of the next bytes, none at the end. Raises HttpError."""
        try:
            with self._deadline.applied():
                data = self._raw.read1(min(count, _BLOCK), decode_content=False)
        except _BROKEN as error:
            raise _failure(error, self.url, self._deadline) from None
        self._deadline.extend(len(data))
        return data

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
        with suppress(*_BROKEN), self._deadline.applied():
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

    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: str | None = None,
        deadline: Deadline,
    ) -> HttpResponse:
        """Get an address without user and password, follow redirects, and return the response whatever its status.

        The authorization is for the scheme, host and port of the address: a redirect to another one, or back from
        there, is followed without it. Raises HttpError.
        """
        own = {"Authorization": authorization} if authorization else {}
        for _ in range(MAX_REDIRECTS + 1):
            with ExitStack() as undo:
                response = undo.enter_context(self._send(url, {**(headers or {}), **own}, deadline))
                location = response.headers.get("Location")
                if not location or response.status not in _REDIRECTS:
                    undo.pop_all()
                    return response
                url = check_redirect(response.url, location, response.status)
                if _origin(url) != _origin(response.url):
                    own = {}
                if self._may_redirect is not None and not self._may_redirect(url):
                    what = f"the server redirects to {public_address(url)}, which is not allowed"
                    raise HttpError(what, hint=_FINAL, code="forbidden-address")
        what = f"the server redirects ({response.status}) more than {MAX_REDIRECTS} times"
        raise HttpError(what, hint=_FINAL, code="too-many-redirects")

    def _send(self, url: str, headers: Mapping[str, str], deadline: Deadline) -> HttpResponse:
        url = url.partition("#")[0]
        try:
            if not is_http(url):
                raise HttpError("not an http or https address", code="invalid-address")
            if not (netloc := urlsplit(url).netloc).isascii():
                url = url.replace(netloc, netloc.encode("idna").decode(), 1)
            send = partial(
                self._manager(url).urlopen,
                "GET",
                url,
                headers={**_HEADERS, **headers},
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
                enforce_content_length=False,
                timeout=urllib3.Timeout(connect=CONNECT, read=TIMEOUT),
            )
            with deadline.applied():
                try:
                    raw = send()
                except ProtocolError:  # the server may have closed a kept connection
                    raw = send()
        except _BROKEN as error:
            raise _failure(error, url, deadline) from None
        return HttpResponse(cast("urllib3.HTTPResponse", raw), url, deadline)  # urllib3 returns only this kind

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


def check_redirect(url: str, location: str, status: int) -> str:
    """Return the target of a redirect. Raise HttpError for another scheme, and for plain http after a safe address."""
    try:
        target = urljoin(url, location)
        before, after = urlsplit(url), urlsplit(target)
    except ValueError:
        what = f"the server redirects to an invalid address: {shortened(public_address(location))}"
        raise HttpError(what, hint=_FINAL, code="invalid-address") from None
    what = f"the server redirects ({status}) from {before.scheme}: to a {after.scheme}: address"
    if after.scheme == "http" and (before.scheme == "https" or (is_exposed(target) and not is_exposed(url))):
        raise HttpError(what, hint=_FINAL, code="https-downgrade")
    if after.scheme not in _PORTS:
        raise HttpError(what, hint=_FINAL, code="insecure-redirect")
    if "@" in after.netloc:
        what = "the server redirects to an address with a user or password"
        raise HttpError(what, hint=_FINAL, code="insecure-redirect")
    return target


def _origin(url: str) -> tuple[str | None, str | None, int | None] | None:
    """Return the scheme, host and port of an address as urllib3 connects to them; None: it does not."""
    with suppress(HTTPError):
        parts = parse_url(url)
        return parts.scheme, parts.host, parts.port or _PORTS.get(parts.scheme or "")
    return None


@cache
def trusted_certificates(bundle: str | None) -> ssl.SSLContext:
    """Return the certificates of a file or folder, or the system's; reading them takes longer than many a request."""
    is_folder = bundle is not None and Path(bundle).is_dir()
    try:
        context = ssl.create_default_context(cafile=None if is_folder else bundle, capath=bundle if is_folder else None)
    except OSError as error:
        what = f"cannot read the certificates in {bundle}: {describe_os_error(error)}"
        raise HttpError(what, hint=_CERTIFICATES, code="tls-failed") from None
    context.sslsocket_class = _SecureSocket
    return context


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


def _failure(error: BaseException, url: str, deadline: Deadline) -> HttpError:
    """Return the error for a failed request, without the secrets of its address."""
    host = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if deadline.left <= 0:
        return HttpError(f"{host} is too slow: the response did not arrive in time", code="too-slow")
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
        case ReadTimeoutError():
            return HttpError(f"{host} sent nothing for a while", code="timed-out")
    return HttpError(f"the connection to {host} broke off: {reason}")
