"""A zip member's bytes, block by block, held against the size and the CRC that the directory tells."""

from collections.abc import Iterator

from isal import isal_zlib

from marpack.archive.bytesource import ByteSource
from marpack.archive.names import shown
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
        f"the bytes of the member {shown(member.name)} do not match the CRC or size recorded for them",
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
