"""A .gz file's one stream, inflated in order within the limits."""

from collections.abc import Iterator

from isal import isal_zlib

from marpack.archive.bytesource import ByteSource
from marpack.archive.limits import Limits
from marpack.errors import DamagedArchiveError, LimitExceededError, UnsafeArchiveError

_READ, _BLOCK = 1 << 18, 1 << 20  # bytes asked of the file, of the inflater
_GZIP = 31  # zlib's code for a gzip header and trailer with the largest window
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance


class GzipStream:
    """Gives the uncompressed bytes from the first to the last; raises ArchiveError, never anything else."""

    def __init__(self, data: ByteSource, limits: Limits) -> None:
        """Start at the beginning."""
        self._data = data
        self._limits = limits
        self._inflater = isal_zlib.decompressobj(_GZIP)
        self._place = 0  # in the file
        self._given = 0  # bytes inflated
        self._block = memoryview(b"")

    def read(self, count: int) -> bytes:
        """Return exactly `count` bytes, or fewer at the stream's end."""
        return b"".join(map(bytes, self._pieces(count)))

    def blocks(self, count: int) -> Iterator[memoryview]:
        """Yield the next `count` bytes; raises DamagedArchiveError if the stream ends before."""
        for piece in self._pieces(count):
            count -= len(piece)
            yield piece
        if count:
            raise self._damaged("ends in the middle of a member")

    def finish(self) -> None:
        """Read to the end; raises UnsafeArchiveError unless nothing but zero bytes is left."""
        while block := self._next():
            if bytes(block).lstrip(b"\0"):
                raise UnsafeArchiveError("there are bytes after the archive's last record", where=self._data.where)
        rest = self._inflater.unused_data + self._data.read_at(self._place, min(_READ, self._data.size - self._place))
        if self._place + _READ < self._data.size or rest.lstrip(b"\0"):
            raise UnsafeArchiveError(
                "there are bytes after the end of the gzip stream; the server reads only the first stream",
                where=self._data.where,
                hint="compress it again as one stream",
            )

    def _pieces(self, count: int) -> Iterator[memoryview]:
        while count and (self._block or self._fill()):
            piece, self._block = self._block[:count], self._block[count:]
            count -= len(piece)
            yield piece

    def _fill(self) -> bool:
        self._block = self._next()
        return bool(self._block)

    def _next(self) -> memoryview:
        """Return what is left of the last block, else the next one, empty at the end."""
        block, self._block = self._block, memoryview(b"")
        while not block and not self._inflater.eof:
            block = memoryview(self._inflate())
            self._given += len(block)
            self._check()
        return block

    def _inflate(self) -> bytes:
        pending = self._inflater.unconsumed_tail
        if not pending:
            pending = self._data.read_at(self._place, min(_READ, self._data.size - self._place))
            self._place += len(pending)
        try:
            block: bytes = self._inflater.decompress(pending, _BLOCK)
        except _InflateError as error:
            raise self._damaged(f"cannot be inflated: {error}") from None
        if not pending and not block and not self._inflater.eof:
            raise self._damaged("is truncated")
        return block

    def _check(self) -> None:
        limits = self._limits
        if self._given > limits.total + limits.allowance:
            raise LimitExceededError(
                f"the gzip stream holds more than {limits.total} bytes",
                where=self._data.where,
                hint="raise the limit if you trust it: --max-size",
            )
        if limits.expands_too_much(self._given, self._data.size):
            raise LimitExceededError(
                f"the gzip stream expands {self._data.size} bytes more than {limits.ratio} times",
                where=self._data.where,
                hint="raise the limit if you trust it: --max-ratio",
            )

    def _damaged(self, trouble: str) -> DamagedArchiveError:
        return DamagedArchiveError(
            f"the gzip stream {trouble}", where=self._data.where, hint="copy or download the archive again"
        )
