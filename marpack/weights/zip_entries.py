"""A zip inside a file, read leniently as torch's reader does, and its entries as files."""

import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from msgspec import Struct

from marpack.archive.bytesource import RangeFile
from marpack.archive.zip_format import (
    DEFLATED,
    END,
    END64,
    END64_MAGIC,
    END_MAGIC,
    LOCAL,
    LOCAL_MAGIC,
    LOCATOR64,
    LOCATOR64_MAGIC,
    STORED,
    Header,
    iter_central,
    unpacked,
)
from marpack.weights.bytestream import read_at

_CHUNK = 64 * 1024
ENTRY_LIMIT = 200_000
_DIRECTORY_LIMIT = 64 * 1024 * 1024  # bytes
TAIL = 66_000  # bytes: the longest comment, the end record and a zip64 locator
_ENCRYPTED = 1  # of a member's flags
_UNICODE_PATH = 0x7075  # Info-ZIP's extra field, which Python reads since 3.13
_FARTHEST = 1 << 62  # bytes; a file cannot be longer


def stored(file: BinaryIO, offset: int, size: int) -> BinaryIO:
    """Return bytes [offset, offset + size) of a seekable file as a file; the file stays the caller's."""

    def fill(place: int, view: memoryview) -> int:
        data = read_at(file, offset + place, len(view))
        view[: len(data)] = data
        return len(data)

    return cast("BinaryIO", RangeFile(size, fill))  # RawIOBase has read, seek and tell; BinaryIO only names them


class _Inflater:
    """A raw deflate stream whose damage reads as its end; a read backward starts over, so readers go forward."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._restart()

    def _restart(self) -> None:
        self._source.seek(0)
        self._engine = zlib.decompressobj(-zlib.MAX_WBITS)
        self._done = 0  # inflated bytes handed out or skipped so far

    def readinto_at(self, offset: int, view: memoryview) -> int:
        if offset < self._done:
            self._restart()
        while self._done < offset:
            if not self._inflate(min(_CHUNK, offset - self._done)):
                return 0
        data = self._inflate(len(view))
        view[: len(data)] = data
        return len(data)

    def _inflate(self, count: int) -> bytes:
        while not self._engine.eof:
            data = self._engine.unconsumed_tail or self._source.read(_CHUNK)
            try:
                out = self._engine.decompress(data, count)
            except zlib.error:
                return b""
            self._done += len(out)
            if out or not data:
                return out
        return b""


class ZipEntry(Struct, frozen=True):
    """One record of the central directory."""

    name: str
    method: int
    size: int  # bytes
    compressed_size: int
    crc: int
    header: int  # bytes from the file's start to the local header
    encrypted: bool = False


class NotZipError(Exception):
    """A zip without a readable central directory; private to the readers of this package."""


class LargeZipError(NotZipError):
    """There is a directory, and it is too large to be honest."""


def read_directories(file: BinaryIO) -> list[tuple[ZipEntry, ...]]:
    """Return the entries of each directory that a reader may use, in the directory's order and without folders.

    Readers use different directories if records contradict each other: torch follows the zip64 locator if it leads to a
    record, Python's zipfile uses the record before it. In a zip with bytes before it, torch looks for the directory at
    the offset in the record, Python just before that record. Directories without entries are left out.
    Raises NotZipError if there is no directory, LargeZipError for too many entries.
    """
    found: dict[tuple[ZipEntry, ...], None] = {}
    for offset, length, shift in _directories(file):
        if length > _DIRECTORY_LIMIT:
            raise LargeZipError(f"its directory has {length:,} bytes")
        entries: dict[ZipEntry, None] = {}
        for header in iter_central(read_at(file, offset + shift, length)):
            for name in _names(header):
                entry = ZipEntry(
                    name,
                    header.method,
                    header.size,
                    header.compressed_size,
                    header.crc,
                    header.offset + shift,
                    bool(header.flags & _ENCRYPTED),
                )
                entries[entry] = None
            if len(entries) > ENTRY_LIMIT:
                raise LargeZipError(f"it has over {ENTRY_LIMIT:,} members")
        found[tuple(entry for entry in entries if entry.size or not entry.name.endswith("/"))] = None
    return [entries for entries in found if entries]


def read_directory(file: BinaryIO) -> tuple[ZipEntry, ...]:
    """Return the entries of all directories that a reader may take, each once. Raises as `read_directories` does."""
    return tuple(dict.fromkeys(entry for entries in read_directories(file) for entry in entries))


def _names(header: Header) -> Iterator[str]:
    """Yield the names that readers know a member by: Python ends them at a zero byte, or reads them from a field.

    Raises LargeZipError for several such fields, of which we only know the first.
    """
    yield header.name.partition("\0")[0]
    unicode_path = header.extra.get(_UNICODE_PATH)
    if unicode_path is None:
        return
    if header.garbled:
        raise LargeZipError(f"{header.name} has several names")
    yield unicode_path[5:].decode("utf-8", "replace").partition("\0")[0]  # behind a version and a checksum


def open_entry(file: BinaryIO, entry: ZipEntry) -> BinaryIO:
    """Open one entry for reading, seekable. Raises NotZipError for an unknown method or a missing header."""
    if not 0 <= entry.header < _FARTHEST:
        raise NotZipError(f"{entry.name} lies outside the file")
    local = unpacked(LOCAL, LOCAL_MAGIC, read_at(file, entry.header, LOCAL.size))
    if local is None:
        raise NotZipError(f"{entry.name} has no local header")
    start = entry.header + LOCAL.size + sum(local[-2:])  # behind name and extra fields
    if entry.method == STORED:
        return stored(file, start, entry.size)
    if entry.method == DEFLATED:
        inflater = _Inflater(stored(file, start, entry.compressed_size))
        return cast("BinaryIO", RangeFile(entry.size, inflater.readinto_at))  # as in `stored`
    raise NotZipError(f"{entry.name} is compressed by method {entry.method}")


def _directories(file: BinaryIO) -> dict[tuple[int, int, int], None]:
    """Return where any reader looks for a directory: offset, length, and how far to go on from there."""
    size = file.seek(0, 2)
    for wanted in (min(size, 2048), min(size, TAIL)):  # the comment is nearly always empty: a short read first
        tail = read_at(file, size - wanted, wanted)
        at = tail.rfind(END_MAGIC, 0, max(0, len(tail) - END.size + len(END_MAGIC)))
        if at >= 0:
            break
    else:
        raise NotZipError("no end record")
    end = size - len(tail) + at
    *_, length, offset, _ = END.unpack_from(tail, at)
    records = [(end, length, offset)]
    before = end - LOCATOR64.size
    if before >= 0 and (locator := unpacked(LOCATOR64, LOCATOR64_MAGIC, read_at(file, before, LOCATOR64.size))):
        for place in {locator[1], before - END64.size}:
            record = unpacked(END64, END64_MAGIC, read_at(file, place, END64.size)) if 0 <= place <= size else None
            records += [(place, record[-2], record[-1])] if record else []
    # Python's zipfile looks before the end record only if it finds no zip64 record.
    places = {place for place, _, _ in records}
    is_hidden = before - END64.size in places
    found: dict[tuple[int, int, int], None] = {}
    for place, length, offset in records:
        if length <= place and offset <= size:
            found[offset, length, 0] = None
        if length <= place and not (is_hidden and place == end):
            found[offset, length, place - length - offset] = None
    if not found:
        raise NotZipError("a directory outside the file")
    return found
