"""What a server and its models are set to: addresses, and how a model is served."""

import re
import socket
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.names import quoted
from marpack.errors import UsageError

_URL = re.compile(r"(https?)://(\[[^]/]*\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?/?", re.IGNORECASE | re.ASCII)
_UNIX = "unix:"
_FORMS = "write http://HOST:PORT or unix:/PATH"


class Address(Struct, frozen=True):
    """Where a server listens: a host and a port, or a Unix socket."""

    host: str  # an IPv6 address without brackets; empty for a Unix socket
    port: int
    path: str | None = None  # the Unix socket's

    @classmethod
    def parse(cls, text: str, default_port: int) -> Self:
        """Read `http://host[:port]` or `unix:/path`; raise UsageError for another form, and for https."""
        if text[: len(_UNIX)].lower() == _UNIX:
            return cls("", 0, _socket_path(text))
        match = _URL.fullmatch(text)
        if not match:
            raise UsageError(f"{quoted(text)} is no address to listen on", hint=_FORMS)
        scheme, host, given = match.groups()
        if scheme.lower() == "https":
            hint = "put a proxy in front that ends TLS, and listen on http:// behind it"
            raise UsageError(f"{text} asks for TLS, which is not offered", hint=hint, code="tls-not-supported")
        port = int(given or default_port)
        if port > 65_535:
            raise UsageError(f"{text} names the port {port}", hint="ports end at 65535")
        return cls(_plain_host(host), port)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False  # a name, whatever it stands for

    def shares(self, other: Self | None) -> bool:
        """Say whether one listener answers for both; each address with the port 0 gets a port of its own."""
        return self == other and (self.path is not None or self.port != 0)

    def bound_to(self, sock: socket.socket) -> Self:
        """Return the same with the port that a socket got."""
        return replace(self, port=sock.getsockname()[1]) if self.path is None else self

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def _socket_path(text: str) -> str:
    path = text[len(_UNIX) :]
    if not path.startswith("/") or "\0" in path:
        raise UsageError(f"{quoted(text)} names no socket by its full path", hint=_FORMS)
    return path


def _plain_host(host: str) -> str:
    """Return a host without the brackets of an IPv6 address."""
    if not host.startswith("["):
        return host
    try:
        return str(IPv6Address(host[1:-1]))
    except AddressValueError:
        raise UsageError(f"{quoted(host)} is no IPv6 address", hint=_FORMS) from None


class ModelSettings(Struct, frozen=True, kw_only=True):
    """How one model version is served."""

    min_workers: int = 1
    max_workers: int = 1  # bounds scaling down alone: nothing scales by itself
    batch_size: int = 1
    max_batch_delay: int = 100  # ms
    response_timeout: int = 120  # s
    startup_timeout: int = 120  # s
    queue_size: int = 100
    retry_seconds: int = 300  # s that a worker which does not come up is tried again
    leave_timeout: int = 10  # s that a worker which is taken off has for what is in its hands
    client_timeout: int = 0  # ms after which an answer reaches nobody; 0: never

    def tuned(self, config: Mapping[str, Any]) -> Self:  # Any: YAML as it stands
        """Return the same with what the archive's model config says; it has the last word, as on the server."""
        given = {field: _positive(config, key) for field, key in _KEYS.items()}
        if config:
            given |= {field: _seconds(config, _KEYS[field]) for field in ("response_timeout", "startup_timeout")}
        tuned = replace(self, **{field: value for field, value in given.items() if value is not None})
        return replace(tuned, max_workers=max(tuned.min_workers, tuned.max_workers))


_DEFAULT_SECONDS = 120  # of an answer, and of a start
_KEYS = {
    "min_workers": "minWorkers",
    "max_workers": "maxWorkers",
    "batch_size": "batchSize",
    "max_batch_delay": "maxBatchDelay",
    "response_timeout": "responseTimeout",
    "startup_timeout": "startupTimeout",
    "queue_size": "jobQueueSize",
    "retry_seconds": "maxRetryTimeoutInSec",
    "client_timeout": "clientTimeoutInMills",
}


def _seconds(config: Mapping[str, Any], key: str) -> int | None:  # Any: as above
    """Return the time that a model config stands for: one that tells none, or no number, tells the default.

    Only one that is not positive leaves the word to others, as on the server.
    """
    value = config.get(key)
    if type(value) is int and value <= 0:
        return None
    return _positive(config, key) or _DEFAULT_SECONDS


def _positive(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
