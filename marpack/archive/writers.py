"""The Writer protocol and its three bodies: zip, tar.gz, folder."""

import os
import struct
from pathlib import Path
from typing import BinaryIO, Protocol

from isal import isal_zlib
from msgspec import Struct

from marpack.archive.copying import Copier, Source
from marpack.archive.index import Member
from marpack.archive.zip_format import (
    CENTRAL,
    CENTRAL_MAGIC,
    END,
    END64,
    END64_MAGIC,
    END_MAGIC,
    FULL16,
    FULL32,
    LOCAL,
    LOCAL_MAGIC,
    LOCATOR64,
    LOCATOR64_MAGIC,
    UTF8_NAME,
    ZIP64_ID,
)

ALIGNMENT = 4096  # bytes: a page, and a block of the file systems that can clone ranges

_PADDING_EXTRA = 0xD935  # the id that Android's zipalign gave to padding; its first field is the alignment
_PADDING_HEAD = struct.Struct("<3H")
_PLAIN, _ZIP64 = 20, 45  # version needed to extract: 2.0, 4.5
_UNIX = 3 << 8
_MODE = 0o100644 << 16  # a regular file, rw-r--r--
_DOS_TIME, _DOS_DATE = 0, (1 << 5) | 1  # 1980-01-01 00:00:00, where DOS time begins
_LEVEL = 1  # of 3: level 3 takes three times as long, and weights come out no smaller
_GZIP = 16 + 15  # zlib's window bits that ask for a gzip header (without name and time) and trailer
_BLOCK, _RECORD = 512, 10_240  # bytes, of a tar
_MTIME = 315532800  # seconds since 1970: 1980-01-01, as in the zip


class Writer(Protocol):
    """A new archive; three bodies: zip, tar and folder."""

    def add(self, name: str, source: Source, size: int, *, aligned: bool = False) -> Member:
        """Write one member of `size` bytes, and return its digest; `aligned` data begin at a page, where the form can.

        The name was checked, together with all others, by `check_member_names`.
        """

    def finish(self) -> None:
        """Write the end of the archive; nothing can be added any more."""


class _Record(Struct, frozen=True):
    name: bytes
    flags: int
    crc: int
    size: int
    offset: int  # of the local header, from the archive's start

    def local(self, extra: bytes) -> bytes:
        size = min(self.size, FULL32)
        common = (_needed(size), self.flags, 0, _DOS_TIME, _DOS_DATE, self.crc, size, size)
        return LOCAL.pack(LOCAL_MAGIC, *common, len(self.name), len(extra)) + self.name + extra

    def central(self) -> bytes:
        size, offset = min(self.size, FULL32), min(self.offset, FULL32)
        wide = [self.size] * 2 if size == FULL32 else []
        wide += [self.offset] if offset == FULL32 else []
        extra = _zip64(*wide) if wide else b""
        needed = _needed(size, offset)
        common = (needed, self.flags, 0, _DOS_TIME, _DOS_DATE, self.crc, size, size)
        rest = (len(self.name), len(extra), 0, 0, 0, _MODE, offset)
        return CENTRAL.pack(CENTRAL_MAGIC, _UNIX | needed, *common, *rest) + self.name + extra


class ZipWriter:
    """Writes a zip into an empty, seekable file."""

    def __init__(self, file: BinaryIO, copier: Copier) -> None:
        self._file = file
        self._copier = copier
        self._records: list[_Record] = []
        self._end = 0  # bytes written: where the next local header goes

    def add(self, name: str, source: Source, size: int, *, aligned: bool = False) -> Member:
        """Write one member; see `Writer.add`."""
        raw = name.encode()
        extra = _zip64(size, size) if size >= FULL32 else b""
        if aligned:
            gap = -(self._end + LOCAL.size + len(raw) + len(extra) + _PADDING_HEAD.size) % ALIGNMENT
            extra += _PADDING_HEAD.pack(_PADDING_EXTRA, 2 + gap, ALIGNMENT) + bytes(gap)
        start = self._end + LOCAL.size + len(raw) + len(extra)
        self._file.seek(start)
        file = self._file
        sums = self._copier.copy(
            source, size, file.write, skip=lambda count: file.seek(count, os.SEEK_CUR), offset=start
        )
        record = _Record(raw, 0 if name.isascii() else UTF8_NAME, sums.crc, size, self._end)
        self._put(self._end, record.local(extra))  # only now: the CRC precedes the data
        self._records.append(record)
        self._end = start + size
        return Member(name, size, sums.sha256)

    def finish(self) -> None:
        """Write the central directory."""
        directory = b"".join(record.central() for record in self._records)
        count, size, offset = len(self._records), len(directory), self._end
        few, short, near = min(count, FULL16), min(size, FULL32), min(offset, FULL32)
        end = END.pack(END_MAGIC, 0, 0, few, few, short, near, 0)
        if few == FULL16 or FULL32 in (short, near):
            wide = END64.pack(END64_MAGIC, END64.size - 12, _UNIX | _ZIP64, _ZIP64, 0, 0, count, count, size, offset)
            end = wide + LOCATOR64.pack(LOCATOR64_MAGIC, 0, offset + size, 1) + end
        self._put(offset, directory + end)

    def _put(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        self._file.write(data)


def _needed(*fields: int) -> int:
    return _ZIP64 if FULL32 in fields else _PLAIN


def _zip64(*values: int) -> bytes:
    return struct.pack(f"<2H{len(values)}Q", ZIP64_ID, 8 * len(values), *values)


class TarWriter:
    """Writes a gzipped tar, front to back, into a file; `root` is what all names begin with."""

    def __init__(self, file: BinaryIO, copier: Copier, *, root: str) -> None:
        self._file = file
        self._copier = copier
        self._root = root
        self._deflate = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
        self._length = 0  # bytes, uncompressed

    def add(self, name: str, source: Source, size: int, *, aligned: bool = False) -> Member:  # noqa: ARG002 - no pages here
        """Write one member; see `Writer.add`."""
        from tarfile import PAX_FORMAT, TarInfo  # noqa: PLC0415 - most archives are zips

        header = TarInfo(self._root + name)
        header.size, header.mode, header.mtime = size, 0o644, _MTIME
        self._put(header.tobuf(PAX_FORMAT, errors="strict"))
        sums = self._copier.copy(source, size, self._put)
        self._pad(_BLOCK)
        return Member(name, size, sums.sha256)

    def finish(self) -> None:
        """Write the two empty blocks that end a tar, fill its last record, and end the gzip stream."""
        self._put(bytes(2 * _BLOCK))
        self._pad(_RECORD)
        self._file.write(self._deflate.flush())

    def _put(self, data: bytes | memoryview) -> None:
        self._length += len(data)
        self._file.write(self._deflate.compress(data))

    def _pad(self, multiple: int) -> None:
        self._put(bytes(-self._length % multiple))


class FolderWriter:
    """Writes members as files into an empty folder."""

    def __init__(self, folder: Path, copier: Copier) -> None:
        self._folder = folder
        self._copier = copier

    def add(self, name: str, source: Source, size: int, *, aligned: bool = False) -> Member:  # noqa: ARG002 - files are
        """Write one member; see `Writer.add`."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            sums = self._copier.copy(source, size, file.write, skip=lambda count: file.seek(count, os.SEEK_CUR))
            file.truncate(size)  # zeros at the end were skipped, not written
        return Member(name, size, sums.sha256)

    def finish(self) -> None:
        """Do nothing: a folder has no end."""
