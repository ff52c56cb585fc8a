"""Ranges of a file on a web server, by the standard library: no package more to install."""

import base64
import http.client
import re
from email.message import Message
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import OpenerDirector, Request

from marpack.archive.remote import Piece, public_address
from marpack.errors import DamagedArchiveError, NotAnArchiveError
from marpack.version import __version__

_TIMEOUT = 30  # seconds
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_WHOLE_LIMIT = 32 * 1024 * 1024  # bytes that are fetched at once where a server knows no ranges
_HANDLERS = (
    request.ProxyHandler,
    request.HTTPHandler,
    request.HTTPSHandler,
    request.HTTPRedirectHandler,
    request.HTTPErrorProcessor,
    request.HTTPDefaultErrorHandler,
    request.UnknownHandler,
)
_DOWNLOAD = "download it, and name the file"


class HttpFetch:
    """Ranges over http and https; see `marpack.archive.remote.Fetch`."""

    def __init__(self, address: str) -> None:
        """Note where to ask; nothing is asked yet. Raises NotAnArchiveError for what is no address."""
        self._where = public_address(address)
        try:
            self._address, self._credentials = _split_credentials(address)
        except ValueError as error:
            raise self._unreachable(f"this is no address: {error}") from None
        self._opener = _opener()

    def last(self, count: int) -> Piece:
        """Return the last bytes; see `Fetch`. Raises NotAnArchiveError."""
        return self._ask(f"bytes=-{count}")

    def part(self, start: int, stop: int) -> Piece:
        """Return a range; see `Fetch`. Raises NotAnArchiveError, DamagedArchiveError."""
        piece = self._ask(f"bytes={start}-{stop - 1}")
        if piece.start != start or len(piece.data) != min(stop, piece.size) - start:
            raise DamagedArchiveError(
                "the server sends other bytes than it was asked for", where=self._where, hint=_DOWNLOAD
            )
        return piece

    def _ask(self, wanted: str) -> Piece:
        headers = {"Range": wanted, "Accept-Encoding": "identity", "User-Agent": f"marpack/{__version__}"}
        try:
            question = Request(self._address, headers=headers)  # noqa: S310 - the opener knows no other scheme
            if self._credentials:  # for this host only, not for where it redirects to
                question.add_unredirected_header("Authorization", self._credentials)
            with self._opener.open(question, timeout=_TIMEOUT) as answer:
                return self._piece(answer)
        except HTTPError as error:
            with error:
                raise self._unreachable(f"the server answers {error.code} {error.reason}") from None
        except URLError as error:
            raise self._unreachable(f"the server cannot be reached: {error.reason}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(f"the connection fails: {str(error) or type(error).__name__}") from None

    def _piece(self, answer: http.client.HTTPResponse) -> Piece:
        version = _version(answer.headers)
        if answer.status == http.client.PARTIAL_CONTENT:
            found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if found is None:
                raise self._unreachable("the server does not say which part of the file it sends")
            return Piece(answer.read(), int(found[1]), int(found[3]), version)
        length = answer.length
        if length is None or length > _WHOLE_LIMIT:
            raise self._unreachable("the server sends no parts of files, and this one is too large to fetch", _DOWNLOAD)
        data = answer.read()
        return Piece(data, 0, len(data), version)

    def _unreachable(self, what: str, hint: str = "check the address") -> NotAnArchiveError:
        return NotAnArchiveError(what, where=self._where, hint=hint)


def _opener() -> OpenerDirector:
    """Return an opener for http and https, through the proxies of the environment; no file:, no ftp:."""
    opener = OpenerDirector()
    for handler in _HANDLERS:
        opener.add_handler(handler())
    return opener


def _version(headers: Message) -> str:
    return str(headers.get("ETag") or headers.get("Last-Modified") or "")


def _split_credentials(address: str) -> tuple[str, str | None]:
    """Return an address without its user and password, and these as an Authorization header."""
    parts = urlsplit(address)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return address, None
    token = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {token}"
