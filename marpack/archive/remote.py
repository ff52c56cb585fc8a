"""Bytes from elsewhere, by range or whole: http(s) by the standard library, the rest by fsspec."""

import base64
import http.client
import re
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import blake2b
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request

from msgspec import Struct

from marpack.archive.bytesource import ByteSource
from marpack.archive.http_opener import MAX_WAIT, TIMEOUT, WaitBudget, opener
from marpack.errors import DamagedArchiveError, MarpackError, MissingExtraError, NotAnArchiveError, UsageError
from marpack.version import __version__

_TAIL = 16 * 1024  # bytes of the first request: the directory and the small files lie at an archive's end
_MIN_BYTES, _MAX_BYTES = 512, 256 * 1024  # bytes of a later one: little after a jump, more the longer one reads on
_AHEAD = 8 << 20  # bytes of a request of a whole file
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_WHOLE_LIMIT = 32 * 1024 * 1024  # bytes that are fetched at once where a server knows no ranges
_DOWNLOAD = "download it, and name the file"
MAX_INPUT = 1 << 30  # bytes of one input
Refuse = Callable[[str], MarpackError]  # what stands in the error → the error


class FetchedRange(Struct, frozen=True):
    """What one request brought."""

    data: bytes
    start: int  # bytes from the file's start
    size: int  # of the whole file
    version: str  # what the server tells versions of the file apart by; "" if it does not


class Download(Struct, frozen=True):
    """A whole file that is coming."""

    size: int | None  # bytes; None: the server does not say
    version: str  # as in `FetchedRange`
    read: Callable[[int], bytes]  # up to so many of the next bytes, none at the end


class Fetch(Protocol):
    """How to get bytes from somewhere; its two bodies are http and fsspec."""

    def last(self, count: int) -> FetchedRange:
        """Return the last `count` bytes of the file, or all of a shorter one."""

    def part(self, start: int, stop: int) -> FetchedRange:
        """Return the bytes [start, stop)."""


class RemoteFile(ByteSource):
    """A file elsewhere; see `marpack.archive.bytesource.ByteSource`. What was fetched is kept."""

    whole = _MIN_BYTES

    def __init__(self, address: str, fetch: Fetch) -> None:
        """Fetch the file's end. Raises NotAnArchiveError when there is nothing that can be read by range."""
        self.where = public_address(address)
        self._address = address.partition("#")[0]
        self._fetch = fetch
        self._starts: list[int] = []
        self._pieces: dict[int, bytes] = {}
        first = fetch.last(_TAIL)
        self.size = first.size
        self._version = first.version
        self._next = -1  # where the last request ended
        self._ahead = _MIN_BYTES
        self.fetched = 0  # bytes of all requests together
        self._keep(first)

    @property
    def identity(self) -> str:
        """Name the file by its whole address, size and version; only the hash is kept, as an address may be secret."""
        return blake2b(f"{self._address}\0{self.size}\0{self._version}".encode(), digest_size=16).hexdigest()

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer's beginning, by what is here already if anything is; see `ByteSource.readinto_at`."""
        data = self._at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Forget what was fetched."""
        self._starts.clear()
        self._pieces.clear()

    def _at(self, offset: int, count: int) -> bytes:
        """Return some of the bytes from `offset` on, fetched now if they were not before."""
        if offset >= self.size:
            raise DamagedArchiveError(f"the archive ends at byte {self.size}, in the middle of what it promises")
        before = bisect_right(self._starts, offset) - 1
        if before >= 0:
            start = self._starts[before]
            if kept := self._pieces[start][offset - start : offset - start + count]:
                return kept
        self._ahead = min(self._ahead * 2, _MAX_BYTES) if offset == self._next else _MIN_BYTES
        following = self._starts[before + 1] if before + 1 < len(self._starts) else self.size
        stop = min(offset + max(count, self._ahead), following)
        self._next = stop
        return self._keep(self._fetch.part(offset, stop))[:count]

    def _keep(self, piece: FetchedRange) -> bytes:
        if (piece.size, piece.version) != (self.size, self._version):
            what = "the archive was replaced while it was read"
            raise DamagedArchiveError(what, where=self.where, hint="try again", code="file-changed")
        self.fetched += len(piece.data)
        self._pieces[piece.start] = piece.data
        insort(self._starts, piece.start)
        return piece.data


def open_remote(address: str, *, max_wait: float = MAX_WAIT) -> RemoteFile:
    """Open an address (https, s3, …) for reading by range; over http, no longer than `max_wait` seconds in all.

    Raises NotAnArchiveError when there is nothing to read, MissingExtraError when reading it takes another package.
    """
    ranges = HttpFetch(address, WaitBudget(max_wait)) if _is_http(address) else FileSystemFetch(address)
    return RemoteFile(address, ranges)


def open_whole(address: str) -> AbstractContextManager[Download]:
    """Ask for all of a file at an address; raises as `open_remote` does, and so does reading it."""
    return (HttpFetch(address, WaitBudget()) if _is_http(address) else FileSystemFetch(address)).whole()


def _guarded(read: Callable[[int], bytes], guard: Callable[[], AbstractContextManager[None]]) -> Callable[[int], bytes]:
    def guarded(count: int) -> bytes:
        with guard():
            return read(count)

    return guarded


def fetch(address: str, maximum: int = MAX_INPUT) -> bytes:
    """Return the bytes at an address, an input's; raises UsageError if there are none to be had, or over `maximum`."""
    check_address(address)
    where = public_address(address)
    try:
        with open_whole(address) as download:
            data, expected = download.read(maximum + 1), download.size
    except NotAnArchiveError as error:
        raise UsageError(error.what, where=where, hint=error.hint, code=error.code) from error
    if len(data) > maximum:
        raise UsageError(f"the input is larger than {maximum:,} bytes", where=where, hint=_DOWNLOAD)
    if expected is not None and len(data) < expected:
        raise UsageError(f"the connection broke off after {len(data):,} of {expected:,} bytes", where=where)
    return data


def check_address(address: str) -> None:
    """Raise UsageError for a kind of address that nothing here can read; nothing is asked of anyone."""
    if _is_http(address):
        return
    import fsspec  # noqa: PLC0415 - as above

    try:
        fsspec.get_filesystem_class(address.partition("://")[0])
    except ImportError as error:
        raise _missing(address, error, "the inputs") from error
    except ValueError as error:
        what = "nothing here can read such an address"
        raise UsageError(what, where=public_address(address), code="unknown-scheme") from error


def _is_http(address: str) -> bool:
    return address.lower().startswith(("http://", "https://"))


def public_address(address: str) -> str:
    """Return an address without what may be secret in it, user, password and query, and without a digest."""
    scheme, _, rest = address.partition("#")[0].partition("://")
    host, slash, path = rest.partition("/")
    shown, question, _ = f"{host.rpartition('@')[2]}{slash}{path}".partition("?")
    return f"{scheme}://{shown}{question and '?…'}"


class FileSystemFetch:
    """Ranges of a file that fsspec knows how to reach, as s3, gs, az or memory."""

    def __init__(self, address: str) -> None:
        """Find the file system and the file's size. Raises NotAnArchiveError, MissingExtraError."""
        import fsspec  # noqa: PLC0415 - it takes longer to import than a local archive to inspect

        self._where = public_address(address)
        refuse = partial(_unreachable, where=self._where, code="fetch-failed")
        self._reach = partial(from_file_system, address, refuse, "it cannot be fetched", "the archive")
        with self._reach():
            self._files, self._path = fsspec.core.url_to_fs(address)
            info = self._files.info(self._path)
        if info.get("type") == "directory" or not isinstance(info.get("size"), int):
            hint = "name the archive itself"
            raise NotAnArchiveError("this is no file", where=self._where, hint=hint, code="not-a-file")
        self._size: int = info["size"]
        self._version = str(info.get("ETag") or info.get("etag") or info.get("LastModified") or "")

    def last(self, count: int) -> FetchedRange:
        """Return the last bytes; see `Fetch`."""
        return self.part(max(0, self._size - count), self._size)

    def part(self, start: int, stop: int) -> FetchedRange:
        """Return a range; see `Fetch`."""
        with self._reach():
            data: bytes = self._files.cat_file(self._path, start=start, end=stop)
        return FetchedRange(data, start, self._size, self._version)

    @contextmanager
    def whole(self) -> Iterator[Download]:
        """Give all of it; of another version than when it was found, where the file system tells, nothing."""
        with self._reach():
            file = self._files.open(self._path, "rb", block_size=_AHEAD, cache_type="readahead")
        with file:
            yield Download(self._size, self._version, _guarded(file.read, self._reach))


def _missing(address: str, error: ImportError, what: str) -> MarpackError:
    scheme = address.partition("://")[0]
    need = f"reading {scheme}:// addresses"
    if scheme in ("s3", "s3a"):
        return MissingExtraError("s3fs", "s3", need)
    hint = f"pip install it, or download {what}"
    what = f"{need} takes another package: {error}"
    return UsageError(what, where=public_address(address), hint=hint, code="missing-package")


def _unreachable(
    text: str, where: str, *, code: str, hint: str = "check the address, or download it"
) -> NotAnArchiveError:
    return NotAnArchiveError(text, where=where, hint=hint, code=code)


@contextmanager
def from_file_system(address: str, refuse: Refuse, failing: str, what: str) -> Iterator[None]:
    """Turn whatever goes wrong in one of fsspec's file systems into an error of ours, without what is secret."""
    try:
        yield
    except ImportError as error:
        raise _missing(address, error, what) from None
    except Exception as error:  # every file system has errors of its own
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        if isinstance(error, FileNotFoundError) and first in address:  # of which some say no more
            first = "there is no such file"
        raise refuse(f"{failing}: {first.replace(address, public_address(address))}") from error


class HttpFetch:
    """Ranges over http and https; see `marpack.archive.remote.Fetch`."""

    def __init__(self, address: str, budget: WaitBudget) -> None:
        """Note where to ask, and how long to wait; nothing is asked yet."""
        self._address = address
        self._budget = budget
        self._where = public_address(address)
        self._refuse = partial(_unreachable, where=self._where, hint="check the address")
        self._guard = partial(_failures, budget, self._refuse)

    def last(self, count: int) -> FetchedRange:
        """Return the last bytes; see `Fetch`. Raises NotAnArchiveError."""
        return self._ask(f"bytes=-{count}", count)

    def part(self, start: int, stop: int) -> FetchedRange:
        """Return a range; see `Fetch`. Raises NotAnArchiveError, DamagedArchiveError."""
        piece = self._ask(f"bytes={start}-{stop - 1}", stop - start)
        if piece.start != start or len(piece.data) != min(stop, piece.size) - start:
            raise self._other_bytes()
        return piece

    @contextmanager
    def whole(self) -> Iterator[Download]:
        """Give all of it; what fails is told by the errors that reading it raises."""
        with self._guard():
            answer = _ask(self._address, {"Accept-Encoding": "identity"}, self._budget)
        with answer:
            yield Download(answer.length, _version(answer), _guarded(answer.read, self._guard))

    def _other_bytes(self) -> DamagedArchiveError:
        return DamagedArchiveError(
            "the server sends other bytes than it was asked for",
            where=self._where,
            hint=_DOWNLOAD,
            code="wrong-range",
        )

    def _ask(self, wanted: str, most: int) -> FetchedRange:
        headers = {"Range": wanted, "Accept-Encoding": "identity"}
        with self._guard(), _ask(self._address, headers, self._budget) as answer:
            return self._piece(answer, most)

    def _piece(self, answer: http.client.HTTPResponse, most: int) -> FetchedRange:
        version = _version(answer)
        if answer.status == http.client.PARTIAL_CONTENT:
            found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if found is None:
                raise self._refuse("the server does not say which part of the file it sends", code="wrong-range")
            data = answer.read(most + 1)
            if len(data) > most:
                raise self._other_bytes()
            return FetchedRange(data, int(found[1]), int(found[3]), version)
        length = answer.length
        if length is None or length > _WHOLE_LIMIT:
            what = "the server sends no parts of files, and this one is too large to fetch"
            raise self._refuse(what, hint=_DOWNLOAD, code="no-ranges")
        data = answer.read()
        return FetchedRange(data, 0, len(data), version)


def _version(answer: http.client.HTTPResponse) -> str:
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""


def _ask(address: str, headers: dict[str, str], budget: WaitBudget) -> http.client.HTTPResponse:
    """Ask for an address; its user and password go to its host alone, not to where that redirects to."""
    plain, credentials = _split_credentials(address)
    question = Request(plain, headers={**headers, "User-Agent": f"marpack/{__version__}"})  # noqa: S310 - see opener
    if credentials:
        question.add_unredirected_header("Authorization", credentials)
    answer: http.client.HTTPResponse = opener(budget).open(question, timeout=TIMEOUT)
    return answer


@contextmanager
def _failures(budget: WaitBudget, refuse: Callable[..., NotAnArchiveError]) -> Iterator[None]:
    """Turn whatever goes wrong over http into an error of ours, without what is secret."""
    try:
        yield
    except HTTPError as error:
        with error:
            raise refuse(f"the server answers {error.code} {error.reason}", code="unexpected-status") from None
    except URLError as error:
        raise refuse(f"the server cannot be reached: {error.reason}", code="unreachable") from None
    except http.client.InvalidURL:  # whose text shows the query
        raise refuse("this is no address", code="invalid-address") from None
    except TimeoutError:
        what = f"the server is too slow: it was waited for {budget.spent:.1f} s"
        raise refuse(what, hint=_DOWNLOAD, code="too-slow") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        what = f"the connection fails: {str(error) or type(error).__name__}"
        raise refuse(what, code="connection-failed") from None


def _split_credentials(address: str) -> tuple[str, str | None]:
    """Return an address without its user and password, and these as an Authorization header."""
    parts = urlsplit(address)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return address, None
    token = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {token}"
