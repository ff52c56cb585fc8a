"""Bytes copied, CRC-32 and SHA-256 taken on the way; the SHA-256 in a thread of its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from hashlib import sha512
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO, Protocol

from isal import isal_zlib
from msgspec import Struct

from marpack.errors import BuildError

if TYPE_CHECKING:
    from hashlib import _Hash

BLOCK = 1 << 20  # bytes; small enough for a core's cache, large enough to make a hand-over between threads cheap
_RING = 4  # blocks in flight
# Bytes, written at a multiple of themselves: then each is one run of memory in the page cache. Out of step it is many,
# which costs more; and larger ones want runs of free memory that are hard to find, and wait for them.
_WRITE = 1 << 16
_ZEROS = bytes(BLOCK)

Write = Callable[[memoryview], object]


class Source(Protocol):
    """A source of a member's bytes, such as `io.BytesIO` or a raw file."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer from its start; return how many bytes came, 0 at the end."""


class Checksums(Struct, frozen=True):
    """Checksums of copied bytes."""

    crc: int  # CRC-32
    sha256: str  # hex


class Copier(AbstractContextManager["Copier"]):
    """Copies members one after another, and hashes them (SHA-256) in a second thread.

    SHA-256 costs more than everything else together, so it alone has a thread, with buffers that go round between it
    and the reader. The hashed bytes are the written bytes, from one buffer: whatever happens to the source meanwhile,
    an archive never contradicts its own digests. `copy_file_range` cannot guarantee that and saves no time.
    """

    def __init__(self) -> None:
        self._free: SimpleQueue[bytearray] = SimpleQueue()
        self._made = 0  # buffers
        # The CRC's instructions leave a thread's vector registers, and those of every thread begun from there, in a
        # state in which SHA-256 takes longer. OpenSSL's SHA-512 leaves them as they should be.
        self._pool = ThreadPoolExecutor(1, "marpack-sha256", sha512, (bytes(4096),))  # its thread begins when needed

    def read(
        self, sha: _Hash, fill: Callable[[memoryview], int], maximum: int = BLOCK, *, at_once: bool = False
    ) -> tuple[bytearray, memoryview]:
        """Fill a buffer of up to `maximum` bytes and have it hashed; return the buffer, and the filled part of it.

        Both are the caller's until the next call: a buffer goes round behind all the others. `fill` reads into a block
        from its start, and returns its count. With `at_once`, hash here, which is faster for a single block.
        """
        if self._made < _RING and self._free.empty():
            self._made += 1
            self._free.put(bytearray(BLOCK))
        buffer = self._free.get()
        with ExitStack() as undo:
            undo.callback(self._free.put, buffer)
            block = memoryview(buffer)[: fill(memoryview(buffer)[:maximum])]
            undo.pop_all()
        if at_once:
            self._hash(sha, buffer, block)
        else:
            self._pool.submit(self._hash, sha, buffer, block)
        return buffer, block

    def _hash(self, sha: _Hash, buffer: bytearray, block: memoryview) -> None:
        sha.update(block)
        self._free.put(buffer)

    def join(self) -> None:
        """Wait until everything is hashed."""
        for buffer in [self._free.get() for _ in range(self._made)]:
            self._free.put(buffer)

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def copy(
        self, source: Source, size: int, write: Write, *, skip: Callable[[int], object] | None = None, offset: int = 0
    ) -> Checksums:
        """Copy exactly `size` bytes; `offset` is where they begin in the output.

        The memory that `write` gets is used again afterwards. `skip` moves on by a number of zeros instead of writing
        them, so that sparse files stay sparse.

        Raises BuildError if the source ends early.
        """
        crc = 0
        fill = partial(_fill, source)
        sha = hashlib.sha256()
        place, end = offset, offset + size
        while place < end:
            maximum = min(BLOCK - place % BLOCK, end - place)
            buffer, block = self.read(sha, fill, maximum, at_once=size <= BLOCK)
            crc = isal_zlib.crc32(block, crc)
            if skip and len(block) == BLOCK and buffer == _ZEROS:
                skip(BLOCK)
                place += BLOCK
                continue
            while block:  # in pieces that end where the output reaches a multiple of _WRITE
                count = _WRITE - place % _WRITE
                write(block[:count])
                place += len(block[:count])
                block = block[count:]
        self.join()
        return Checksums(crc, sha.hexdigest())


def file_digest(path: Path, progress: Callable[[int], object] | None = None) -> str:
    """Return the SHA-256 of a file, lower-case hex; `progress` is called with numbers of bytes. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        return stream_digest(file, os.fstat(file.fileno()).st_size, progress)


def stream_digest(file: BinaryIO, size: int, progress: Callable[[int], object] | None = None) -> str:
    """Read a file of about `size` bytes to its end and return its SHA-256, lower-case hex."""
    sha = hashlib.sha256()
    fill = file.readinto  # type: ignore[attr-defined]  # every file has it, but not the type BinaryIO
    with Copier() as copier:
        while block := copier.read(sha, fill, at_once=size <= BLOCK)[1]:
            if progress is not None:
                progress(len(block))
        copier.join()
    return sha.hexdigest()


def _fill(source: Source, block: memoryview) -> int:
    """Fill a block whole, however few bytes come at a time; return its size."""
    size = len(block)
    while block:
        count = source.readinto(block)
        if not count:
            raise BuildError("a member's bytes ended before its size was reached")
        block = block[count:]
    return size
