"""An archive elsewhere, read by range: http and https with the standard library, every other address through fsspec."""

from bisect import bisect_right, insort
from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

from marpack.errors import DamagedArchiveError, MarpackError, MissingExtraError, NotAnArchiveError, UsageError

_TAIL = 16 * 1024  # bytes of the first request: the directory and the small files lie at an archive's end
_LEAST, _MOST = 512, 256 * 1024  # bytes of a later one: little after a jump, more the longer one reads on


class Piece(Struct, frozen=True):
    """What one request brought."""

    data: bytes
    start: int  # bytes from the file's start
    size: int  # of the whole file
    version: str  # what the server tells versions of the file apart by; "" if it does not


class Fetch(Protocol):
    """How to get bytes from somewhere; its two bodies are http and fsspec."""

    def last(self, count: int) -> Piece:
        """Return the last `count` bytes of the file, or all of a shorter one."""

    def part(self, start: int, stop: int) -> Piece:
        """Return the bytes [start, stop)."""


class RemoteFile:
    """A file elsewhere; see `marpack.archive.bytesource.ByteSource`. What was fetched is kept."""

    whole = _LEAST

    def __init__(self, where: str, fetch: Fetch) -> None:
        """Fetch the file's end. Raises NotAnArchiveError when there is nothing that can be read by range."""
        self.where = where
        self._fetch = fetch
        self._starts: list[int] = []
        self._pieces: dict[int, bytes] = {}
        first = fetch.last(_TAIL)
        self.size = first.size
        self._version = first.version
        self._next = -1  # where the last request ended
        self._ahead = _LEAST
        self.fetched = 0  # bytes of all requests together
        self._keep(first)

    @property
    def identity(self) -> str:
        """Name the file by its address, size and version."""
        return blake2b(f"{self.where}\0{self.size}\0{self._version}".encode(), digest_size=16).hexdigest()

    def read_at(self, offset: int, count: int) -> bytes:
        """Return exactly `count` bytes; see `ByteSource.read_at`."""
        parts = []
        while count:
            part = self._at(offset, count)
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return b"".join(parts)

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
        self._ahead = min(self._ahead * 2, _MOST) if offset == self._next else _LEAST
        following = self._starts[before + 1] if before + 1 < len(self._starts) else self.size
        stop = min(offset + max(count, self._ahead), following)
        self._next = stop
        return self._keep(self._fetch.part(offset, stop))[:count]

    def _keep(self, piece: Piece) -> bytes:
        if (piece.size, piece.version) != (self.size, self._version):
            raise DamagedArchiveError("the archive was replaced while it was read", where=self.where, hint="try again")
        self.fetched += len(piece.data)
        self._pieces[piece.start] = piece.data
        insort(self._starts, piece.start)
        return piece.data


def open_remote(address: str) -> RemoteFile:
    """Open an address (https, s3, …) for reading by range.

    Raises NotAnArchiveError when there is nothing to read, MissingExtraError when reading it takes another package.
    """
    if address.lower().startswith(("http://", "https://")):
        from marpack.archive.http import HttpFetch  # noqa: PLC0415 - local archives need no network

        return RemoteFile(public_address(address), HttpFetch(address))
    return RemoteFile(public_address(address), FileSystemFetch(address))


def public_address(address: str) -> str:
    """Return an address without what may be secret in it: user, password and query."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    path, question, _ = path.partition("?")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}{question and '?…'}"


class FileSystemFetch:
    """Ranges of a file that fsspec knows how to reach, as s3, gs, az or memory."""

    def __init__(self, address: str) -> None:
        """Find the file system and the file's size. Raises NotAnArchiveError, MissingExtraError."""
        import fsspec  # noqa: PLC0415 - it takes longer to import than a local archive to inspect

        self._where = public_address(address)
        scheme = address.partition("://")[0]
        try:
            self._files, self._path = fsspec.core.url_to_fs(address)
            info = self._files.info(self._path)
        except ImportError as error:
            raise _missing(scheme, error) from None
        except Exception as error:
            raise _unreachable(error, self._where) from error
        if info.get("type") == "directory" or not isinstance(info.get("size"), int):
            raise NotAnArchiveError("this is no file", where=self._where, hint="name the archive itself")
        self._size: int = info["size"]
        self._version = str(info.get("ETag") or info.get("etag") or info.get("LastModified") or "")

    def last(self, count: int) -> Piece:
        """Return the last bytes; see `Fetch`."""
        return self.part(max(0, self._size - count), self._size)

    def part(self, start: int, stop: int) -> Piece:
        """Return a range; see `Fetch`."""
        try:
            data: bytes = self._files.cat_file(self._path, start=start, end=stop)
        except Exception as error:
            raise _unreachable(error, self._where) from error
        return Piece(data, start, self._size, self._version)


def _missing(scheme: str, error: ImportError) -> MarpackError:
    need = f"reading {scheme}:// addresses"
    if scheme in ("s3", "s3a"):
        return MissingExtraError("s3fs", "s3", need)
    return UsageError(f"{need} takes another package: {error}", hint="pip install it, or download the archive")


def _unreachable(error: Exception, where: str) -> NotAnArchiveError:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return NotAnArchiveError(f"it cannot be fetched: {text}", where=where, hint="check the address, or download it")
