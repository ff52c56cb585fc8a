"""The records of a zip (PKWARE's APPNOTE 6.3), parsed one by one: what each says, not yet whether it is true."""

import re
import struct
from collections.abc import Iterator

from msgspec import Struct

from marpack.archive.bytesource import ByteSource
from marpack.archive.names import quoted
from marpack.errors import DamagedArchiveError, NotAnArchiveError, UnsafeArchiveError

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC = b"PK\3\4", b"PK\1\2", b"PK\5\6"
END64_MAGIC, LOCATOR64_MAGIC = b"PK\6\6", b"PK\6\7"

ENCRYPTED, DESCRIPTOR, UTF8_NAME = 1 << 0, 1 << 3, 1 << 11
STORED, DEFLATED = 0, 8

_ZIP64_ID = 0x0001
_MAX_COMMENT = 0xFFFF
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF  # "see the zip64 record"


class End(Struct, frozen=True):
    """Where the central directory lies, as the end records tell."""

    entries: int
    size: int  # bytes
    offset: int
    limit: int  # offset of the first end record: where the directory has to end


class Header(Struct, frozen=True):
    """A member, as one of its two headers describes it, nothing of it checked."""

    name: str  # with marks in place of what is no UTF-8
    raw_name: bytes
    flags: int
    method: int
    crc: int
    compressed_size: int
    size: int
    offset: int  # of the local header
    length: int  # bytes of this header itself; more than there are where it is cut off
    extra: dict[int, bytes]  # fields by their id, the first of each
    garbled: bool  # one of them is cut off, or there twice
    zip64: bool | None  # sizes stand in a field of that name; None: there is one that does not fit
    mode: int = 0  # Unix file type and permissions; 0 where none are recorded
    disk: int = 0


def find_end(data: ByteSource) -> End:
    """Read the end-of-directory records.

    Raises NotAnArchiveError when there are none and nothing looks like a zip, else DamagedArchiveError,
    or UnsafeArchiveError when the comment could be taken for another archive's end.
    """
    start = max(0, data.size - END.size - _MAX_COMMENT)
    tail = data.read_at(start, data.size - start)
    places = [found.start() for found in re.finditer(END_MAGIC, tail) if _reaches_end(tail, found.start())]
    if not places and data.size >= 4 and data.read_at(0, 4) == LOCAL_MAGIC:
        raise DamagedArchiveError(
            "the zip has no directory at its end: it is truncated, or bytes were appended",
            hint="copy or download the archive again",
        )
    if not places:
        raise NotAnArchiveError("this is not a zip", hint="a .mar is a zip made by: marpack build")
    comment = tail[places[0] + END.size :]
    if END_MAGIC in comment or CENTRAL_MAGIC in comment:
        raise UnsafeArchiveError(
            "the archive's comment holds another archive's directory: tools would disagree on what is inside"
        )
    _, disk, first_disk, here, entries, size, offset, _ = END.unpack_from(tail, places[0])
    if disk or first_disk or here != entries:
        raise DamagedArchiveError("the zip says it is split over several files", hint="join its parts first")
    return _widen(data, End(entries, size, offset, start + places[0]))


def _reaches_end(tail: bytes, place: int) -> bool:
    fits = place + END.size <= len(tail)
    return fits and place + END.size + END.unpack_from(tail, place)[-1] == len(tail)


def _widen(data: ByteSource, end: End) -> End:
    """Return the end as the zip64 records tell it, if there are any."""
    place = end.limit - LOCATOR64.size
    locator = unpacked(LOCATOR64, LOCATOR64_MAGIC, data.read_at(place, LOCATOR64.size) if place >= 0 else b"")
    if locator is None:
        return end
    disk, offset, disks = locator
    if disk or disks != 1 or offset != place - END64.size or offset < 0:
        raise DamagedArchiveError("the zip64 locator does not point at the record before it")
    record = unpacked(END64, END64_MAGIC, data.read_at(offset, END64.size)) or (0,) * 9
    length, _, _, disk, first, here, entries, size, start = record
    if length != END64.size - 12 or disk or first or here != entries:
        raise DamagedArchiveError("the zip64 end record is not one, or says the zip is split")
    narrow, wide = (end.entries, end.size, end.offset), (entries, size, start)
    if any(a not in (b, full) for a, b, full in zip(narrow, wide, (_FULL16, _FULL32, _FULL32), strict=True)):
        raise DamagedArchiveError("the zip64 end record and the plain one disagree")
    return End(entries, size, start, offset)


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
    name, offset = member.name, member.offset
    if offset + LOCAL.size > data.size:
        raise DamagedArchiveError(f"the member {quoted(name)} begins behind the end of the file")
    fields = unpacked(LOCAL, LOCAL_MAGIC, data.read_at(offset, LOCAL.size))
    if fields is None:
        raise DamagedArchiveError(f"the directory points at byte {offset} for {quoted(name)}, where no member begins")
    _, flags, method, _, _, crc, compressed, size, names, extras = fields
    length = LOCAL.size + names + extras
    if offset + length > data.size:
        raise DamagedArchiveError(f"the local header of {quoted(name)} runs past the end of the file")
    rest = data.read_at(offset + LOCAL.size, names + extras)
    extra, garbled = _parse_extra(rest[names:])
    (size, compressed), zip64 = _widened(extra, size, compressed)
    raw = rest[:names]
    return Header(name, raw, flags, method, crc, compressed, size, offset, length, extra, garbled, zip64)


def _widened(extra: dict[int, bytes], *narrow: int) -> tuple[tuple[int, ...], bool | None]:
    """Return 32-bit fields, those that are full taken from the zip64 field as far as it goes, and `Header.zip64`."""
    wide = extra.get(_ZIP64_ID)
    if wide is None:
        return narrow, False
    values = struct.iter_unpack("<Q", wide[: len(wide) // 8 * 8])
    fits = len(wide) == 8 * narrow.count(_FULL32) > 0
    return tuple(next(values, (field,))[0] if field == _FULL32 else field for field in narrow), fits or None


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
