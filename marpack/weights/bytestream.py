"""A seekable file read through one small window: skipped bytes are never read."""

from typing import BinaryIO

_SMALLEST, _LARGEST = 256, 16 * 1024  # bytes per read: short after a jump, longer the longer one reads on


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


class TruncatedError(Exception):
    """The file ends in the middle of something; private to the readers of this package."""


class ByteStream:
    """Bytes in order, with cheap jumps over unneeded ones."""

    __slots__ = ("_file", "_window", "at", "data", "start")

    def __init__(self, file: BinaryIO, offset: int = 0) -> None:
        self._file = file
        self.start = offset  # the file position of data[0]
        self._window = _SMALLEST
        self.data = b""
        self.at = 0
        self.fill(1)

    @property
    def position(self) -> int:
        """Bytes from the file's start to the next byte."""
        return self.start + self.at

    def fill(self, count: int) -> bool:
        """Have `count` bytes from here on in the window; False when the file ends before."""
        if len(self.data) - self.at >= count:
            return True
        self.start += self.at
        rest = self.data[self.at :]
        self._file.seek(self.start + len(rest))
        self.data = rest + self._file.read(max(count - len(rest), self._window))
        self._window = min(self._window * 2, _LARGEST)
        self.at = 0
        return len(self.data) >= count

    def byte(self) -> int:
        """Return the next byte. Raises TruncatedError."""
        if self.at >= len(self.data) and not self.fill(1):
            raise TruncatedError
        self.at += 1
        return self.data[self.at - 1]

    def line(self, longest: int) -> bytes | None:
        """Return the bytes before the next newline, and pass it; None when it is further than `longest` away.

        Where the file ends without one, its last byte is taken for it. Raises TruncatedError at the end.
        """
        size = _SMALLEST
        while (end := self.data.find(b"\n", self.at)) < 0:
            if size > longest:
                return None
            if not self.fill(size):
                break
            size *= 4
        if end < 0 and (end := self.data.find(b"\n", self.at)) < 0:
            end = len(self.data) - 1
        if end < self.at:
            raise TruncatedError
        line, self.at = self.data[self.at : end], end + 1
        return line

    def skip(self, count: int) -> None:
        """Jump over `count` bytes, reading the last of them to check that they exist. Raises TruncatedError."""
        inside = len(self.data) - self.at
        if count <= inside:
            self.at += count
            return
        target = self.position + count - 1
        data = read_at(self._file, target, _SMALLEST)
        if not data:
            raise TruncatedError
        self.start, self._window, self.data, self.at = target, _SMALLEST, data, 1
