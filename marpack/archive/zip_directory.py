"""A zip's members, after its directory and its local headers were held against each other, byte for byte.

The server reads a zip as a stream of local headers, Python by its central directory (contract §1). What is accepted
here reads the same both ways: the members lie one after another from the first byte to the directory, nothing between.
"""

import stat
import struct
from itertools import islice

from msgspec import Struct

from marpack.archive.bytesource import ByteSource
from marpack.archive.names import check_member_names, quoted
from marpack.archive.protocol import Limits
from marpack.archive.zip_records import (
    CENTRAL,
    DEFLATED,
    DESCRIPTOR,
    ENCRYPTED,
    STORED,
    UTF8_NAME,
    Header,
    find_end,
    iter_central,
    read_local,
)
from marpack.errors import DamagedArchiveError, LimitExceededError, UnsafeArchiveError

_DEFLATE_LEVEL = 0b110
_KNOWN_FLAGS = _DEFLATE_LEVEL | DESCRIPTOR | UTF8_NAME
_STRONG_ENCRYPTION, _MASKED = 1 << 6, 1 << 13
_METHODS = {1: "shrink", 6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 99: "AES"}
_REPACK = "pack it again: marpack build"
_UNICODE_PATH_ID, _UNIX_ID, _ASI_UNIX_ID = 0x7075, 0x000D, 0x756E  # of extra fields
_DESCRIPTOR_MAGIC = b"PK\7\x08"
_NARROW_DESCRIPTOR = 16  # bytes, at most: magic, CRC and two sizes of 32 bits
_FETCH = "copy or download the archive again"
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class ZipMember(Struct, frozen=True, kw_only=True):
    """A file in a zip, with what it takes to read it."""

    name: str
    size: int  # bytes, uncompressed
    compressed_size: int
    stored: bool  # else deflated
    crc: int
    offset: int  # of the data


class Directory(Struct, frozen=True, kw_only=True):
    """Everything a zip holds; its names are safe and unique."""

    members: tuple[ZipMember, ...]  # in the order of the central directory
    folders: tuple[str, ...]  # that have entries of their own, without the final slash
    streamed_zip64: tuple[str, ...] = ()  # members with needlessly wide sizes behind their data


def read_directory(data: ByteSource, limits: Limits) -> Directory:
    """Read and check a zip's directory; no member's data is read.

    Raises DamagedArchiveError, UnsafeArchiveError, LimitExceededError naming the member at fault,
    NotAnArchiveError when this is no zip.
    """
    headers, end = _central(data, limits)
    for header in headers:
        _check_kind(header)
        _check_method(header)
    _check_limits(headers, data.size, limits)
    files = [header for header in headers if not header.raw_name.endswith(b"/")]
    folders = tuple(header.name.removesuffix("/") for header in headers if header.raw_name.endswith(b"/"))
    check_member_names((header.name for header in files), folders)
    offsets, streamed = _check_layout(data, headers, end)
    members = tuple(
        ZipMember(
            name=header.name,
            size=header.size,
            compressed_size=header.compressed_size,
            stored=header.method == STORED,
            crc=header.crc,
            offset=offsets[header.name],
        )
        for header in files
    )
    return Directory(members=members, folders=folders, streamed_zip64=streamed)


def _central(data: ByteSource, limits: Limits) -> tuple[list[Header], int]:
    """Return the directory's headers in their order, and the offset where it begins."""
    end = find_end(data)
    if end.entries > limits.members:
        raise LimitExceededError(
            f"the zip says it has {end.entries} members; {limits.members} is the limit",
            hint="raise the limit if you trust it: --max-members",
        )
    if end.size > limits.directory:
        raise LimitExceededError(f"the zip's directory has {end.size} bytes; {limits.directory} is the limit")
    if end.entries * CENTRAL.size > end.size:
        raise DamagedArchiveError("the zip's directory is shorter than its number of members", hint=_FETCH)
    if end.offset + end.size > end.limit:
        raise DamagedArchiveError("the zip's directory is not where its end record says", hint=_FETCH)
    if end.offset + end.size < end.limit:
        surplus = end.limit - end.offset - end.size
        raise UnsafeArchiveError(
            f"the zip's directory ends {surplus} bytes too late: bytes were put before or into the zip"
        )
    directory = data.read_at(end.offset, end.size)
    headers = list(islice(iter_central(directory), end.entries))
    place = 0
    for header in headers:
        place += header.length
        if place > len(directory):
            raise DamagedArchiveError("the zip's directory ends in the middle of a member's name")
        _check_central(header)
    if len(headers) < end.entries:
        raise DamagedArchiveError("the zip's directory is shorter than its number of members, or garbled")
    if place != len(directory):
        raise UnsafeArchiveError("the zip's directory holds more than its number of members says")
    return headers, end.offset


def _check_central(header: Header) -> None:
    """Refuse a record of the central directory that is garbled or gives a member two names; raises ArchiveError."""
    try:
        header.raw_name.decode("utf-8")  # as the server reads it, whether or not a flag says so
    except UnicodeDecodeError:
        text = quoted(header.raw_name.decode("latin-1"))
        raise UnsafeArchiveError(f"the member {text} has a name that is not UTF-8") from None
    _check_extra(header)
    if header.disk:
        raise DamagedArchiveError(f"the member {quoted(header.name)} says it lies in another part of a split zip")


def _check_extra(header: Header) -> None:
    """Refuse fields that are garbled, give the member another name, or make it a link."""
    name, fields = header.name, header.extra
    if header.garbled:
        raise DamagedArchiveError(f"the extra fields of the member {quoted(name)} are garbled")
    other = fields.get(_UNICODE_PATH_ID, b"")[5:]
    if other and other != header.raw_name:
        second = quoted(other.decode("utf-8", "replace"))
        raise UnsafeArchiveError(f"the member {quoted(name)} has a second name, {second}")
    if len(fields.get(_UNIX_ID, b"")) > 12 or fields.get(_ASI_UNIX_ID, b"")[6:10].strip(b"\0"):
        raise UnsafeArchiveError(f"the member {quoted(name)} is a link", hint="pack the file itself, not a link to it")
    if header.zip64 is None:
        raise DamagedArchiveError(f"the zip64 field of the member {quoted(name)} does not fit its header")


def _check_kind(header: Header) -> None:
    kind = stat.S_IFMT(header.mode)
    if kind in _KINDS:
        raise _refused(header, f"is {_KINDS[kind]}", "pack the file itself")
    folder = header.name.endswith("/")
    if folder != (kind == stat.S_IFDIR) and kind:
        raise _refused(header, "is a folder by its name or by its mode, but not by both")
    if folder and header.size:
        raise _refused(header, f"is a folder with {header.size} bytes of data")


def _check_method(member: Header) -> None:
    """Refuse what the server's reader (and ours) does not take; raises ArchiveError naming the member."""
    if member.flags & (ENCRYPTED | _STRONG_ENCRYPTION | _MASKED) or member.method == 99:
        raise _refused(member, "is encrypted", "pack it again without a password")
    if member.method not in (STORED, DEFLATED):
        method = _METHODS.get(member.method, f"method {member.method}")
        raise _refused(member, f"is compressed with {method}; the server takes deflate or none", _REPACK)
    if member.flags & ~_KNOWN_FLAGS:
        raise _refused(member, f"has unknown flags ({member.flags:#06x})")
    if member.method == STORED and member.flags & DESCRIPTOR:
        raise _refused(member, "is stored with its size behind it, which the server refuses", _REPACK)
    if member.method == STORED and member.compressed_size != member.size:
        raise DamagedArchiveError(
            f"the member {quoted(member.name)} is stored, but its two sizes differ "
            f"({member.compressed_size} and {member.size} bytes)"
        )


def _refused(member: Header, why: str, hint: str | None = None) -> UnsafeArchiveError:
    return UnsafeArchiveError(f"the member {quoted(member.name)} {why}", hint=hint)


def _check_limits(headers: list[Header], size: int, limits: Limits) -> None:
    for header in headers:
        if header.method != STORED and limits.expands_too_much(header.size, header.compressed_size):
            raise LimitExceededError(
                f"the member {quoted(header.name)} expands {header.compressed_size} bytes to {header.size}, "
                f"more than {limits.ratio} times",
                hint="raise the limit if you trust it: --max-ratio",
            )
    total = sum(header.size for header in headers)
    if total > limits.total:
        raise LimitExceededError(
            f"the members have {total} bytes together; {limits.total} is the limit",
            hint="raise the limit if you trust it: --max-size",
        )
    if limits.expands_too_much(total, size):
        raise LimitExceededError(
            f"the archive expands {size} bytes to {total}, more than {limits.ratio} times",
            hint="raise the limit if you trust it: --max-ratio",
        )


def _check_layout(data: ByteSource, headers: list[Header], end: int) -> tuple[dict[str, int], tuple[str, ...]]:
    """Walk the local headers in the file's order; return where each member's data begins, and who streams zip64."""
    offsets = {}
    streamed = []
    place, before = 0, None
    for header in sorted(headers, key=lambda header: header.offset):
        if header.offset != place:
            raise _misplaced(place, header.offset, before, header)
        local = read_local(data, header)
        _check_extra(local)
        _check_agreement(header, local)
        offsets[header.name] = header.offset + local.length
        place, before = offsets[header.name] + header.compressed_size, header
        if place > end:
            raise DamagedArchiveError(f"the member {quoted(header.name)} runs into the zip's directory", hint=_FETCH)
        if header.flags & DESCRIPTOR:
            behind = _descriptor(data, header, place, end)
            place += behind
            if (local.zip64 or behind > _NARROW_DESCRIPTOR) and _is_narrow(header):
                streamed.append(header.name)
    if place != end:
        raise _misplaced(place, end, before, None)
    return offsets, tuple(streamed)


def _misplaced(place: int, begin: int, before: Header | None, after: Header | None) -> UnsafeArchiveError:
    first = quoted(before.name) if before else "the beginning"
    second = quoted(after.name) if after else "the zip's directory"
    if begin < place:
        return UnsafeArchiveError(f"the member {second} overlaps {first}")
    return UnsafeArchiveError(f"{begin - place} bytes between {first} and {second} belong to no member")


def _check_agreement(header: Header, local: Header) -> None:
    pairs = {
        "names": (header.raw_name, local.raw_name),
        "methods": (header.method, local.method),
        "flags": (header.flags, local.flags),
    }
    sums = (header.crc, header.compressed_size, header.size)
    if not (header.flags & DESCRIPTOR and (local.crc, local.compressed_size, local.size) == (0, 0, 0)):
        pairs["CRC or sizes"] = (sums, (local.crc, local.compressed_size, local.size))
    for what, (central, here) in pairs.items():
        if central != here:
            raise UnsafeArchiveError(
                f"the member {quoted(header.name)} has other {what} in its local header than in the directory: "
                "tools would disagree on it"
            )


def _descriptor(data: ByteSource, header: Header, place: int, end: int) -> int:
    """Return the length of the record behind a streamed member's data: with or without magic, 32-bit or zip64."""
    record = data.read_at(place, min(24, end - place))
    for form in ("<3I", "<I2Q") if _is_narrow(header) else ("<I2Q",):
        expected = struct.pack(form, header.crc, header.compressed_size, header.size)
        for magic in (_DESCRIPTOR_MAGIC, b""):
            if record.startswith(magic + expected):
                return len(magic + expected)
    raise DamagedArchiveError(f"the sizes behind the member {quoted(header.name)} are not those in the directory")


def _is_narrow(header: Header) -> bool:
    return max(header.compressed_size, header.size) < 1 << 32
