"""The zip format (PKWARE's APPNOTE 6.3): its records, and the members that all readers agree on.

The server reads a zip as a stream of local headers, Python by its central directory (contract §1). `read_directory`
accepts a zip that reads the same both ways: the members follow one another from the first byte to the directory, with
nothing between them, and each local header repeats the directory's record.
"""

import re
import stat
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO, cast

from msgspec import Struct

from marpack.archive.bytesource import ByteSource, RangeFile, open_range, read_at
from marpack.archive.protocol import Entry, Limits, Method, check_member_names, quoted
from marpack.errors import DamagedArchiveError, LimitExceededError, NotAnArchiveError, UnsafeArchiveError

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC = b"PK\3\4", b"PK\1\2", b"PK\5\6"
END64_MAGIC, LOCATOR64_MAGIC = b"PK\6\6", b"PK\6\7"
_DESCRIPTOR_MAGIC = b"PK\7\x08"

_ENCRYPTED, DESCRIPTOR, UTF8_NAME = 1 << 0, 1 << 3, 1 << 11  # flags
_STRONG_ENCRYPTION, _MASKED = 1 << 6, 1 << 13
_DEFLATE_LEVEL = 0b110
_KNOWN_FLAGS = _DEFLATE_LEVEL | DESCRIPTOR | UTF8_NAME
STORED, DEFLATED = 0, 8
_METHODS = {1: "shrink", 6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 99: "AES"}
ZIP64_ID = 0x0001  # of extra fields
_UNICODE_PATH_ID, _UNIX_ID, _ASI_UNIX_ID = 0x7075, 0x000D, 0x756E
FULL16, FULL32 = 0xFFFF, 0xFFFFFFFF  # "see the zip64 record"
_MAX_COMMENT = 0xFFFF
_SMALL = 512  # bytes
_NARROW_DESCRIPTOR = 16  # bytes, at most: magic, CRC and two sizes of 32 bits
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_REPACK = "Pack it again: marpack build"

# Of the lenient reading of zips inside a file.
_BLOCK = 64 * 1024
ENTRY_LIMIT = 200_000
_DIRECTORY_LIMIT = 64 * 1024 * 1024  # bytes
TAIL = 66_000  # bytes: the longest comment, the end record and a zip64 locator
_FARTHEST = 1 << 62  # bytes; a file cannot be longer


class Header(Struct, frozen=True):
    """A member, as one of its two headers describes it; nothing is checked yet."""

    name: str  # with replacement characters for bytes that are not UTF-8
    raw_name: bytes
    flags: int
    method: int
    crc: int
    compressed_size: int
    size: int
    offset: int  # of the local header
    length: int  # bytes of this header itself; more than exist if it is cut off
    extra: dict[int, bytes]  # fields by their id, the first of each
    garbled: bool  # one of them is cut off or repeated
    zip64: bool | None  # a zip64 field holds the sizes; None: it does not fit the header
    mode: int = 0  # Unix file type and permissions; 0 if not recorded
    disk: int = 0

    @property
    def is_narrow(self) -> bool:
        """Return whether the sizes fit into 32 bits."""
        return max(self.compressed_size, self.size) < 1 << 32


class Directory(Struct, frozen=True, kw_only=True):
    """Everything a zip holds; its names are safe and unique."""

    members: tuple[Entry, ...]  # in the order of the central directory
    folders: tuple[str, ...]  # that have entries of their own, without the final slash
    streamed_zip64: tuple[str, ...] = ()  # members with needlessly wide sizes behind their data


def find_end(data: ByteSource) -> tuple[int, int, int, int]:
    """Read the end-of-directory records, including those of zip64.

    Return the directory's number of entries, its size in bytes, its offset, and the offset at which it has to end.
    Raises NotAnArchiveError if nothing looks like a zip, DamagedArchiveError if its records are missing or contradict
    each other, UnsafeArchiveError if the comment could be taken for another archive's end.
    """
    start = max(0, data.size - END.size - _MAX_COMMENT)
    tail = data.read_at(start, data.size - start)
    for found in re.finditer(END_MAGIC, tail):
        at = found.start()
        if at + END.size <= len(tail) and at + END.size + END.unpack_from(tail, at)[-1] == len(tail):
            break  # its comment reaches to the file's end
    else:
        if data.size >= 4 and data.read_at(0, 4) == LOCAL_MAGIC:
            raise DamagedArchiveError("the zip has no directory at its end: it is truncated, or bytes were appended")
        raise NotAnArchiveError("not a zip file")
    comment = tail[at + END.size :]
    if END_MAGIC in comment or CENTRAL_MAGIC in comment:
        raise UnsafeArchiveError(
            "the archive's comment holds another archive's directory: tools would disagree on its members"
        )
    _, disk, first_disk, here, entries, size, offset, _ = END.unpack_from(tail, at)
    if disk or first_disk or here != entries:
        raise DamagedArchiveError("the zip is split over several files", hint="Join its parts first.")
    limit = start + at
    place = limit - LOCATOR64.size
    locator = unpacked(LOCATOR64, LOCATOR64_MAGIC, data.read_at(place, LOCATOR64.size) if place >= 0 else b"")
    if locator is None:
        return entries, size, offset, limit
    disk, offset64, disks = locator
    if disk or disks != 1 or offset64 != place - END64.size or offset64 < 0:
        raise DamagedArchiveError("the zip64 locator does not point at the record before it")
    record = unpacked(END64, END64_MAGIC, data.read_at(offset64, END64.size)) or (0,) * 9
    length, _, _, disk, first_disk, here, *wide = record
    if length != END64.size - 12 or disk or first_disk or here != wide[0]:
        raise DamagedArchiveError("the zip64 end record is invalid, or the zip is split over several files")
    narrow = zip((entries, size, offset), wide, (FULL16, FULL32, FULL32), strict=True)
    if any(field not in (value, full) for field, value, full in narrow):
        raise DamagedArchiveError("the zip64 end record and the plain one disagree")
    return wide[0], wide[1], wide[2], offset64


def unpacked(layout: struct.Struct, magic: bytes, data: bytes, place: int = 0) -> tuple[int, ...] | None:
    """Return a record's fields, without the magic number before them; None where no such record begins."""
    if place + layout.size > len(data) or not data.startswith(magic, place):
        return None
    return layout.unpack_from(data, place)[1:]


def iter_central(directory: bytes) -> Iterator[Header]:
    """Yield the records of a central directory, as far as they follow one another; the last may be cut off."""
    place = 0
    while fields := unpacked(CENTRAL, CENTRAL_MAGIC, directory, place):
        _, _, flags, method, _, _, crc, compressed, size, names, extras, comments, disk, _, attributes, offset = fields
        name_at = place + CENTRAL.size
        extra_at = name_at + names
        raw = directory[name_at:extra_at]
        extra, garbled = _parse_extra(directory[extra_at : extra_at + extras])
        (size, compressed, offset), zip64 = _widened(extra, size, compressed, offset)
        name, mode, length = raw.decode("utf-8", "replace"), attributes >> 16, CENTRAL.size + names + extras + comments
        yield Header(name, raw, flags, method, crc, compressed, size, offset, length, extra, garbled, zip64, mode, disk)
        place += length


def read_local(data: ByteSource, member: Header) -> Header:
    """Read a member's local header; raises DamagedArchiveError naming the member."""
    name, offset, room = member.name, member.offset, data.size - member.offset
    if room < LOCAL.size:
        raise DamagedArchiveError(f"the member {quoted(name)} begins behind the end of the file")
    record = data.read_at(offset, min(room, _SMALL))  # nearly every header is shorter
    fields = unpacked(LOCAL, LOCAL_MAGIC, record)
    if fields is None:
        raise DamagedArchiveError(f"the directory points at byte {offset} for {quoted(name)}, where no member begins")
    _, flags, method, _, _, crc, compressed, size, names, extras = fields
    length = LOCAL.size + names + extras
    if length > room:
        raise DamagedArchiveError(f"the local header of {quoted(name)} runs past the end of the file")
    record = record if length <= len(record) else data.read_at(offset, length)
    raw = record[LOCAL.size : LOCAL.size + names]
    extra, garbled = _parse_extra(record[LOCAL.size + names : length])
    (size, compressed), zip64 = _widened(extra, size, compressed)
    return Header(name, raw, flags, method, crc, compressed, size, offset, length, extra, garbled, zip64)


def _widened(extra: dict[int, bytes], *narrow: int) -> tuple[tuple[int, ...], bool | None]:
    """Return 32-bit fields, those that are full taken from the zip64 field as far as it goes, and `Header.zip64`."""
    wide = extra.get(ZIP64_ID)
    if wide is None:
        return narrow, False
    values = struct.iter_unpack("<Q", wide[: len(wide) // 8 * 8])
    fits = len(wide) == 8 * narrow.count(FULL32) > 0
    return tuple(next(values, (field,))[0] if field == FULL32 else field for field in narrow), fits or None


def _parse_extra(data: bytes) -> tuple[dict[int, bytes], bool]:
    """Return `Header.extra` and `Header.garbled`; zeros at the end are padding."""
    fields: dict[int, bytes] = {}
    place, garbled = 0, False
    while len(data) - place >= 4:
        kind, length = struct.unpack_from("<2H", data, place)
        place += 4 + length
        garbled = garbled or place > len(data) or (kind and kind in fields)
        fields.setdefault(kind, data[place - length : place])
    return fields, garbled or bool(data[place:].strip(b"\0"))


def read_directory(data: ByteSource, limits: Limits) -> Directory:
    """Read and check a zip's directory; no member's data is read.

    Raises DamagedArchiveError, UnsafeArchiveError, LimitExceededError naming the member at fault,
    NotAnArchiveError when this is not a zip.
    """
    headers, begin = _read_central(data, limits)
    for header in headers:
        _check_extra(header)
        _check_kind(header)
        _check_compression(header, limits)
    total = sum(header.size for header in headers)
    if total > limits.total:
        raise LimitExceededError(f"the members have {total} bytes together; the maximum is {limits.total}")
    if limits.expands_too_much(total, data.size):
        raise LimitExceededError(f"the archive expands {data.size} bytes to {total}, more than {limits.ratio} times")
    files = [header for header in headers if not header.raw_name.endswith(b"/")]
    folders = tuple(header.name.removesuffix("/") for header in headers if header.raw_name.endswith(b"/"))
    check_member_names((header.name for header in files), folders)
    offsets, streamed = _check_layout(data, headers, begin)
    members = (
        Entry(
            name=header.name,
            size=header.size,
            compressed_size=header.compressed_size,
            method=Method.STORED if header.method == STORED else Method.DEFLATED,
            crc=header.crc,
            data_offset=offsets[header.name],
        )
        for header in files
    )
    return Directory(members=tuple(members), folders=folders, streamed_zip64=streamed)


def _read_central(data: ByteSource, limits: Limits) -> tuple[list[Header], int]:
    """Return the directory's headers in their order, which fill it to the byte, and its offset."""
    entries, size, offset, limit = find_end(data)
    if entries > limits.members:
        raise LimitExceededError(f"the zip has {entries} members; the maximum is {limits.members}")
    if size > limits.directory:
        raise LimitExceededError(f"the zip's directory has {size} bytes; the maximum is {limits.directory}")
    if entries * CENTRAL.size > size:
        raise DamagedArchiveError("the zip's directory is shorter than its number of members")
    surplus = limit - offset - size
    if surplus < 0:
        raise DamagedArchiveError("the zip's end record points to a wrong place for its directory")
    if surplus:
        raise UnsafeArchiveError(
            f"the zip contains {surplus} bytes that belong neither to a member nor to its directory"
        )
    directory = data.read_at(offset, size)
    headers = list(islice(iter_central(directory), entries))
    place = 0
    for header in headers:
        place += header.length
        if place > len(directory):
            raise DamagedArchiveError("the zip's directory ends in the middle of a member's name")
    if len(headers) < entries:
        raise DamagedArchiveError("the zip's directory is shorter than its number of members, or garbled")
    if place != len(directory):
        raise UnsafeArchiveError(f"the zip's directory has more than the {entries} members of its end record")
    return headers, offset


def _unsafe(header: Header, why: str, hint: str | None = None) -> UnsafeArchiveError:
    return UnsafeArchiveError(f"the member {quoted(header.name)} {why}", hint=hint)


def _check_kind(header: Header) -> None:
    try:
        header.raw_name.decode("utf-8")  # as the server reads it, whether or not a flag says so
    except UnicodeDecodeError:
        text = quoted(header.raw_name.decode("latin-1"))
        raise UnsafeArchiveError(f"the member {text} has a name that is not UTF-8") from None
    if header.disk:
        raise DamagedArchiveError(f"the member {quoted(header.name)} is in another part of a split zip")
    kind, is_folder = stat.S_IFMT(header.mode), header.name.endswith("/")
    if kind in _KINDS:
        raise _unsafe(header, f"is {_KINDS[kind]}", "Pack the file itself.")
    if kind and is_folder != (kind == stat.S_IFDIR):
        raise _unsafe(header, "is a folder by its name or by its mode, but not by both")
    if is_folder and header.size:
        raise _unsafe(header, f"is a folder with {header.size} bytes of data")


def _check_compression(header: Header, limits: Limits) -> None:
    """Refuse compression that the server's reader (or ours) refuses, and bombs."""
    size, compressed, method = header.size, header.compressed_size, header.method
    if header.flags & (_ENCRYPTED | _STRONG_ENCRYPTION | _MASKED) or method == 99:
        raise _unsafe(header, "is encrypted", "Pack it again without a password.")
    if method not in (STORED, DEFLATED):
        name = _METHODS.get(method, f"method {method}")
        raise _unsafe(header, f"is compressed with {name}; the server takes deflate or none", _REPACK)
    if header.flags & ~_KNOWN_FLAGS:
        raise _unsafe(header, f"has unknown flags ({header.flags:#06x})")
    if method == STORED and header.flags & DESCRIPTOR:
        raise _unsafe(header, "is stored with its size behind it, which the server refuses", _REPACK)
    if method == STORED and compressed != size:
        what = f"is stored, but its two sizes differ ({compressed} and {size} bytes)"
        raise DamagedArchiveError(f"the member {quoted(header.name)} {what}")
    if method != STORED and limits.expands_too_much(size, compressed):
        what = f"expands {compressed} bytes to {size}, more than {limits.ratio} times"
        raise LimitExceededError(f"the member {quoted(header.name)} {what}")


def _check_extra(header: Header) -> None:
    """Refuse fields that are garbled, give the member another name, or make it a link."""
    fields, other = header.extra, header.extra.get(_UNICODE_PATH_ID, b"")[5:]
    if header.garbled:
        raise DamagedArchiveError(f"the extra fields of the member {quoted(header.name)} are garbled")
    if other and other != header.raw_name:
        raise _unsafe(header, f"has a second name, {quoted(other.decode('utf-8', 'replace'))}")
    if len(fields.get(_UNIX_ID, b"")) > 12 or fields.get(_ASI_UNIX_ID, b"")[6:10].strip(b"\0"):
        raise _unsafe(header, "is a link", "Pack the file itself, not a link to it.")
    if header.zip64 is None:
        raise DamagedArchiveError(f"the zip64 field of the member {quoted(header.name)} does not fit its header")


def _check_layout(data: ByteSource, headers: list[Header], end: int) -> tuple[dict[str, int], tuple[str, ...]]:
    """Walk the local headers in the file's order; return each member's data offset, and who streams zip64."""
    offsets = {}
    streamed = []
    place, before = 0, ""
    for header in sorted(headers, key=lambda header: header.offset):
        if header.offset < place:
            raise _unsafe(header, f"overlaps {quoted(before)}")
        _check_gap(header.offset - place, before, header.name)
        local = read_local(data, header)
        _check_extra(local)
        here, there = (
            {
                "names": each.raw_name,
                "methods": each.method,
                "flags": each.flags,
                "CRC or sizes": (each.crc, each.compressed_size, each.size),
            }
            for each in (local, header)
        )
        if header.flags & DESCRIPTOR and here["CRC or sizes"] == (0, 0, 0):
            del here["CRC or sizes"]
        if what := next((what for what, value in here.items() if value != there[what]), None):
            why = f"has other {what} in its local header than in the directory: tools would disagree on it"
            raise _unsafe(header, why)
        offsets[header.name] = header.offset + local.length
        place, before = offsets[header.name] + header.compressed_size, header.name
        if place > end:
            raise DamagedArchiveError(f"the member {quoted(before)} runs into the zip's directory")
        if header.flags & DESCRIPTOR:
            behind = _descriptor_size(data.read_at(place, min(24, end - place)), header)
            place += behind
            if (local.zip64 or behind > _NARROW_DESCRIPTOR) and header.is_narrow:
                streamed.append(header.name)
    _check_gap(end - place, before, "")
    return offsets, tuple(streamed)


def _check_gap(size: int, before: str, after: str) -> None:
    if size > 0:
        first, last = quoted(before) if before else "the beginning", quoted(after) if after else "the zip's directory"
        raise UnsafeArchiveError(f"{size} bytes between {first} and {last} belong to no member")


def _descriptor_size(record: bytes, header: Header) -> int:
    """Return the length of the record behind a streamed member's data: with or without magic, 32-bit or zip64."""
    for form in ("<3I", "<I2Q") if header.is_narrow else ("<I2Q",):
        expected = struct.pack(form, header.crc, header.compressed_size, header.size)
        for magic in (_DESCRIPTOR_MAGIC, b""):
            if record.startswith(magic + expected):
                return len(magic + expected)
    raise DamagedArchiveError(f"the sizes behind the member {quoted(header.name)} are not those in the directory")


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
            if not self._inflate(min(_BLOCK, offset - self._done)):
                return 0
        data = self._inflate(len(view))
        view[: len(data)] = data
        return len(data)

    def _inflate(self, count: int) -> bytes:
        while not self._engine.eof:
            data = self._engine.unconsumed_tail or self._source.read(_BLOCK)
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
    Raises NotZipError without a directory, LargeZipError for too many entries.
    """
    found: dict[tuple[ZipEntry, ...], None] = {}
    for offset, length, shift in _directories(file):
        if length > _DIRECTORY_LIMIT:
            raise LargeZipError(f"its directory has {length:,} bytes")
        entries: dict[ZipEntry, None] = {}
        for header in iter_central(read_at(file, offset + shift, length)):
            # Python ends a name at a zero byte and, since 3.13, reads another one from Info-ZIP's extra field.
            names = [header.name]
            if (other := header.extra.get(_UNICODE_PATH_ID)) is not None:
                if header.garbled:
                    raise LargeZipError(f"{header.name} has several names")
                names.append(other[5:].decode("utf-8", "replace"))  # behind a version and a checksum
            for name in names:
                entry = ZipEntry(
                    name.partition("\0")[0],
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


def read_entries(file: BinaryIO) -> tuple[ZipEntry, ...]:
    """Return the entries of all directories that a reader may take, each once. Raises as `read_directories` does."""
    return tuple(dict.fromkeys(entry for entries in read_directories(file) for entry in entries))


def open_entry(file: BinaryIO, entry: ZipEntry) -> BinaryIO:
    """Open one entry for reading, seekable. Raises NotZipError for an unknown method or a missing header."""
    if not 0 <= entry.header < _FARTHEST:
        raise NotZipError(f"{entry.name} is outside the file")
    local = read_at(file, entry.header, LOCAL.size)
    if len(local) < LOCAL.size or not local.startswith(LOCAL_MAGIC):
        raise NotZipError(f"{entry.name} has no local header")
    start = entry.header + LOCAL.size + sum(LOCAL.unpack(local)[-2:])  # behind name and extra fields
    if entry.method == STORED:
        return open_range(file, start, entry.size)
    if entry.method == DEFLATED:
        inflater = _Inflater(open_range(file, start, entry.compressed_size))
        return cast("BinaryIO", RangeFile(entry.size, inflater.readinto_at))  # as in `open_range`
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
