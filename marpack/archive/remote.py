"""Bytes of remote files, by range or whole: http and https by `marpack.archive.http`, other addresses by fsspec."""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct

from marpack.archive.addresses import is_http, public_address
from marpack.archive.bytesource import ByteSource
from marpack.archive.http import MAX_WAIT, Deadline, HttpClient, HttpError, HttpResponse, split_credentials
from marpack.errors import DamagedArchiveError, MarpackError, MissingExtraError, NotAnArchiveError, UsageError

_TAIL = 16 * 1024  # bytes of the first request: the directory and the small files are at an archive's end
_MIN_BYTES, _MAX_BYTES = 512, 256 * 1024  # bytes of a later request: few after a jump, more in a sequence
_AHEAD = 8 << 20  # bytes of a request of a whole file
_WHOLE_LIMIT = 32 * 1024 * 1024  # bytes that are fetched at once from a server without range requests
_DOWNLOAD = "Download it, and pass the file."
_CODES = {  # of an HttpError → of the error that replaces it
    "tls-failed": "unreachable",
    "timed-out": "too-slow",
    "https-downgrade": "unexpected-status",
    "insecure-redirect": "unexpected-status",
    "too-many-redirects": "unexpected-status",
}
_BLOCK = 1 << 20  # bytes
MAX_INPUT = 1 << 30  # bytes of one input
Refuse = Callable[[str], MarpackError]  # the message → the error


class FetchedRange(Struct, frozen=True):
    """The bytes of one request."""

    data: bytes
    start: int  # bytes from the file's start
    size: int  # of the whole file
    version: str  # what the server distinguishes versions of the file by, or ""


class Download(Struct, frozen=True):
    """A whole file that is being fetched."""

    where: str  # its address in messages
    size: int | None  # bytes; None: unknown
    version: str  # as in `FetchedRange`
    read: Callable[[int], bytes]  # returns up to so many of the next bytes, none at the end

    def blocks(self, most: int) -> Iterator[bytes]:
        """Yield the bytes, up to `most` at once. Raises DamagedArchiveError for a file that ends early."""
        count = 0
        while block := self.read(most):
            count += len(block)
            yield block
        if self.size is not None and count != self.size:
            what = f"the connection broke off after {count:,} of {self.size:,} bytes"
            raise DamagedArchiveError(what, where=self.where, hint="Try again.")


class Fetch(Protocol):
    """A source of ranges: http or fsspec."""

    def last(self, count: int) -> FetchedRange:
        """Return the last `count` bytes of the file, or all of a shorter one."""

    def part(self, start: int, stop: int) -> FetchedRange:
        """Return the bytes [start, stop)."""

    def close(self) -> None:
        """Close the connections."""


class RemoteFile(ByteSource):
    """A remote file; see `marpack.archive.bytesource.ByteSource`. Fetched bytes are kept."""

    whole = _MIN_BYTES

    def __init__(self, address: str, fetch: Fetch) -> None:
        """Fetch the file's end. Raises NotAnArchiveError for a file that cannot be read by range."""
        self.where = public_address(address)
        self._address = address.partition("#")[0]
        self._fetch = fetch
        self._starts: list[int] = []
        self._pieces: dict[int, bytes] = {}
        first = fetch.last(_TAIL)
        self.size = first.size
        self._version = first.version
        self._next = -1  # the end of the last request
        self._ahead = _MIN_BYTES
        self.fetched = 0  # bytes of all requests together
        self._keep(first)

    @property
    def identity(self) -> str:
        """Identify the file by its whole address, size and version: by a hash, since an address may be secret."""
        return blake2b(f"{self._address}\0{self.size}\0{self._version}".encode(), digest_size=16).hexdigest()

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer's beginning with kept bytes, or fetch some; see `ByteSource.readinto_at`."""
        data, count = b"", len(buffer)
        if offset >= self.size:
            what = f"the archive ends at byte {self.size}, before the end of its contents"
            raise DamagedArchiveError(what, where=self.where)
        before = bisect_right(self._starts, offset) - 1
        if before >= 0:
            start = self._starts[before]
            data = self._pieces[start][offset - start : offset - start + count]
        if not data:
            self._ahead = min(self._ahead * 2, _MAX_BYTES) if offset == self._next else _MIN_BYTES
            following = self._starts[before + 1] if before + 1 < len(self._starts) else self.size
            self._next = min(offset + max(count, self._ahead), following)
            data = self._keep(self._fetch.part(offset, self._next))[:count]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Forget the fetched bytes, and close the connections."""
        self._starts.clear()
        self._pieces.clear()
        self._fetch.close()

    def _keep(self, piece: FetchedRange) -> bytes:
        if (piece.size, piece.version) != (self.size, self._version):
            what = "the archive was replaced while marpack read it"
            raise DamagedArchiveError(what, where=self.where, hint="Try again.", code="file-changed")
        self.fetched += len(piece.data)
        self._pieces[piece.start] = piece.data
        insort(self._starts, piece.start)
        return piece.data


def open_remote(address: str, *, max_wait: float = MAX_WAIT) -> RemoteFile:
    """Open an address (https, s3, …) for reading by range; over http, wait `max_wait` seconds at most in all.

    Raises NotAnArchiveError for a file that cannot be read, MissingExtraError for a missing package.
    """
    with ExitStack() as undo:
        ranges = HttpFetch(address, max_wait) if is_http(address) else _FileSystemFetch(address)
        undo.callback(ranges.close)
        file = RemoteFile(address, ranges)
        undo.pop_all()
    return file


@contextmanager
def open_whole(address: str, client: HttpClient | None = None) -> Iterator[Download]:
    """Open a whole file at an address; raises as `open_remote` does, and so does reading it.

    Over http, a `client` may restrict connections and redirects; it is closed afterwards.
    """
    source = HttpFetch(address, client=client) if is_http(address) else _FileSystemFetch(address)
    with closing(source), source.whole() as download:
        yield download


def fetch(address: str, maximum: int = MAX_INPUT) -> bytes:
    """Return the bytes of an input at an address; raise UsageError for an unreadable one, or one over `maximum`."""
    check_address(address)
    where, data = public_address(address), bytearray()
    try:
        with open_whole(address) as download:
            for block in download.blocks(_BLOCK):
                data += block
                if len(data) > maximum:
                    raise UsageError(f"the input is larger than {maximum:,} bytes", where=where, hint=_DOWNLOAD)
    except (NotAnArchiveError, DamagedArchiveError) as error:
        raise UsageError(error.what, where=where, hint=error.hint, code=error.code) from error
    return bytes(data)


def check_address(address: str) -> None:
    """Raise UsageError for an address of an unsupported kind; nothing is requested."""
    if is_http(address):
        return
    import fsspec  # noqa: PLC0415 - it takes longer to import than a local archive to inspect

    try:
        fsspec.get_filesystem_class(address.partition("://")[0])
    except ImportError as error:
        raise _missing_package(address, error, "the inputs") from error
    except ValueError as error:
        what = f"marpack cannot read addresses of the kind {address.partition('://')[0]}://"
        raise UsageError(what, where=public_address(address), hint=_DOWNLOAD, code="unknown-scheme") from error


def _missing_package(address: str, error: ImportError, what: str) -> MarpackError:
    scheme = address.partition("://")[0]
    need = f"reading {scheme}:// addresses"
    if scheme in ("s3", "s3a"):
        return MissingExtraError("s3fs", "s3", need)
    message, hint = f"{need} needs another package: {error}", f"Install it with pip, or download {what}."
    return UsageError(message, where=public_address(address), hint=hint, code="missing-package")


@contextmanager
def from_file_system(address: str, refuse: Refuse, failing: str, what: str) -> Iterator[None]:
    """Turn every error of fsspec's file systems into an error of ours, without secrets."""
    try:
        yield
    except ImportError as error:
        raise _missing_package(address, error, what) from None
    except Exception as error:  # every file system has errors of its own
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        if isinstance(error, FileNotFoundError) and first in address:  # the message of some is only the path
            first = "the file does not exist"
        raise refuse(f"{failing}: {first.replace(address, public_address(address))}") from error


class _FileSystemFetch:
    """Ranges of a file that fsspec can read, as in s3, gs, az or memory; see `Fetch`."""

    def __init__(self, address: str) -> None:
        import fsspec  # noqa: PLC0415 - as above

        self._where = where = public_address(address)
        refuse = partial(
            NotAnArchiveError, where=where, hint="Check the address, or download the file.", code="fetch-failed"
        )
        self._errors = partial(from_file_system, address, refuse, "it cannot be fetched", "the archive")
        with self._errors():
            self._files, self._path = fsspec.core.url_to_fs(address)
            info = self._files.info(self._path)
        if info.get("type") == "directory" or not isinstance(info.get("size"), int):
            hint = "Name the archive's file, such as s3://BUCKET/model.mar."
            raise NotAnArchiveError("the address is not that of a file", where=where, hint=hint, code="not-a-file")
        self._size: int = info["size"]
        self._version = str(info.get("ETag") or info.get("etag") or info.get("LastModified") or "")

    def last(self, count: int) -> FetchedRange:
        return self.part(max(0, self._size - count), self._size)

    def part(self, start: int, stop: int) -> FetchedRange:
        with self._errors():
            data: bytes = self._files.cat_file(self._path, start=start, end=stop)
        return FetchedRange(data, start, self._size, self._version)

    @contextmanager
    def whole(self) -> Iterator[Download]:
        with self._errors():
            file = self._files.open(self._path, "rb", block_size=_AHEAD, cache_type="readahead")

        def read(count: int) -> bytes:
            with self._errors():
                data: bytes = file.read(count)
            return data

        with file:
            yield Download(self._where, self._size, self._version, read)

    def close(self) -> None:
        pass  # fsspec keeps its connections for the whole process


class HttpFetch:
    """Ranges over http and https; see `Fetch`. Its methods raise NotAnArchiveError and DamagedArchiveError."""

    def __init__(self, address: str, max_wait: float = MAX_WAIT, client: HttpClient | None = None) -> None:
        self._where = public_address(address)
        self._left = max_wait  # seconds for all requests together, without the time between them
        self._client = client or HttpClient()
        with self._errors():
            self._url, self._authorization = split_credentials(address)

    def last(self, count: int) -> FetchedRange:
        """Return the last bytes; see `Fetch`."""
        return self._range(f"bytes=-{count}", count)

    def part(self, start: int, stop: int) -> FetchedRange:
        """Return a range; see `Fetch`."""
        piece = self._range(f"bytes={start}-{stop - 1}", stop - start)
        if piece.start != start or len(piece.data) != min(stop, piece.size) - start:
            raise self._wrong_range()
        return piece

    @contextmanager
    def whole(self) -> Iterator[Download]:
        """Open the whole file."""
        with self._response() as response:
            yield Download(self._where, response.size, response.version, response.read)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextmanager
    def _response(self, **headers: str) -> Iterator[HttpResponse]:
        deadline = Deadline(self._left)
        try:
            with (
                self._errors(),
                self._client.get(
                    self._url, headers=headers, authorization=self._authorization, deadline=deadline
                ) as response,
            ):
                if response.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
                    what = f"the server responds {response.status} {response.reason}"
                    raise HttpError(what, code="unexpected-status")
                yield response
        finally:
            self._left = min(self._left, deadline.left)

    def _range(self, wanted: str, most: int) -> FetchedRange:
        with self._response(Range=wanted) as response:
            if response.status == HTTPStatus.PARTIAL_CONTENT:
                if response.content_range is None:
                    what = "the server does not state which part of the file it sends"
                    raise HttpError(what, hint=_DOWNLOAD, code="wrong-range")
                data = response.read_up_to(most + 1)
                if len(data) > most:
                    raise self._wrong_range()
                return FetchedRange(data, *response.content_range, response.version)
            if response.size is None or response.size > _WHOLE_LIMIT:
                what = "the server does not support range requests, and the file is too large to fetch"
                raise HttpError(what, hint=_DOWNLOAD, code="no-ranges")
            data = response.read_up_to(response.size)
            return FetchedRange(data, 0, len(data), response.version)

    def _wrong_range(self) -> DamagedArchiveError:
        what = "the server sends other bytes than the requested ones"
        return DamagedArchiveError(what, where=self._where, hint=_DOWNLOAD, code="wrong-range")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except HttpError as error:
            code = _CODES.get(error.code, error.code)
            hint = _DOWNLOAD if code == "too-slow" else error.hint
            raise NotAnArchiveError(error.what, where=self._where, hint=hint, code=code) from None
