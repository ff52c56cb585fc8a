"""One member of a zip, block by block or as a seekable file, held against its CRC."""

import io
from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO

from isal import isal_zlib

from marpack.archive.bytesource import ByteSource, RangeFile, Spool, SpooledFile
from marpack.archive.names import quoted
from marpack.archive.zip_directory import ZipMember
from marpack.errors import DamagedArchiveError

BLOCK = 1 << 16  # bytes; larger writes want larger runs of free memory for the page cache, and wait for them
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance
_FETCH = "copy or download the archive again"


def member_blocks(data: ByteSource, member: ZipMember) -> Iterator[memoryview]:
    """Yield a member's uncompressed bytes; each block is good until the next one is asked for.

    Raises DamagedArchiveError at the latest after the last block, when the size or the CRC is not the directory's.
    """
    crc = size = 0
    for block in _stored(data, member) if member.stored else _inflated(data, member):
        crc = isal_zlib.crc32(block, crc)
        size += len(block)
        yield block
    if size != member.size or crc != member.crc:
        raise wrong_bytes(data, member)


def wrong_bytes(data: ByteSource, member: ZipMember) -> DamagedArchiveError:
    """Say that a member's bytes are not those that were packed."""
    return DamagedArchiveError(
        f"the bytes of the member {quoted(member.name)} do not match the CRC or size recorded for them",
        where=data.where,
        hint=_FETCH,
    )


def _stored(data: ByteSource, member: ZipMember) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(BLOCK, member.size)))
    place, end = member.offset, member.offset + member.size
    while place < end:
        count = data.readinto_at(place, buffer[: end - place])
        yield buffer[:count]
        place += count


def _inflated(data: ByteSource, member: ZipMember) -> Iterator[memoryview]:
    """Inflate, never giving more than the size that the directory promised and the limits were checked against."""
    inflater = isal_zlib.decompressobj(-15)
    left = member.size
    place, end = member.offset, member.offset + member.compressed_size
    pending = b""
    finished = False
    while not finished:
        if not pending and place < end:
            pending = data.read_at(place, min(BLOCK, end - place))
            place += len(pending)
        try:
            block = inflater.decompress(pending, min(BLOCK, left + 1))
        except _InflateError:
            raise wrong_bytes(data, member) from None
        finished = inflater.eof
        if len(block) > left or not (block or finished or place < end):
            raise wrong_bytes(data, member)
        left -= len(block)
        pending = inflater.unconsumed_tail
        yield memoryview(block)
    if inflater.unused_data or place < end:
        raise wrong_bytes(data, member)


def open_member(data: ByteSource, member: ZipMember) -> BinaryIO:
    """Open a member, seekable.

    A small one is checked here and now; of a large one, the CRC is checked when all of it has been read in order.
    Raises DamagedArchiveError.
    """
    if member.size <= data.whole:
        return io.BytesIO(b"".join(map(bytes, member_blocks(data, member))))
    if member.stored:
        return io.BufferedReader(StoredFile(data, member), min(data.whole, io.DEFAULT_BUFFER_SIZE))
    spool = Spool()
    with ExitStack() as undo:
        undo.callback(spool.close)
        for block in member_blocks(data, member):  # a compressed member cannot be read by range
            spool.write(block)
        undo.pop_all()
    return io.BufferedReader(SpooledFile(spool, 0, member.size, owns=True))


class StoredFile(RangeFile):
    """A stored member, read by range where it lies; at its end, DamagedArchiveError is raised if the CRC is wrong."""

    def __init__(self, data: ByteSource, member: ZipMember) -> None:
        super().__init__(member.size)
        self._data = data
        self._member = member
        self._crc = 0
        self._summed = 0  # bytes from the beginning that are in the CRC

    def _fill(self, view: memoryview) -> int:
        count = self._data.readinto_at(self._member.offset + self._place, view)
        self._sum(view[:count])
        return count

    def _sum(self, block: memoryview) -> None:
        """Take into the CRC what of a block follows what is in it already."""
        new = self._place + len(block) - self._summed
        if self._place > self._summed or new <= 0:
            return
        self._crc = isal_zlib.crc32(block[-new:], self._crc)
        self._summed += new
        if self._summed == self._member.size and self._crc != self._member.crc:
            raise wrong_bytes(self._data, self._member)
