"""Who may call: bearer tokens as the original's, a guard against other sites' pages, and what a route asks of both."""

import hmac
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from marpack.archive.names import quoted
from marpack.errors import OutputError, UsageError, first_line, located
from marpack.serving.api import Call
from marpack.serving.settings import Address
from marpack.torchserve.http import RequestError

_WINDOWS = sys.platform == "win32"  # where a file's mode says nothing of who may read it
_MAX_BYTES = 1 << 16  # of a key file
_RANDOM = 24  # bytes of a new key; the original takes 6
_BEARER = re.compile(r"Bearer\s+(\S+)", re.ASCII)
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{0,5}))?", re.IGNORECASE | re.ASCII)
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)", re.IGNORECASE | re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOCAL = ("localhost", "127.0.0.1", "::1")


def _now() -> datetime:
    return datetime.now(UTC)


class TokenKind(Enum):
    """What a token opens; the value is its name in the key file."""

    MANAGEMENT = "management"
    INFERENCE = "inference"
    API = "API"  # new tokens of the other two kinds


class _Key(Struct, frozen=True, kw_only=True, omit_defaults=True):
    key: Annotated[str, Meta(pattern=r"\A[!-~]{8,}\Z")]
    expires: Annotated[datetime, Meta(tz=True)] | None = field(default=None, name="expiration time")  # None: never


class _KeyFile(Struct, frozen=True, kw_only=True):
    """The original's key_file.json."""

    management: _Key
    inference: _Key
    api: _Key = field(name="API")


class Tokens:
    """The keys of a key file, each for its kind of call."""

    def __init__(self, file: Path, keys: _KeyFile, new_key: Callable[[], _Key], clock: Callable[[], datetime]) -> None:
        self._file = file
        self._keys = keys
        self._new_key = new_key
        self._clock = clock

    @classmethod
    def start(cls, file: Path, minutes: float = 60, clock: Callable[[], datetime] = _now) -> Self:
        """Take the keys of a file, and write new ones for those that have expired; make the file if there is none.

        Args:
            file: A key_file.json; nobody else may read it.
            minutes: For how long a new key is valid. A key without an expiration time never expires, nor does the
                key for new tokens.
            clock: Tells the time, with its zone.

        Raises UsageError for a file that is no such JSON or that others may read; OutputError.
        """
        new_key = partial(_make_key, timedelta(minutes=minutes), clock)
        with located(str(file)):
            keys = _read(file)
            if keys is None:
                keys = _KeyFile(management=new_key(), inference=new_key(), api=_Key(key=_random()))
                _write(file, keys)
        tokens = cls(file, keys, new_key, clock)
        for kind in (TokenKind.MANAGEMENT, TokenKind.INFERENCE):
            if tokens._expired(kind):
                tokens.renew(kind)
        return tokens

    def allows(self, kind: TokenKind, authorization: str | None) -> bool:
        """Tell whether an Authorization header carries the valid key of a kind; compares in constant time."""
        match = _BEARER.fullmatch(authorization or "")
        given = match[1].encode(errors="backslashreplace") if match else b""
        return hmac.compare_digest(given, self._key(kind).key.encode()) and not self._expired(kind)

    def renew(self, kind: Literal[TokenKind.MANAGEMENT, TokenKind.INFERENCE]) -> None:
        """Put a new key into the file, after which the old one is no longer valid. Raises OutputError."""
        keys = replace(self._keys, **{kind.value: self._new_key()})
        with located(str(self._file)):
            _write(self._file, keys)
        self._keys = keys

    def _key(self, kind: TokenKind) -> _Key:
        keys = self._keys
        return {TokenKind.MANAGEMENT: keys.management, TokenKind.INFERENCE: keys.inference}.get(kind, keys.api)

    def _expired(self, kind: TokenKind) -> bool:
        expires = self._key(kind).expires
        return kind is not TokenKind.API and expires is not None and self._clock() >= expires


def _make_key(validity: timedelta, clock: Callable[[], datetime]) -> _Key:
    return _Key(key=_random(), expires=(clock() + validity).astimezone(UTC))


def _random() -> str:
    return secrets.token_urlsafe(_RANDOM)


def _read(file: Path) -> _KeyFile | None:
    """Return what a key file holds, None if there is none."""
    if file.exists() and not file.is_file():  # a pipe would be waited for
        hint = "name a key_file.json, or a file that isn't there yet"
        raise UsageError("the key file is no regular file", hint=hint, code="not-a-regular-file")
    try:
        with file.open("rb") as stream:
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077 and not _WINDOWS:
                hint = f"run chmod 600 {file}"
                raise UsageError("others have access to the key file", hint=hint, code="readable-key-file")
            return msgspec.json.decode(stream.read(_MAX_BYTES), type=_KeyFile)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"the key file cannot be read: {error.strerror}", code="unreadable-key-file") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "remove it: the next start makes a new one"
        raise UsageError(f"this is no key_file.json: {first_line(error)}", hint=hint, code="invalid-key-file") from None


def _write(file: Path, keys: _KeyFile) -> None:
    """Write a key file that only this user may read, whole or not at all. Raises OutputError."""
    target = Path(os.path.realpath(file))
    text = msgspec.json.format(msgspec.json.encode(keys), indent=2)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".key_file.")  # only its owner may read it
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(descriptor)
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"the key file cannot be written: {error.strerror}") from None


class Authority(Struct, frozen=True):
    """A host and a port; None is the port that the scheme has by default, or any."""

    host: str  # in lower case; an IPv6 address in its short form, without brackets
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read `host[:port]` as a Host header has it; return None for anything else, such as a user's name in it."""
        match = _HOST.fullmatch(text)
        if not match:
            return None
        host = _plain(match[1])
        port = int(match[2]) if match[2] else None
        return cls(host, port) if host and (port is None or 1 <= port <= 65_535) else None


class Guard(Struct, frozen=True, kw_only=True):
    """Refuses what a browser sends on behalf of another site's page: by a rebound name, or across origins.

    Loopback is no boundary to such a page: the browser that runs it is inside.
    """

    hosts: frozenset[Authority]  # what it listens as; without a port: on any
    addresses: bool = False  # as any IP address, too: a name can be rebound, an address can't
    origins: frozenset[tuple[str, Authority]] = frozenset()  # schemes, hosts and ports of the pages that may call it

    @classmethod
    def of(
        cls, listener: Address, *, machine: str, allowed_hosts: Iterable[str] = (), origins: Iterable[str] = ()
    ) -> Self:
        """Make the guard of a listener.

        Args:
            listener: Where it listens, with the port that it has got. A listener on all addresses is often reached
                through a mapped port, so that any port counts there.
            machine: This machine's name, which counts for a listener on all addresses.
            allowed_hosts: Further names, `host` or `host:port` (`--allowed-host`).
            origins: Pages that may call, `scheme://host[:port]` (`--cors-origin`). `*` opens nothing here.

        Raises UsageError for a host or an origin that is none.
        """
        everywhere = _is_wildcard(listener.host)
        port = None if everywhere or listener.path is not None else listener.port
        names = (*_LOCAL, machine) if everywhere else (*_LOCAL, listener.host)
        own = {Authority(plain, port) for name in names if (plain := _plain(name))}
        return cls(
            hosts=frozenset(own | {_allowed_host(text) for text in allowed_hosts}),
            addresses=everywhere,
            origins=frozenset(_allowed_origin(text) for text in origins if text != "*"),
        )

    def refuses(self, host: str | None, origin: str | None) -> str | None:
        """Return why a request with these headers is refused, as a sentence; None if it isn't.

        Args:
            host: The Host header; None if there is none. More than one is for the caller to refuse.
            origin: The Origin header; None if there is none, as with every client that isn't a browser.
        """
        if host is None:
            return "The request has no Host header"
        here = Authority.parse(host)
        if here is None:
            return f"The Host header {quoted(host)} names no host"
        if not self._listens_as(here):
            return f"This server does not answer as {quoted(host)}; --allowed-host makes it"
        if origin is not None and not self._welcomes(origin, here):
            return f"Pages of {quoted(origin)} may not call this server; --cors-origin lets them"
        return None

    def _listens_as(self, here: Authority) -> bool:
        exact = Authority(here.host, here.port or _DEFAULT_PORTS["http"])
        by_address = self.addresses and _address(here.host) is not None
        return by_address or exact in self.hosts or Authority(here.host) in self.hosts

    def _welcomes(self, origin: str, here: Authority) -> bool:
        page = _parsed_origin(origin)
        return page == _with_port("http", here) or page in self.origins


def _address(text: str) -> str | None:
    """Return an IP address in its short form, None for a name."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _plain(host: str) -> str | None:
    """Return the host of an authority in the form of `Authority.host`."""
    if host.startswith("["):
        return _address(host[1:-1]) if ":" in host else None
    return host.lower().removesuffix(".") or None


def _is_wildcard(host: str) -> bool:
    address = _address(host)
    return address is not None and ip_address(address).is_unspecified


def _with_port(scheme: str, authority: Authority) -> tuple[str, Authority]:
    return scheme, replace(authority, port=authority.port or _DEFAULT_PORTS.get(scheme))


def _parsed_origin(text: str) -> tuple[str, Authority] | None:
    """Return the scheme, host and port of an Origin header; None for `null` and what else is none."""
    match = _ORIGIN.fullmatch(text)
    authority = Authority.parse(match[2]) if match else None
    return _with_port(match[1].lower(), authority) if match and authority else None


def _allowed_host(text: str) -> Authority:
    authority = Authority.parse(text)
    if authority is None:
        hint = "write HOST or HOST:PORT"
        raise UsageError(f"{quoted(text)} is no host", where="--allowed-host", hint=hint, code="invalid-host")
    return authority


def _allowed_origin(text: str) -> tuple[str, Authority]:
    origin = _parsed_origin(text)
    if origin is None:
        hint = "write it as browsers do: https://HOST or http://HOST:PORT, nothing after it"
        raise UsageError(f"{quoted(text)} is no origin", where="--cors-origin", hint=hint, code="invalid-origin")
    return origin


_KEY_REFUSED = "Token {} failed. Token either incorrect, expired, or not provided correctly"


class Admission:
    """What some routes ask of those who call them."""

    def __init__(
        self, *, tokens: Tokens | None = None, kind: TokenKind, guarded: bool = False, compat: bool = False
    ) -> None:
        """Take what is asked.

        Args:
            tokens: Of which one is asked for; None: none is.
            kind: Of the token.
            guarded: A guard is asked, too, and until there is one everybody is refused.
            compat: Refuse in the original's status.
        """
        self.tokens = tokens
        self.guard: Guard | None = None  # known once the address is
        self._guarded = guarded
        self._kind = kind
        self._compat = compat

    def check(self, call: Call) -> None:
        """Raise RequestError for a request that may not be answered: 401 without a token, 403 for all else."""
        self.check_origin(call)
        if self.tokens is None:
            return
        given = call.request.header("authorization")
        if not self.tokens.allows(self._kind, given):
            of_another_kind = any(self.tokens.allows(kind, given) for kind in TokenKind)
            raise self.refused("Authorization", status=403 if of_another_kind else 401)

    def check_origin(self, call: Call) -> None:
        """Raise RequestError (403) for a request by a name that isn't the server's, or from another's page."""
        if not self._guarded:
            return
        why: str | None = "The server is not ready yet"
        if self.guard is not None:
            why = self.guard.refuses(_value(call, "host"), _value(call, "origin"))
        if why is not None:
            raise RequestError(f"{why}.", status=403, kind="ForbiddenException")

    def refused(self, what: str, *, status: int = 401) -> RequestError:
        """Return the refusal of a token; `what` it was for, in the original's words."""
        return RequestError(
            _KEY_REFUSED.format(what), status=400 if self._compat else status, kind="InvalidKeyException"
        )


def _value(call: Call, name: str) -> str | None:
    """Return a header's value; of several headers all, which is none that is allowed."""
    return ", ".join(value for header, value in call.request.headers if header.lower() == name) or None
