"""One pass over a member's bytes: copied, CRC-32 and SHA-256 taken on the way, through fixed buffers."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self

from isal import isal_zlib
from msgspec import Struct

from marpack.errors import BuildError

BLOCK = 1 << 20  # bytes; small enough for a core's cache, large enough to make a hand-over between threads cheap
_WRITE = 1 << 16  # bytes; larger writes want larger runs of free memory for the page cache, and wait for them
_RING = 4  # blocks in flight
_ZEROS = bytes(BLOCK)

Write = Callable[[memoryview], object]


class Source(Protocol):
    """Where a member's bytes come from; `io.BytesIO` and raw files are some."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer from its start; return how many bytes came, 0 at the end."""


class Sums(Struct, frozen=True):
    """What was learnt while copying."""

    crc: int  # CRC-32
    sha256: str  # hex


class Copier:
    """Copies members one after another, with one thread beside it for SHA-256.

    SHA-256 costs more than everything else together, so it alone has a thread; reading, CRC and writing
    share the caller's. All of them let go of the GIL. The bytes summed are the very bytes written, from one buffer:
    whatever happens to the source meanwhile, an archive never contradicts its own digests. (That is what keeps
    `copy_file_range` out: the kernel would copy at one moment and we would read at another. It saves no time either.)
    """

    def __init__(self) -> None:
        self._ring = [bytearray(BLOCK) for _ in range(_RING)]
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="marpack-sha256")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def copy(self, source: Source, size: int, write: Write, *, skip: Callable[[int], object] | None = None) -> Sums:
        """Copy exactly `size` bytes.

        Args:
            source: Is read by `readinto` until `size` bytes have come.
            size: Bytes.
            write: Takes a block; the memory is used again afterwards, so it must not keep it.
            skip: Moves on by a number of bytes that are all zero, instead of writing them: sparse files stay so.

        Raises BuildError if the source ends early.
        """
        crc = 0
        sha = hashlib.sha256()
        in_flight: deque[Future[None]] = deque()
        for buffer, count in self._blocks(source, size, in_flight):
            block = memoryview(buffer)[:count]
            if size > BLOCK:
                in_flight.append(self._pool.submit(sha.update, block))
            else:
                sha.update(block)
            crc = isal_zlib.crc32(block, crc)
            if skip and count == BLOCK and buffer == _ZEROS:
                skip(count)
            else:
                for start in range(0, count, _WRITE):
                    write(block[start : start + _WRITE])
        for future in in_flight:
            future.result()
        return Sums(crc, sha.hexdigest())

    def _blocks(self, source: Source, size: int, in_flight: deque[Future[None]]) -> Iterator[tuple[bytearray, int]]:
        """Read block by block, each into a buffer whose last content is hashed already."""
        for number, start in enumerate(range(0, size, BLOCK)):
            if len(in_flight) == _RING:
                in_flight.popleft().result()
            buffer = self._ring[number % _RING]
            count = min(BLOCK, size - start)
            _fill(source, memoryview(buffer)[:count])
            yield buffer, count


def _fill(source: Source, block: memoryview) -> None:
    while block:
        count = source.readinto(block)
        if not count:
            raise BuildError("a member's bytes ended before its size was reached")
        block = block[count:]
