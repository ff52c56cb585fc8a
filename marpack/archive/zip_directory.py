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
    DESCRIPTOR,
    STORED,
    Header,
    check_central,
    check_method,
    find_end,
    iter_central,
    read_local,
)
from marpack.errors import DamagedArchiveError, LimitExceededError, UnsafeArchiveError

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
        check_method(header)
        _check_sizes(header)
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
    headers = []
    place = 0
    for header in islice(iter_central(directory), end.entries):
        place += header.length
        if place > len(directory):
            raise DamagedArchiveError("the zip's directory ends in the middle of a member's name")
        check_central(header)
        headers.append(header)
    if len(headers) < end.entries:
        raise DamagedArchiveError("the zip's directory is shorter than its number of members, or garbled")
    if place != len(directory):
        raise UnsafeArchiveError("the zip's directory holds more than its number of members says")
    return headers, end.offset


def _check_kind(header: Header) -> None:
    kind = stat.S_IFMT(header.mode)
    if kind in _KINDS:
        raise UnsafeArchiveError(f"the member {quoted(header.name)} is {_KINDS[kind]}", hint="pack the file itself")
    folder = header.name.endswith("/")
    if folder != (kind == stat.S_IFDIR) and kind:
        what = "a folder by its name or by its mode, but not by both"
        raise UnsafeArchiveError(f"the member {quoted(header.name)} is {what}")
    if folder and header.size:
        raise UnsafeArchiveError(f"the member {quoted(header.name)} is a folder with {header.size} bytes of data")


def _check_sizes(header: Header) -> None:
    if header.method == STORED and header.compressed_size != header.size:
        raise DamagedArchiveError(
            f"the member {quoted(header.name)} is stored, but its two sizes differ "
            f"({header.compressed_size} and {header.size} bytes)"
        )


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
