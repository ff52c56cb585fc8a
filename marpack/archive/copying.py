"""One pass over a member's bytes: copied, CRC-32 and SHA-256 taken on the way, through fixed buffers."""

import hashlib
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Protocol, Self

from isal import isal_zlib
from msgspec import Struct

from marpack.errors import BuildError

BLOCK = 1 << 20  # bytes; small enough for a core's cache, large enough to make a hand-over between threads cheap
# Bytes, written at a multiple of themselves: then each is one run of memory in the page cache. Out of step it is many,
# which costs half as much again; and larger ones want runs of free memory that are hard to find, and wait for them.
_WRITE = 1 << 16
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
        self._hasher = _Hasher()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hasher.close()

    def copy(
        self,
        source: Source,
        size: int,
        write: Write,
        *,
        skip: Callable[[int], object] | None = None,
        offset: int = 0,
    ) -> Sums:
        """Copy exactly `size` bytes.

        Args:
            source: Is read by `readinto` until `size` bytes have come.
            size: Bytes.
            write: Takes a block; the memory is used again afterwards, so it must not keep it.
            skip: Moves on by a number of bytes that are all zero, instead of writing them: sparse files stay so.
            offset: Where in the output the bytes begin.

        Raises BuildError if the source ends early; the copier is of no use afterwards.
        """
        crc = 0
        sha = hashlib.sha256()
        place, end = offset, offset + size
        while place < end:
            buffer = self._hasher.free()
            block = memoryview(buffer)[: min(BLOCK - place % BLOCK, end - place)]
            _fill(source, block)
            if size > BLOCK:
                self._hasher.put(sha, buffer, block)
            else:
                sha.update(block)
                self._hasher.put_back(buffer)
            crc = isal_zlib.crc32(block, crc)
            if skip and len(block) == BLOCK and buffer == _ZEROS:
                skip(BLOCK)
            else:
                _write(block, place, write)
            place += len(block)
        self._hasher.join()
        return Sums(crc, sha.hexdigest())


class _Hasher:
    """A thread that hashes blocks in their order, and the buffers that go round between it and the copier.

    A buffer is free again when it is hashed. The copier may still be writing it by then; it asks for the next one
    afterwards.
    """

    def __init__(self) -> None:
        self._free: SimpleQueue[bytearray] = SimpleQueue()
        self._work: SimpleQueue[tuple[hashlib._Hash, bytearray, memoryview] | None] = SimpleQueue()
        for _ in range(_RING):
            self._free.put(bytearray(BLOCK))
        # Begun before the first CRC is taken: its instructions leave a thread's vector registers, and those of every
        # thread begun from there, in a state in which SHA-256 takes a third longer.
        self._thread = Thread(target=self._run, name="marpack-sha256", daemon=True)
        self._thread.start()

    def free(self) -> bytearray:
        """Return a buffer of BLOCK bytes, waiting for one if need be."""
        return self._free.get()

    def put_back(self, buffer: bytearray) -> None:
        """Give back a buffer that is not to be hashed here."""
        self._free.put(buffer)

    def put(self, sha: "hashlib._Hash", buffer: bytearray, block: memoryview) -> None:
        """Leave a block, some of a buffer, to be hashed."""
        self._work.put((sha, buffer, block))

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            sha, buffer, block = item
            sha.update(block)
            self._free.put(buffer)

    def join(self) -> None:
        """Wait until everything is hashed."""
        for buffer in [self._free.get() for _ in range(_RING)]:
            self._free.put(buffer)

    def close(self) -> None:
        """End the thread, once it has hashed what it was given."""
        self._work.put(None)
        self._thread.join()


def _write(block: memoryview, place: int, write: Write) -> None:
    """Write a block in pieces that end where the output reaches a multiple of _WRITE."""
    while block:
        count = _WRITE - place % _WRITE
        write(block[:count])
        block, place = block[count:], place + count


def _fill(source: Source, block: memoryview) -> None:
    while block:
        count = source.readinto(block)
        if not count:
            raise BuildError("a member's bytes ended before its size was reached")
        block = block[count:]
