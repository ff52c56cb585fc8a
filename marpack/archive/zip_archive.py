"""A .mar, opened: a zip behind the protocol of archives, its members read block by block or by range."""

import errno
import io
import os
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from isal import isal_zlib
from msgspec.structs import replace

from marpack.archive.bytesource import BLOCK, ByteSource, LocalFile, RangeFile, Spool, read_blocks
from marpack.archive.cache import Cache, Cached
from marpack.archive.protocol import (
    Archive,
    ArchiveForm,
    Entry,
    Limits,
    Method,
    Progress,
    common_root,
    quoted,
    total_size,
)
from marpack.archive.staging import make_folders, new_file, write_blocks
from marpack.archive.zip_format import read_directory
from marpack.errors import DamagedArchiveError
from marpack.finding_codes import ARCHIVE_SUFFIX, MAR_ROOT_FOLDER, ZIP64_STREAMED

_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance
_FICLONERANGE = 0x4020940D  # linux/fs.h: share a range of blocks between two files
_CLONE_RANGE = struct.Struct("=qQQQ")
_PAGE = 4096
_LARGE = 1 << 20  # bytes


class ZipArchive(Archive):
    """A zip whose directory was read and checked; see `marpack.archive.protocol.Archive`."""

    form = ArchiveForm.MAR

    def __init__(self, source: str, data: ByteSource, *, limits: Limits, cache: Cache) -> None:
        """Read the directory; raises ArchiveError naming the member at fault."""
        self.source = source
        self._data = data
        self._cache = cache
        directory = read_directory(data, limits)
        root = common_root(member.name for member in directory.members)
        members = (replace(entry, name=entry.name.removeprefix(root)) for entry in directory.members)
        self.entries: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in members})
        self._folders = tuple(folder.removeprefix(root) for folder in directory.folders if f"{folder}/" != root)
        findings = []
        if root:
            findings.append(MAR_ROOT_FOLDER.at(source, folder=quoted(root)))
        # Addresses are shown without their query.
        if not source.removesuffix("?…").endswith(".mar"):
            findings.append(ARCHIVE_SUFFIX.at(source, form="a zip"))
        if directory.streamed_zip64:
            names = ", ".join(map(quoted, directory.streamed_zip64[:3]))
            findings.append(ZIP64_STREAMED.at(source, names=names))
        self.server_findings = tuple(findings)

    def open(self, name: str) -> BinaryIO:
        """Open one member; see `Archive.open`.

        A small member is checked at once; of a large one, the CRC is checked when all of it was read in order.
        """
        member = self.entries[name]
        is_small, is_stored = member.size <= self._data.whole, member.method is Method.STORED
        if is_small and is_stored:
            data = self._data.read_at(member.data_offset, member.size)
            if isal_zlib.crc32(data) != member.crc:
                raise _wrong_bytes(self._data, member)
            return io.BytesIO(data)
        if is_small:
            return io.BytesIO(b"".join(map(bytes, _member_blocks(self._data, member))))
        if is_stored:
            raw = RangeFile(member.size, _StoredMember(self._data, member).readinto_at)
            return io.BufferedReader(raw, min(self._data.whole, io.DEFAULT_BUFFER_SIZE))
        spool = Spool()
        with ExitStack() as undo:
            undo.callback(spool.close)
            for block in _member_blocks(self._data, member):  # a compressed member cannot be read by range
                spool.write(block)
            undo.pop_all()
        return spool.open(0, member.size, spool.close)

    def materialize(self) -> Path:
        """Return the extracted folder; see `Archive.materialize`."""
        if not self._extracted.is_whole:
            del self._extracted
        return self._extracted.folder

    @cached_property
    def _extracted(self) -> Cached:
        _ = self.manifest  # report its problems before anything is written
        key = self._data.identity
        return self._cache.find(key) or self._cache.fill(key, self.extract_all, size=total_size(self))

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Write members into a folder; see `Archive.extract`."""
        make_folders(folder, self._folders if names is None else ())
        for name, member in self.entries.items():
            if names is not None and name not in names:
                continue
            blocks = _member_blocks(self._data, member)
            with new_file(folder, name) as file:
                if isinstance(self._data, LocalFile) and _clone(self._data, member, file.fileno()):
                    for block in blocks:  # reads all of it, which checks the CRC
                        if progress is not None:
                            progress(len(block))
                else:
                    _reserve(file.fileno(), member.size)
                    write_blocks(file, blocks, progress)

    def close(self) -> None:
        """Release the file, and the folder in the cache."""
        self._data.close()
        self._cache.close()


def _member_blocks(data: ByteSource, member: Entry) -> Iterator[memoryview]:
    """Yield a member's uncompressed bytes; the next block overwrites each block.

    Raises DamagedArchiveError at the latest after the last block, when the size or the CRC is not the directory's.
    """
    crc = size = 0
    is_stored = member.method is Method.STORED
    stored = read_blocks(data.readinto_at, member.data_offset, member.size) if is_stored else None
    for block in stored or _inflated_blocks(data, member):
        crc = isal_zlib.crc32(block, crc)
        size += len(block)
        yield block
    if size != member.size or crc != member.crc:
        raise _wrong_bytes(data, member)


def _wrong_bytes(data: ByteSource, member: Entry) -> DamagedArchiveError:
    what = f"the bytes of the member {quoted(member.name)} do not match the CRC or size recorded for them"
    return DamagedArchiveError(what, where=data.where)


def _inflated_blocks(data: ByteSource, member: Entry) -> Iterator[memoryview]:
    """Inflate, never giving more than the size that the directory states and the limits were checked against."""
    inflater = isal_zlib.decompressobj(-15)
    left = member.size
    place, end = member.data_offset, member.data_offset + member.compressed_size
    pending = b""
    finished = False
    while not finished:
        if not pending and place < end:
            pending = data.read_at(place, min(BLOCK, end - place))
            place += len(pending)
        try:
            block = inflater.decompress(pending, min(BLOCK, left + 1))
        except _InflateError:
            raise _wrong_bytes(data, member) from None
        finished = inflater.eof
        if len(block) > left or not (block or finished or place < end):
            raise _wrong_bytes(data, member)
        left -= len(block)
        pending = inflater.unconsumed_tail
        yield memoryview(block)
    if inflater.unused_data or place < end:
        raise _wrong_bytes(data, member)


class _StoredMember:
    """A stored member, read by range in the archive; raises DamagedArchiveError at its end if the CRC is wrong."""

    def __init__(self, data: ByteSource, member: Entry) -> None:
        self._data = data
        self._member = member
        self._crc = 0
        self._summed = 0  # bytes from the beginning that are in the CRC

    def readinto_at(self, offset: int, view: memoryview) -> int:
        count = self._data.readinto_at(self._member.data_offset + offset, view)
        new = offset + count - self._summed
        if offset <= self._summed and new > 0:  # the block continues the bytes that the CRC covers
            self._crc = isal_zlib.crc32(view[count - new : count], self._crc)
            self._summed += new
            if self._summed == self._member.size and self._crc != self._member.crc:
                raise _wrong_bytes(self._data, self._member)
        return count


def _reserve(fd: int, size: int) -> None:
    """Reserve a large member's space on the disk: a full disk is known before a byte, and writing is faster."""
    if size < _LARGE or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):  # the file system cannot
            raise


def _clone(data: LocalFile, member: Entry, fd: int) -> bool:
    """Share the member's blocks with the archive, if it is stored on a block's boundary and the file system can."""
    if member.method is not Method.STORED or member.data_offset % _PAGE or member.size < _PAGE:
        return False
    whole = -(-member.size // _PAGE) * _PAGE
    length = 0 if member.data_offset + whole > data.size else whole  # 0: up to the archive's end
    try:
        from fcntl import ioctl  # noqa: PLC0415 - Windows has none

        ioctl(fd, _FICLONERANGE, _CLONE_RANGE.pack(data.fd, member.data_offset, length, 0))
    except (OSError, ImportError):  # another file system, or one that cannot: the bytes are copied instead
        return False
    os.ftruncate(fd, member.size)
    return True
