"""SHA-256 in a thread of its own, of blocks that whoever reads them uses meanwhile."""

from __future__ import annotations

from hashlib import sha512
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import _Hash
    from types import TracebackType

BLOCK = 1 << 20  # bytes; small enough for a core's cache, large enough to make a hand-over between threads cheap
_RING = 4  # blocks in flight


class Hasher:
    """A thread that hashes blocks in their order, and the buffers that go round between it and the reader."""

    def __init__(self) -> None:
        self._free: SimpleQueue[bytearray] = SimpleQueue()
        self._work: SimpleQueue[tuple[_Hash, bytearray, memoryview] | None] = SimpleQueue()
        self._made = 0  # buffers
        self._thread: Thread | None = None  # of small members there may be thousands, which need none

    def read(
        self, sha: _Hash, fill: Callable[[memoryview], int], most: int = BLOCK, *, at_once: bool = False
    ) -> tuple[bytearray, memoryview]:
        """Fill a buffer and have it hashed; return the buffer, and as much of it as was filled.

        Both are the caller's until the next call: a buffer goes round behind all the others.

        Args:
            sha: What the bytes are for.
            fill: Reads into a block from its start, and returns how many bytes came.
            most: Bytes.
            at_once: Hash here and now, which for a single block is sooner done.

        """
        buffer = self._buffer()
        try:
            block = memoryview(buffer)[: fill(memoryview(buffer)[:most])]
        except BaseException:
            self._free.put(buffer)
            raise
        if at_once:
            sha.update(block)
            self._free.put(buffer)
        else:
            self._begin()
            self._work.put((sha, buffer, block))
        return buffer, block

    def _buffer(self) -> bytearray:
        if self._made < _RING and self._free.empty():
            self._made += 1
            return bytearray(BLOCK)
        return self._free.get()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="marpack-sha256", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        # The CRC's instructions leave a thread's vector registers, and those of every thread begun from there, in a
        # state in which SHA-256 takes longer. OpenSSL's SHA-512 leaves them as they should be.
        sha512(bytes(4096))
        while (item := self._work.get()) is not None:
            sha, buffer, block = item
            sha.update(block)
            self._free.put(buffer)

    def join(self) -> None:
        """Wait until everything is hashed."""
        for buffer in [self._free.get() for _ in range(self._made)]:
            self._free.put(buffer)

    def close(self) -> None:
        """End the thread, once it has hashed what it was given."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
