"""Where an archive's bytes come from, read by range: a local file, or an address elsewhere."""

import os
import stat
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from marpack.errors import DamagedArchiveError, NotAnArchiveError

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO or a terminal must not hang us


class ByteSource(Protocol):
    """Bytes of a known number, read at any offset, from several threads at once."""

    whole: int  # bytes up to which a member is read, and its CRC checked, when it is opened

    @property
    def where(self) -> str:
        """What messages call it: its path or address."""

    @property
    def size(self) -> int:
        """How many bytes there are."""

    @property
    def identity(self) -> str:
        """Name these very bytes: other bytes, here or elsewhere, have another name."""

    def read_at(self, offset: int, count: int) -> bytes:
        """Return exactly `count` bytes; raises DamagedArchiveError when they are not there (any more)."""

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer's beginning; return how many bytes came, at least one.

        Raises DamagedArchiveError when there are none.
        """

    def close(self) -> None:
        """Let go of the file or the connection."""


class LocalFile:
    """A regular file on this machine."""

    whole = 1 << 22

    def __init__(self, path: Path) -> None:
        """Open the file; raises NotAnArchiveError if it is none or cannot be read."""
        try:
            self._fd = os.open(path, _OPEN)
        except OSError as error:
            raise NotAnArchiveError(f"the archive cannot be opened: {error.strerror}", where=str(path)) from None
        self._where = str(path)
        self._path = path.resolve()
        self.status = os.fstat(self._fd)
        self.size = self.status.st_size  # bytes, when it was opened
        if not stat.S_ISREG(self.status.st_mode):
            self.close()
            raise NotAnArchiveError("this is neither a file nor a folder", where=str(path))

    @property
    def where(self) -> str:
        """The path as it was given."""
        return self._where

    @property
    def identity(self) -> str:
        """Name the file by its path, device, inode, size and times."""
        status = self.status
        parts = (self._path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return blake2b("\0".join(map(str, parts)).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    @property
    def fd(self) -> int:
        """The file descriptor, for what only a local file can: cloning its blocks."""
        return self._fd

    def read_at(self, offset: int, count: int) -> bytes:
        """Return exactly `count` bytes; see `ByteSource.read_at`."""
        data = bytearray(count)
        left = memoryview(data)
        while left:
            got = self.readinto_at(offset + count - len(left), left)
            left = left[got:]
        return bytes(data)

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer's beginning; see `ByteSource.readinto_at`."""
        try:
            count = os.preadv(self._fd, [buffer], offset)
        except OSError as error:
            raise self._damaged(f"cannot be read at byte {offset}: {error.strerror}") from None
        if not count:
            raise self._damaged(f"ends at byte {offset}, in the middle of what it promises")
        return count

    def _damaged(self, trouble: str) -> DamagedArchiveError:
        return DamagedArchiveError(f"the archive {trouble}", where=self.where, hint="copy or download it again")

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
