"""The records of a zip (PKWARE's APPNOTE 6.3), parsed one by one: what each says, not yet whether it is true."""

import struct

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
_END64_MAGIC, _LOCATOR64_MAGIC = b"PK\6\6", b"PK\6\7"

ENCRYPTED, DESCRIPTOR, UTF8_NAME = 1 << 0, 1 << 3, 1 << 11
_DEFLATE_LEVEL = 0b110
_KNOWN_FLAGS = _DEFLATE_LEVEL | DESCRIPTOR | UTF8_NAME
_STRONG_ENCRYPTION, _MASKED = 1 << 6, 1 << 13
STORED, DEFLATED = 0, 8
_METHODS = {1: "shrink", 6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 99: "AES"}

_ZIP64_ID, _UNICODE_PATH_ID, _UNIX_ID, _ASI_UNIX_ID = 0x0001, 0x7075, 0x000D, 0x756E
_MAX_COMMENT = 0xFFFF
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF  # "see the zip64 record"


class End(Struct, frozen=True):
    """Where the central directory lies, as the end records tell."""

    entries: int
    size: int  # bytes
    offset: int
    limit: int  # offset of the first end record: where the directory has to end
    comment: bytes


class Header(Struct, frozen=True):
    """A member, as one of its two headers describes it."""

    name: str
    raw_name: bytes
    flags: int
    method: int
    crc: int
    compressed_size: int
    size: int
    offset: int  # of the local header
    mode: int  # Unix file type and permissions; 0 where none are recorded
    length: int  # bytes of this header itself
    zip64: bool  # sizes stand in a zip64 field


def find_end(data: ByteSource) -> End:
    """Read the end-of-directory records.

    Raises NotAnArchiveError when there are none and nothing looks like a zip, else DamagedArchiveError,
    or UnsafeArchiveError when the comment could be taken for another archive's end.
    """
    start = max(0, data.size - END.size - _MAX_COMMENT)
    tail = data.read_at(start, data.size - start)
    places = [place for place in _places(tail) if _reaches_end(tail, place)]
    if not places:
        raise _no_end(data)
    comment = tail[places[0] + END.size :]
    if END_MAGIC in comment or CENTRAL_MAGIC in comment:
        raise UnsafeArchiveError(
            "the archive's comment holds another archive's directory: tools would disagree on what is inside"
        )
    _, disk, first_disk, here, entries, size, offset, _ = END.unpack_from(tail, places[0])
    if disk or first_disk or here != entries:
        raise DamagedArchiveError("the zip says it is split over several files", hint="join its parts first")
    end = End(entries, size, offset, start + places[0], comment)
    return _widen(data, end)


def _places(tail: bytes) -> list[int]:
    found = []
    place = tail.find(END_MAGIC)
    while place >= 0:
        found.append(place)
        place = tail.find(END_MAGIC, place + 1)
    return found


def _reaches_end(tail: bytes, place: int) -> bool:
    fits = place + END.size <= len(tail)
    return fits and place + END.size + END.unpack_from(tail, place)[-1] == len(tail)


def _no_end(data: ByteSource) -> NotAnArchiveError | DamagedArchiveError:
    if data.size >= 4 and data.read_at(0, 4) == LOCAL_MAGIC:
        return DamagedArchiveError(
            "the zip has no directory at its end: it is truncated, or bytes were appended",
            hint="copy or download the archive again",
        )
    return NotAnArchiveError("this is not a zip", hint="a .mar is a zip made by: marpack build")


def _widen(data: ByteSource, end: End) -> End:
    """Return the end as the zip64 records tell it, if there are any."""
    place = end.limit - LOCATOR64.size
    locator = data.read_at(place, LOCATOR64.size) if place >= 0 else b""
    if not locator.startswith(_LOCATOR64_MAGIC):
        return end
    _, disk, offset, disks = LOCATOR64.unpack(locator)
    if disk or disks != 1 or offset != place - END64.size or offset < 0:
        raise DamagedArchiveError("the zip64 locator does not point at the record before it")
    magic, length, _, _, disk, first, here, entries, size, start = END64.unpack(data.read_at(offset, END64.size))
    if magic != _END64_MAGIC or length != END64.size - 12 or disk or first or here != entries:
        raise DamagedArchiveError("the zip64 end record is not one, or says the zip is split")
    narrow, wide = (end.entries, end.size, end.offset), (entries, size, start)
    if any(a not in (b, full) for a, b, full in zip(narrow, wide, (_FULL16, _FULL32, _FULL32), strict=True)):
        raise DamagedArchiveError("the zip64 end record and the plain one disagree")
    return End(entries, size, start, offset, end.comment)


def parse_central(directory: bytes, place: int) -> Header:
    """Parse one header of the central directory; raises ArchiveError naming the member."""
    if place + CENTRAL.size > len(directory) or not directory.startswith(CENTRAL_MAGIC, place):
        raise DamagedArchiveError("the zip's directory is shorter than its number of members, or garbled")
    fields = CENTRAL.unpack_from(directory, place)
    _, _, _, flags, method, _, _, crc, compressed, size, names, extras, comments, disk, _, attributes, offset = fields
    names_at = place + CENTRAL.size
    end = names_at + names + extras + comments
    if end > len(directory):
        raise DamagedArchiveError("the zip's directory ends in the middle of a member's name")
    raw = directory[names_at : names_at + names]
    name = decode_name(raw)
    extra = parse_extra(directory[names_at + names : names_at + names + extras], name)
    check_extra(extra, raw, name)
    wide = widen(extra, (size, compressed, offset), name)
    if disk:
        raise DamagedArchiveError(f"the member {quoted(name)} says it lies in another part of a split zip")
    return Header(
        name, raw, flags, method, crc, wide[1], wide[0], wide[2], attributes >> 16, end - place, _ZIP64_ID in extra
    )


def parse_local(data: ByteSource, member: Header) -> Header:
    """Parse a member's local header; raises ArchiveError naming the member."""
    label = quoted(member.name)
    if member.offset + LOCAL.size > data.size:
        raise DamagedArchiveError(f"the member {label} begins behind the end of the file")
    head = data.read_at(member.offset, LOCAL.size)
    magic, _, flags, method, _, _, crc, compressed, size, names, extras = LOCAL.unpack(head)
    if magic != LOCAL_MAGIC:
        raise DamagedArchiveError(f"the directory points at byte {member.offset} for {label}, where no member begins")
    if member.offset + LOCAL.size + names + extras > data.size:
        raise DamagedArchiveError(f"the local header of {label} runs past the end of the file")
    rest = data.read_at(member.offset + LOCAL.size, names + extras)
    extra = parse_extra(rest[names:], member.name)
    check_extra(extra, rest[:names], member.name)
    wide = widen(extra, (size, compressed), member.name)
    length = LOCAL.size + names + extras
    return Header(
        member.name, rest[:names], flags, method, crc, wide[1], wide[0], member.offset, 0, length, _ZIP64_ID in extra
    )


def decode_name(raw: bytes) -> str:
    """Return a name as the server reads it: UTF-8, whether or not a flag says so."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        text = quoted(raw.decode("latin-1"))
        raise UnsafeArchiveError(f"the member {text} has a name that is not UTF-8") from None


def parse_extra(extra: bytes, name: str) -> dict[int, bytes]:
    """Return the extra fields by their id; zero bytes at the end are padding."""
    fields: dict[int, bytes] = {}
    place = 0
    while len(extra) - place >= 4:
        kind, length = struct.unpack_from("<2H", extra, place)
        place += 4 + length
        if place > len(extra) or (kind and kind in fields):
            raise DamagedArchiveError(f"the extra fields of the member {quoted(name)} are garbled")
        fields[kind] = extra[place - length : place]
    if extra[place:].strip(b"\0"):
        raise DamagedArchiveError(f"the extra fields of the member {quoted(name)} are garbled")
    return fields


def check_extra(extra: dict[int, bytes], raw: bytes, name: str) -> None:
    """Refuse fields that give the member another name, or make it a link."""
    other = extra.get(_UNICODE_PATH_ID, b"")[5:]
    if other and other != raw:
        raise UnsafeArchiveError(
            f"the member {quoted(name)} has a second name, {quoted(other.decode('utf-8', 'replace'))}"
        )
    if len(extra.get(_UNIX_ID, b"")) > 12 or extra.get(_ASI_UNIX_ID, b"")[6:10].strip(b"\0"):
        raise UnsafeArchiveError(f"the member {quoted(name)} is a link", hint="pack the file itself, not a link to it")


def widen(extra: dict[int, bytes], fields: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return 32-bit fields with those that are full taken from the zip64 field, in its fixed order."""
    if _ZIP64_ID not in extra:
        return fields
    wide = extra[_ZIP64_ID]
    full = [number for number, field in enumerate(fields) if field == _FULL32]
    if not full or len(wide) != 8 * len(full):
        raise DamagedArchiveError(f"the zip64 field of the member {quoted(name)} does not fit its header")
    values = list(fields)
    for number, value in zip(full, struct.unpack(f"<{len(full)}Q", wide), strict=True):
        values[number] = value
    return tuple(values)


def check_method(member: Header) -> None:
    """Refuse what the server's reader (and ours) does not take; raises UnsafeArchiveError naming the member."""
    label = f"the member {quoted(member.name)}"
    if member.flags & (ENCRYPTED | _STRONG_ENCRYPTION | _MASKED) or member.method == 99:
        raise UnsafeArchiveError(f"{label} is encrypted", hint="pack it again without a password")
    if member.method not in (STORED, DEFLATED):
        method = _METHODS.get(member.method, f"method {member.method}")
        raise UnsafeArchiveError(
            f"{label} is compressed with {method}; the server takes deflate or none",
            hint="pack it again: marpack build",
        )
    if member.flags & ~_KNOWN_FLAGS:
        raise UnsafeArchiveError(f"{label} has unknown flags ({member.flags:#06x})")
    if member.method == STORED and member.flags & DESCRIPTOR:
        raise UnsafeArchiveError(
            f"{label} is stored with its size behind it, which the server refuses", hint="pack it again: marpack build"
        )
