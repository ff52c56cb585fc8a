"""Bytes of a known number, read at any offset: files, parts of files, decompressed bytes."""

import io
import os
import stat
from collections.abc import Callable, Iterator
from functools import reduce
from hashlib import blake2b
from operator import or_
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Protocol, cast

from marpack.errors import ArchiveError, DamagedArchiveError, NotAnArchiveError, convert_os_errors, describe_os_error

# A FIFO or a terminal must not hang the reader; Windows would open the file as text.
_FLAGS = ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")
_OPEN = reduce(or_, (getattr(os, name, 0) for name in _FLAGS), os.O_RDONLY)
_SEEKING = Lock()
_IN_MEMORY = 1 << 26  # decompressed bytes, beyond which they are in a file
CHECK_PATH = "Check the path and its permissions."  # the remedy for a file that the system does not open
_SMALL = 4096  # bytes of a range that is read at once
BLOCK = 1 << 16  # bytes; larger writes need larger runs of free memory for the page cache, and wait for them


class ByteSource(Protocol):
    """Bytes of a known number, read at any offset, from several threads at once."""

    whole: int  # bytes up to which a member is read, and its CRC checked, when it is opened

    where: str  # what messages call it: its path or address
    size: int  # bytes

    @property
    def identity(self) -> str:
        """Name these very bytes: other bytes, here or elsewhere, have another name."""

    def read_at(self, offset: int, count: int) -> bytes:
        """Return exactly `count` bytes; raises DamagedArchiveError if the source ends before."""
        data = bytearray(count)
        left = memoryview(data)
        while left:
            got = self.readinto_at(offset + count - len(left), left)
            left = left[got:]
        return bytes(data)

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer's beginning; return how many bytes came, at least one.

        Raises DamagedArchiveError when there are none.
        """

    def close(self) -> None:
        """Release the file or the connection."""


class LocalFile(ByteSource):
    """A regular file on this machine."""

    whole = 1 << 22

    def __init__(self, path: Path) -> None:
        """Open the file; raises NotAnArchiveError if it is not a regular file, or cannot be read."""
        with convert_os_errors(NotAnArchiveError, "the archive cannot be opened", where=str(path), hint=CHECK_PATH):
            self.fd = os.open(path, _OPEN)  # for cloning its blocks
        self.where = str(path)
        self._path = path.resolve()
        self.status = os.fstat(self.fd)
        self.size = self.status.st_size  # when it was opened
        if not stat.S_ISREG(self.status.st_mode):
            self.close()
            raise NotAnArchiveError("this is neither a file nor a folder", where=str(path), code="not-a-file")

    @property
    def identity(self) -> str:
        """Name the file by its path, device, inode, size and times."""
        status = self.status
        parts = (self._path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return blake2b("\0".join(map(str, parts)).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer's beginning; see `ByteSource.readinto_at`."""
        try:
            if hasattr(os, "preadv"):
                count = os.preadv(self.fd, [buffer], offset)
            else:
                with _SEEKING:  # Windows has one place per file
                    os.lseek(self.fd, offset, os.SEEK_SET)
                    data = os.read(self.fd, len(buffer))
                count = len(data)
                buffer[:count] = data
        except OSError as error:
            what = f"the archive cannot be read at byte {offset}: {describe_os_error(error)}"
            raise DamagedArchiveError(what, where=self.where) from None
        if not count:
            what = f"the archive ends at byte {offset}, before the end of its contents"
            raise DamagedArchiveError(what, where=self.where)
        return count

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class RangeFile(io.RawIOBase):
    """A seekable, read-only file of `size` bytes, read at a position by a function."""

    def __init__(
        self, size: int, fill: Callable[[int, memoryview], int], release: Callable[[], object] | None = None
    ) -> None:
        """Take the size in bytes, and two functions.

        `fill` reads from an offset into the beginning of a view, which ends within the size, and returns its count;
        `release` is called when the file is closed.
        """
        super().__init__()
        self._size = size
        self._fill = fill
        self._release = release
        self._place = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move, and return the new position in bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._place = base + offset
        return self._place

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # collections.abc.Buffer needs 3.12
        """Fill the buffer's beginning; return how many bytes came."""
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._place)]
        count = self._fill(self._place, view) if view else 0
        self._place += count
        return count

    def close(self) -> None:
        """Close the file, and release its source."""
        if self._release is not None and not self.closed:
            self._release()
        super().close()


def read_blocks(fill: Callable[[int, memoryview], int], offset: int, size: int) -> Iterator[memoryview]:
    """Yield `size` bytes from `offset` on, or fewer at the end; the next block overwrites each block."""
    buffer = memoryview(bytearray(min(size, BLOCK)))
    while size > 0 and (count := fill(offset, buffer[:size])):
        yield buffer[:count]
        offset, size = offset + count, size - count


class Spool:
    """Decompressed bytes: in memory, or in an unnamed temporary file if there are many; `close` deletes them."""

    def __init__(self) -> None:
        import tempfile  # noqa: PLC0415 - compressed archives only

        self.size = 0
        self._lock = Lock()
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="marpack-")  # noqa: SIM115 - see `close`

    def write(self, block: bytes | memoryview) -> None:
        """Append bytes; raises ArchiveError if the disk is full."""
        self.size += len(block)
        try:
            self._file.write(block)
            self._file.flush()
        except OSError as error:
            what = f"the archive cannot be decompressed into a temporary file: {describe_os_error(error)}"
            raise ArchiveError(
                what, hint="Free space on its disk, or set TMPDIR to a folder on another disk."
            ) from error

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer's beginning; return how many bytes came, 0 at the end."""
        with self._lock:
            self._file.seek(offset)
            return self._file.readinto(buffer)

    def blocks(self, offset: int, size: int) -> Iterator[memoryview]:
        """Yield bytes as `read_blocks` does."""
        return read_blocks(self.readinto_at, offset, size)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes, or fewer at the end."""
        return b"".join(map(bytes, self.blocks(offset, size)))

    def open(self, offset: int, size: int, release: Callable[[], object] | None = None) -> BinaryIO:
        """Open a part of the bytes as a file; `release` is called when it is closed."""
        return io.BufferedReader(RangeFile(size, lambda place, view: self.readinto_at(offset + place, view), release))

    def close(self) -> None:
        """Delete the bytes."""
        self._file.close()


def reaches(file: BinaryIO, place: int) -> bool:
    """Move to a place that a file names itself; False for one beyond what a file can be, here or anywhere."""
    try:
        file.seek(place)
    except (OSError, OverflowError, ValueError):  # each file system has a bound of its own, and so has Python
        return False
    return True


def read_at(file: BinaryIO, place: int, count: int) -> bytes:
    """Return up to `count` bytes from a place that a file names itself; none where it ends before."""
    return file.read(count) if reaches(file, place) else b""


def open_range(file: BinaryIO, offset: int, size: int) -> BinaryIO:
    """Return bytes [offset, offset + size) of a seekable file as a file; the file stays the caller's.

    Few bytes are read at once, and are fewer if the file ends before.
    """
    if size <= _SMALL:
        return io.BytesIO(read_at(file, offset, size))

    def fill(place: int, view: memoryview) -> int:
        count: int = file.readinto(view) if reaches(file, offset + place) else 0  # type: ignore[attr-defined]
        return count

    return cast("BinaryIO", RangeFile(size, fill))  # RawIOBase has read, seek and tell; BinaryIO only names them
