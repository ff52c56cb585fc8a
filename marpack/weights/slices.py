"""A part of a file as a file of its own: stored bytes by offset, deflated ones inflated on the way."""

import io
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK = 64 * 1024


class _Readable(io.RawIOBase):
    """A seekable, read-only file whose subclasses know how to read at a position."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        data = self._read_at(min(len(view), self._size - self._at)) if self._at < self._size else b""
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read_at(self, count: int) -> bytes:
        raise NotImplementedError


class _Stored(_Readable):
    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        super().__init__(size)
        self._file = file
        self._offset = offset

    def _read_at(self, count: int) -> bytes:
        self._file.seek(self._offset + self._at)
        return self._file.read(count)


class _Inflated(_Readable):
    """Inflates forward; a seek backward starts over, so readers here go forward."""

    def __init__(self, file: BinaryIO, offset: int, compressed: int, size: int) -> None:
        super().__init__(size)
        self._source = _Stored(file, offset, compressed)
        self._restart()

    def _restart(self) -> None:
        self._source.seek(0)
        self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
        self._done = 0  # inflated bytes handed out or skipped so far

    def _read_at(self, count: int) -> bytes:
        if self._at < self._done:
            self._restart()
        while self._done < self._at:
            if not self._inflate(min(_CHUNK, self._at - self._done)):
                return b""
        return self._inflate(count)

    def _inflate(self, count: int) -> bytes:
        while not self._engine.eof:
            data = self._engine.unconsumed_tail or self._source.read(_CHUNK) or b""
            try:
                out = self._engine.decompress(data, count)
            except zlib.error:
                return b""
            self._done += len(out)
            if out or not data:
                return out
        return b""


def stored(file: BinaryIO, offset: int, size: int) -> BinaryIO:
    """Return bytes [offset, offset + size) of a seekable file as a file; the file stays the caller's."""
    return cast("BinaryIO", _Stored(file, offset, size))  # RawIOBase has read, seek and tell; BinaryIO only names them


def inflated(file: BinaryIO, offset: int, compressed: int, size: int) -> BinaryIO:
    """Return a raw deflate stream as a file of at most `size` bytes; damage reads as its end."""
    return cast("BinaryIO", _Inflated(file, offset, compressed, size))  # as above
