"""One member of a zip as a seekable file."""

import io
import os
from collections.abc import Iterable
from typing import IO, BinaryIO

from isal import isal_zlib

from marpack.archive.blocks import member_blocks, wrong_bytes
from marpack.archive.bytesource import ByteSource
from marpack.archive.zip_directory import ZipMember


def open_member(data: ByteSource, member: ZipMember) -> BinaryIO:
    """Open a member, seekable.

    A small one is checked here and now; of a large one, the CRC is checked when all of it has been read in order.
    Raises DamagedArchiveError.
    """
    if member.size <= data.whole:
        return io.BytesIO(b"".join(map(bytes, member_blocks(data, member))))
    if member.stored:
        return io.BufferedReader(StoredFile(data, member), min(data.whole, io.DEFAULT_BUFFER_SIZE))
    return spool(member_blocks(data, member))


def spool(blocks: Iterable[memoryview]) -> BinaryIO:
    """Return blocks as an unnamed temporary file, rewound: what is compressed cannot be read by range."""
    import tempfile  # noqa: PLC0415 - large deflated members only

    file: IO[bytes] = tempfile.TemporaryFile(prefix="marpack-")  # noqa: SIM115 - the caller's to close
    for block in blocks:
        file.write(block)
    file.seek(0)
    return file  # type: ignore[return-value]  # IO[bytes] is BinaryIO in all but name


class StoredFile(io.RawIOBase):
    """A stored member, read by range where it lies."""

    def __init__(self, data: ByteSource, member: ZipMember) -> None:
        self._data = data
        self._member = member
        self._place = 0
        self._crc = 0
        self._summed = 0  # bytes from the beginning that are in the CRC

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move, and return the new position in bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._member.size}[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._place = base + offset
        return self._place

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # collections.abc.Buffer needs 3.12
        """Fill the buffer's beginning; raises DamagedArchiveError at the end if the CRC is wrong."""
        left = max(0, self._member.size - self._place)
        view = memoryview(buffer).cast("B")[:left]
        if not view:
            return 0
        count = self._data.readinto_at(self._member.offset + self._place, view)
        self._sum(view[:count])
        self._place += count
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
