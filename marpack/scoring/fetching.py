"""Files that rows name by address: http and https, bounded in size and time, and never of a private network unasked.

The address that a connection goes to is what is judged, not the name it was found by: a name that means another
address the second time helps nobody. Proxies of the environment are not used: they would do the connecting.
"""

import http.client
import io
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from msgspec import Struct

from marpack.archive.addresses import public_address
from marpack.errors import UsageError, first_line
from marpack.torchserve.http import TooLargeError
from marpack.version import __version__

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_MAX_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_PIECE = 1 << 16  # bytes read at once
_SAFE = "%/:=&?~+!$,;'@()*[]"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # an IPv4 address at the end
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # of one's own network (RFC 8215)
_HEADERS = {"User-Agent": f"marpack/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
_PRIVATE = "pass --allow-private if addresses of your own network are meant"


class _Deadline(Struct, frozen=True):
    """When it has taken too long."""

    at: float  # by the monotonic clock

    def left(self) -> float:
        """Return the seconds that are left; raises TimeoutError if none are."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def fetch_url(url: str, *, allow_private: bool = False, max_bytes: int, seconds: float) -> bytes:
    """Return the bytes at an address.

    Args:
        url: http or https; it may redirect five times, never from https to http.
        allow_private: Connect to addresses that are not of the public internet, too.
        max_bytes: That the answer may have.
        seconds: That all of it may take, looking names up aside, whose time the system bounds.

    Raises UsageError for what cannot be had, TooLargeError for more than `max_bytes`.
    """
    deadline, address = _Deadline(time.monotonic() + seconds), url
    for _ in range(_MAX_REDIRECTS + 1):
        with _errors(url, seconds), _answered(address, deadline, allow_private=allow_private) as answer:
            if answer.status not in _REDIRECTS:
                return _body(answer, max_bytes)
            address = _redirected(address, answer.getheader("Location"))
    raise UsageError(f"the address redirects more than {_MAX_REDIRECTS} times", where=public_address(url))


@contextmanager
def _errors(url: str, seconds: float) -> Iterator[None]:
    """Turn whatever goes wrong into an error of ours, without what is secret in the address."""
    where = public_address(url)
    try:
        yield
    except UsageError as error:
        error.where = where
        raise
    except TimeoutError:
        raise UsageError(f"the server took longer than {seconds:g} s", where=where) from None
    except (http.client.InvalidURL, UnicodeError):  # whose texts show all of it
        raise UsageError("this is no address", where=where) from None
    except (OSError, http.client.HTTPException) as error:
        raise UsageError(f"the address cannot be fetched: {first_line(error)}", where=where) from None


@contextmanager
def _answered(address: str, deadline: _Deadline, *, allow_private: bool) -> Iterator[http.client.HTTPResponse]:
    """Ask an address, over a connection of its own."""
    try:
        parts = urlsplit(address)
        host, port, is_tls = parts.hostname, parts.port, parts.scheme == "https"
    except ValueError:
        raise UsageError("this is no address") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError("only http:// and https:// addresses are fetched")
    if "@" in parts.netloc:
        raise UsageError("an address with a user or password in it is not fetched: rows are no place for them")
    if not host.isascii():
        host = host.encode("idna").decode()
    connection = (http.client.HTTPSConnection if is_tls else http.client.HTTPConnection)(host, port)
    sock = _connected(host, connection.port, deadline, allow_private=allow_private)
    try:
        if is_tls:
            sock.settimeout(deadline.left())
            sock = _trusted().wrap_socket(sock, server_hostname=host)
        connection.sock = sock
        connection.response_class = partial(_bounded_response, deadline)  # type: ignore[assignment]  # as it is called
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection.request("GET", quote(target, safe=_SAFE), headers=_HEADERS)
        with connection.getresponse() as answer:
            yield answer
    finally:
        sock.close()


@cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()  # reading the system's certificates takes longer than many an answer


def _connected(host: str, port: int, deadline: _Deadline, *, allow_private: bool) -> socket.socket:
    """Return a connection to the first of a host's addresses that answers; raises UsageError for a private one."""
    failed: OSError = OSError("the host has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if not allow_private and not is_public(str(place[0])):
            raise UsageError("the address lies in a private network, on this machine or nowhere", hint=_PRIVATE)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left())
            sock.connect(place)
        except OSError as error:
            sock.close()
            failed = error
            continue
        return sock
    raise failed


def is_public(address: str) -> bool:
    """Say whether an IP address is one of the public internet, and so is the IPv4 address that it may stand for."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if not ip.is_global or ip.is_multicast or ip in _LOCAL_NAT64:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return True
    inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _NAT64:
        inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF))
    return all(is_public(str(each)) for each in inner if each is not None)


class _BoundedReader(io.RawIOBase):
    """The bytes of a connection, until it has taken too long."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: _Deadline) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        self._sock.settimeout(self._deadline.left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


# Any: http.client's
def _bounded_response(deadline: _Deadline, sock: socket.socket, **details: Any) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(sock, **details)
    response.fp = io.BufferedReader(_BoundedReader(response.fp.detach(), sock, deadline))
    return response


def _body(answer: http.client.HTTPResponse, max_bytes: int) -> bytes:
    if not 200 <= answer.status < 300:
        raise UsageError(f"the server answers {answer.status} {answer.reason}")
    if answer.getheader("Content-Encoding", "identity").lower() != "identity":
        raise UsageError("the server sends compressed bytes, which it was not asked for")
    if answer.length is not None and answer.length > max_bytes:
        raise TooLargeError(answer.length, max_bytes)
    data = bytearray()
    while piece := answer.read(_PIECE):
        data += piece
        if len(data) > max_bytes:  # whatever was said before
            raise TooLargeError(len(data), max_bytes)
    if answer.length:
        raise UsageError(f"the connection broke off, {answer.length:,} bytes before the end")
    return bytes(data)


def _redirected(address: str, location: str | None) -> str:
    """Return where a redirect leads; what is no http or https is refused when it is asked."""
    if not location:
        raise UsageError("the server redirects to nowhere")
    try:
        target = urljoin(address, location)
    except ValueError:
        raise UsageError("the server redirects to what is no address") from None
    if address.lower().startswith("https:") and target.lower().startswith("http:"):
        raise UsageError("the server redirects from https to http", code="https-downgrade")
    return target
