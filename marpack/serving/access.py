"""Access rules: TorchServe's bearer tokens, a guard against pages of other sites, and the check of each request."""

import hmac
import os
import re
import secrets
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Self

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from marpack.archive.protocol import quoted
from marpack.errors import OutputError, UsageError, convert_os_errors, describe_os_error, first_line, located
from marpack.serving.api import Call
from marpack.serving.settings import Address
from marpack.torchserve.http import RequestError

_WINDOWS = sys.platform == "win32"  # where a file's mode does not say who may read it
_MAX_BYTES = 1 << 16  # of a key file
_RANDOM = 24  # bytes of a new key; TorchServe's have 6
_BEARER = re.compile(r"Bearer\s+(\S+)", re.ASCII)
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{0,5}))?", re.IGNORECASE | re.ASCII)
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)", re.IGNORECASE | re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOCAL = ("localhost", "127.0.0.1", "::1")


class TokenKind(Enum):
    """The permission of a token; the value is its name in the key file."""

    MANAGEMENT = "management"
    INFERENCE = "inference"
    API = "API"  # renew the other two


class _Key(Struct, frozen=True, kw_only=True, omit_defaults=True):
    key: Annotated[str, Meta(pattern=r"\A[!-~]{8,}\Z")]
    expires: Annotated[datetime, Meta(tz=True)] | None = field(default=None, name="expiration time")  # None: never


class _KeyFile(Struct, frozen=True, kw_only=True):
    """TorchServe's key_file.json."""

    management: _Key
    inference: _Key
    api: _Key = field(name="API")


class Tokens:
    """The keys of a key file."""

    def __init__(
        self,
        file: Path,
        minutes: float = 60,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        rotate: bool = False,
    ) -> None:
        """Read a key_file.json that only its owner can read, and renew expired keys; create it if it is missing.

        A new key is valid for `minutes`. The API key, and a key without an expiration time, never expires. With
        `rotate`, all keys are replaced. Raises UsageError for an invalid file or one that others can read; OutputError.
        """
        self._file = file
        self._validity = timedelta(minutes=minutes)
        self._clock = clock
        self._lock = threading.Lock()  # each renewal runs in a thread
        with located(str(file)):
            keys = _read_keys(file)
            if keys is None or rotate:
                api = _Key(key=secrets.token_urlsafe(_RANDOM))
                keys = _KeyFile(management=self._new_key(), inference=self._new_key(), api=api)
                _write_keys(file, keys)
        self._keys = keys
        for kind in (TokenKind.MANAGEMENT, TokenKind.INFERENCE):
            if self._is_expired(kind):
                self.renew(kind)

    def allows(self, kind: TokenKind, authorization: str | None) -> bool:
        """Return whether an Authorization header has the valid key of a kind; compares in constant time."""
        match = _BEARER.fullmatch(authorization or "")
        given = match[1].encode(errors="backslashreplace") if match else b""
        return hmac.compare_digest(given, self._key(kind).key.encode()) and not self._is_expired(kind)

    def renew(self, kind: TokenKind) -> None:
        """Replace the management or inference key in the file; the old one becomes invalid. Raises OutputError."""
        with self._lock:
            keys = replace(self._keys, **{kind.value: self._new_key()})
            _write_keys(self._file, keys)
            self._keys = keys

    def _new_key(self) -> _Key:
        return _Key(key=secrets.token_urlsafe(_RANDOM), expires=(self._clock() + self._validity).astimezone(UTC))

    def _key(self, kind: TokenKind) -> _Key:
        key: _Key = getattr(self._keys, kind.value.lower())
        return key

    def _is_expired(self, kind: TokenKind) -> bool:
        expires = self._key(kind).expires
        return kind is not TokenKind.API and expires is not None and self._clock() >= expires


def _read_keys(file: Path) -> _KeyFile | None:
    """Return the keys of a file; None if it does not exist."""
    if file.exists() and not file.is_file():  # reading a pipe would block
        hint = "Pass a key_file.json, or a file that does not exist: the server creates it."
        raise UsageError("the key file is not a regular file", hint=hint, code="not-a-regular-file")
    try:
        with file.open("rb") as stream:
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077 and not _WINDOWS:
                hint = f"Run chmod 600 {file}"
                raise UsageError("other users have access to the key file", hint=hint, code="readable-key-file")
            return msgspec.json.decode(stream.read(_MAX_BYTES), type=_KeyFile)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"the key file cannot be read: {describe_os_error(error)}"
        hint = "Check the path of --token and the permissions of the file."
        raise UsageError(what, hint=hint, code="unreadable-key-file") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"the file is not a key_file.json: {first_line(error)}"
        hint = "Remove the file. The next start creates a new one."
        raise UsageError(what, hint=hint, code="invalid-key-file") from None


def _write_keys(file: Path, keys: _KeyFile) -> None:
    """Write a key file that only its owner can read, completely or not at all. Raises OutputError."""
    target = Path(os.path.realpath(file))
    text = msgspec.json.format(msgspec.json.encode(keys), indent=2)
    with convert_os_errors(OutputError, "the key file cannot be written", where=str(file)):
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".key_file.")  # with mode 600
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(descriptor)
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)


class Authority(Struct, frozen=True):
    """A host and a port; None is the scheme's default port, or any."""

    host: str  # in lower case; an IPv6 address in its short form, without brackets
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read `host[:port]` as in a Host header; return None for any other form, such as one with a user name."""
        match = _HOST.fullmatch(text)
        if not match:
            return None
        host = _normalize_host(match[1])
        port = int(match[2]) if match[2] else None
        return cls(host, port) if host and (port is None or 1 <= port <= 65_535) else None

    def with_port(self, scheme: str) -> "Authority":
        """Return it with the scheme's default port in place of None."""
        return replace(self, port=self.port or _DEFAULT_PORTS.get(scheme))


Origin = tuple[str, Authority]  # the scheme, the host and the port of a page


class Guard(Struct, frozen=True, kw_only=True):
    """Refuses requests of a browser on behalf of another site's page: by a rebound name, or across origins.

    Loopback does not protect against such a page: its browser runs on this machine.
    """

    hosts: frozenset[Authority]  # of the server; without a port: on any
    any_address: bool = False  # allow any IP address as the host: names can be rebound, addresses cannot
    origins: frozenset[Origin] = frozenset()  # of pages that may send requests

    @classmethod
    def of(
        cls, address: Address, *, machine: str, allowed_hosts: Iterable[str] = (), origins: Iterable[str] = ()
    ) -> Self:
        """Make the guard of an address with its actual port, from the values of `--allowed-host` and `--cors-origin`.

        A server on all addresses also has the name of the `machine`, and allows any port, as it is often reached
        through a mapped one. The origin `*` has no effect here. Raises UsageError for an invalid host or origin.
        """
        ip = _normalize_address(address.host)
        everywhere = ip is not None and ip_address(ip).is_unspecified
        port = None if everywhere or address.path is not None else address.port
        names = (*_LOCAL, machine) if everywhere else (*_LOCAL, address.host)
        hosts = {Authority(host, port) for name in names if (host := _normalize_host(name))}
        for text in allowed_hosts:
            authority = Authority.parse(text)
            if authority is None:
                what, hint = f"{quoted(text)} is not a host", "Write HOST or HOST:PORT."
                raise UsageError(what, where="--allowed-host", hint=hint, code="invalid-host")
            hosts.add(authority)
        pages: set[Origin] = set()
        for text in origins:
            origin = _parse_origin(text)
            if origin is not None:
                pages.add(origin)
            elif text != "*":
                what = f"{quoted(text)} is not an origin"
                hint = "Write https://HOST or http://HOST:PORT, without a path."
                raise UsageError(what, where="--cors-origin", hint=hint, code="invalid-origin")
        return cls(hosts=frozenset(hosts), any_address=everywhere, origins=frozenset(pages))

    def problem(self, host: str | None, origin: str | None) -> str | None:
        """Return why a request with these headers is refused; None if it is allowed.

        Only browsers send an Origin header. The caller joins several Host headers, which makes them invalid.
        """
        if host is None:
            return "The request has no Host header"
        here = Authority.parse(host)
        if here is None:
            return f"The Host header {quoted(host)} is not a host"
        is_own_address = self.any_address and _normalize_address(here.host) is not None
        if not is_own_address and not {here.with_port("http"), Authority(here.host)} & self.hosts:
            return f"This server does not have the name {quoted(host)}; allow it with --allowed-host"
        if origin is None:
            return None
        page = _parse_origin(origin)
        if page == ("http", here.with_port("http")) or page in self.origins:
            return None
        return f"Pages of {quoted(origin)} may not send requests to this server; allow them with --cors-origin"


def _normalize_address(text: str) -> str | None:
    """Return an IP address in its short form; None for a name."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _normalize_host(host: str) -> str | None:
    """Return the host of an authority in the form of `Authority.host`."""
    if host.startswith("["):
        return _normalize_address(host[1:-1]) if ":" in host else None
    return host.lower().removesuffix(".") or None


def _parse_origin(text: str) -> Origin | None:
    """Return the scheme, host and port of an Origin header; None for `null` and any other form."""
    match = _ORIGIN.fullmatch(text)
    authority = Authority.parse(match[2]) if match else None
    return (match[1].lower(), authority.with_port(match[1].lower())) if match and authority else None


class Admission(Struct, kw_only=True, eq=False):
    """The rules for the callers of some routes."""

    kind: TokenKind  # of the required token
    tokens: Tokens | None = None  # None: a token is not required
    is_guarded: bool = False  # whether a guard also checks requests; until it is set, they are refused
    guard: Guard | None = None  # set once the server listens
    compat: bool = False  # refuse with TorchServe's status

    def check(self, call: Call) -> None:
        """Raise RequestError for a request without permission: 401 without a token, otherwise 403."""
        self.check_origin(call)
        if self.tokens is not None:
            self.check_token(call.request.header("authorization"))

    def check_token(self, given: str | None) -> None:
        """Raise RequestError for a header `authorization` without the required token."""
        if self.tokens is not None and not self.tokens.allows(self.kind, given):
            has_other_kind = any(self.tokens.allows(kind, given) for kind in TokenKind)
            raise self.token_error("Authorization", status=403 if has_other_kind else 401)

    def check_origin(self, call: Call) -> None:
        """Raise RequestError (403) for a request to another host name, or from another site's page."""
        if not self.is_guarded:
            return
        problem: str | None = "The server is not ready yet"
        if self.guard is not None:
            problem = self.guard.problem(_header(call, "host"), _header(call, "origin"))
        if problem is not None:
            raise RequestError(f"{problem}.", status=403, kind="ForbiddenException")

    def token_error(self, what: str, *, status: int = 401) -> RequestError:
        """Return TorchServe's error for a wrong token; `what` is "Authorization" or "Authentication"."""
        message = f"Token {what} failed. Token either incorrect, expired, or not provided correctly"
        return RequestError(message, status=400 if self.compat else status, kind="InvalidKeyException")


def _header(call: Call, name: str) -> str | None:
    """Return a header's value; several headers are joined, which makes them invalid."""
    return ", ".join(value for header, value in call.request.headers if header.lower() == name) or None
