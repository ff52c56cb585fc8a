"""The gzip stream and the tar records in it, within limits."""

import struct
from collections.abc import Iterator
from functools import cached_property

from isal import isal_zlib
from msgspec import Struct

from marpack.archive.bytesource import ByteSource
from marpack.archive.names import MAX_NAME, quoted
from marpack.archive.protocol import Limits
from marpack.errors import DamagedArchiveError, LimitExceededError, UnsafeArchiveError

_READ, _BLOCK = 1 << 18, 1 << 20  # bytes asked of the file, of the inflater
_GZIP = 31  # zlib's code for a gzip header and trailer with the largest window
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance
BLOCK = 512
_HEADER = struct.Struct("<100s8s8s8s12s12s8sc100s6s2s32s32s8s8s155s12x")
_ZEROS = bytes(BLOCK)
_SPACES = b" " * 8
_FILES = (b"0", b"\0")
_FOLDER = b"5"
_GNU_LONG_NAME, _GNU_LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_MAX_EXTENDED = 1 << 16  # bytes of a pax record or a long name
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"S": "a sparse file",
}
_PACK = "pack the file itself"


class GzipStream:
    """Gives the uncompressed bytes from the first to the last; raises ArchiveError, never anything else."""

    def __init__(self, data: ByteSource, limits: Limits) -> None:
        """Start at the beginning."""
        self._data = data
        self._limits = limits
        self._inflater = isal_zlib.decompressobj(_GZIP)
        self._place = 0  # in the file
        self._given = 0  # bytes inflated
        self._block = memoryview(b"")

    def read(self, count: int) -> bytes:
        """Return exactly `count` bytes, or fewer at the stream's end."""
        return b"".join(map(bytes, self._pieces(count)))

    def blocks(self, count: int) -> Iterator[memoryview]:
        """Yield the next `count` bytes; raises DamagedArchiveError if the stream ends before."""
        for piece in self._pieces(count):
            count -= len(piece)
            yield piece
        if count:
            raise _damaged("ends in the middle of a member")

    def finish(self) -> None:
        """Read to the end; raises UnsafeArchiveError unless nothing but zero bytes is left."""
        while block := self._next():
            if bytes(block).lstrip(b"\0"):
                raise UnsafeArchiveError("there are bytes after the archive's last record")
        rest = self._inflater.unused_data + self._data.read_at(self._place, min(_READ, self._data.size - self._place))
        if self._place + _READ < self._data.size or rest.lstrip(b"\0"):
            raise UnsafeArchiveError(
                "there are bytes after the end of the gzip stream; the server reads only the first stream",
                hint="compress it again as one stream",
            )

    def _pieces(self, count: int) -> Iterator[memoryview]:
        while count and (block := self._next()):
            piece, self._block = block[:count], block[count:]
            count -= len(piece)
            yield piece

    def _next(self) -> memoryview:
        """Return what is left of the last block, else the next one, empty at the end."""
        block, self._block = self._block, memoryview(b"")
        while not block and not self._inflater.eof:
            block = memoryview(self._inflate())
            self._given += len(block)
            self._check()
        return block

    def _inflate(self) -> bytes:
        pending = self._inflater.unconsumed_tail
        if not pending:
            pending = self._data.read_at(self._place, min(_READ, self._data.size - self._place))
            self._place += len(pending)
        try:
            block: bytes = self._inflater.decompress(pending, _BLOCK)
        except _InflateError as error:
            raise _damaged(f"cannot be inflated: {error}") from None
        if not pending and not block and not self._inflater.eof:
            raise _damaged("is truncated")
        return block

    def _check(self) -> None:
        limits = self._limits
        if self._given > limits.total + limits.allowance:
            raise LimitExceededError(
                f"the gzip stream holds more than {limits.total} bytes",
                hint="raise the limit if you trust it: --max-size",
            )
        if limits.expands_too_much(self._given, self._data.size):
            raise LimitExceededError(
                f"the gzip stream expands {self._data.size} bytes more than {limits.ratio} times",
                hint="raise the limit if you trust it: --max-ratio",
            )


def _damaged(trouble: str) -> DamagedArchiveError:
    return DamagedArchiveError(f"the gzip stream {trouble}", hint="copy or download the archive again")


class Record(Struct, frozen=True):
    """A file or a folder of a tar."""

    name: str  # as it stands there; a folder's may end with a slash
    size: int  # bytes that follow, padded to 512
    folder: bool


def records(stream: GzipStream) -> Iterator[Record]:
    """Yield the records; the caller reads each file's bytes and its padding before asking for the next.

    Raises DamagedArchiveError, UnsafeArchiveError naming the member.
    """
    pax: dict[str, str] = {}
    long_name: bytes | None = None
    while (block := stream.read(BLOCK)) != _ZEROS:
        header = _Header(block)
        data = _extended(stream, header)
        if header.kind == _GNU_LONG_NAME:
            long_name = data.rstrip(b"\0")
        elif header.kind == _PAX:
            pax = _parse_pax(data, header)
        elif header.kind == _PAX_GLOBAL:
            _check_global(_parse_pax(data, header))
        elif header.kind != _GNU_LONG_LINK:  # the link itself follows, and is refused by its name
            yield header.record(pax, long_name)
            pax, long_name = {}, None
    if pax or long_name is not None:
        raise DamagedArchiveError("the tar ends after a name without its member")


def padding(size: int) -> int:
    """Return how many bytes follow a member of that size to the next record."""
    return -size % BLOCK


class _Header:
    """One block of 512 bytes that is a header."""

    def __init__(self, block: bytes) -> None:
        if len(block) < BLOCK:
            raise DamagedArchiveError("the tar has no end: it is truncated", hint="copy or download the archive again")
        self._fields = _HEADER.unpack(block)
        if _octal(self._fields[6]) != sum(block[:148] + _SPACES + block[156:]):
            raise DamagedArchiveError("a record of the tar has a wrong checksum, or this is no tar")
        self.kind: bytes = self._fields[7]

    @cached_property
    def raw_name(self) -> bytes:
        """The name, with the prefix of POSIX ustar; GNU keeps times in that place."""
        name: bytes = self._fields[0].partition(b"\0")[0]
        prefix: bytes = self._fields[15].partition(b"\0")[0]
        return prefix + b"/" + name if prefix and self._fields[9] == b"ustar\0" else name

    @property
    def label(self) -> str:
        """The name, for messages."""
        return quoted(self.raw_name.decode("utf-8", "replace"))

    @cached_property
    def size(self) -> int:
        """How many bytes of data follow."""
        field: bytes = self._fields[4]
        size = int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)
        if size is None:
            raise DamagedArchiveError(f"the member {self.label} has no readable size")
        return size

    def record(self, pax: dict[str, str], long_name: bytes | None) -> Record:
        name = _text(long_name if long_name is not None else self.raw_name)
        if "path" in pax:
            name = pax["path"]
        if any(key.startswith("GNU.sparse") for key in pax):
            raise UnsafeArchiveError(f"the member {quoted(name)} is a sparse file", hint=_PACK)
        if self.kind not in (*_FILES, _FOLDER):
            kind = _KINDS.get(self.kind, f"of the unknown type {self.kind!r}")
            raise UnsafeArchiveError(f"the member {quoted(name)} is {kind}", hint=_PACK)
        size = _pax_size(pax["size"], name) if "size" in pax else self.size
        folder = self.kind == _FOLDER or name.endswith("/")
        if folder and size:
            raise UnsafeArchiveError(f"the member {quoted(name)} is a folder with {size} bytes of data")
        return Record(name, size, folder)


def _extended(stream: GzipStream, header: _Header) -> bytes:
    """Return what a record holds that describes the next one; nothing for a member."""
    if header.kind not in (_PAX, _PAX_GLOBAL, _GNU_LONG_NAME, _GNU_LONG_LINK):
        return b""
    if header.size > _MAX_EXTENDED:
        raise UnsafeArchiveError(f"the extended header {header.label} has more than {_MAX_EXTENDED} bytes")
    data = stream.read(header.size + padding(header.size))
    return data[: header.size]


def _parse_pax(data: bytes, header: _Header) -> dict[str, str]:
    """Parse records of a length, a space, a key, "=", a value and a newline (pax)."""
    found: dict[str, str] = {}
    while data:
        digits, _, _ = data[:21].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = data[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or data[length - 1 : length] != b"\n":
            raise DamagedArchiveError(f"the extended header {header.label} is garbled")
        name = _text(key)
        if name in found:
            raise UnsafeArchiveError(f"the extended header {header.label} gives {quoted(name)} twice")
        found[name] = _text(value) if name in ("path", "size") else ""
        data = data[length:]
    return found


def _check_global(pax: dict[str, str]) -> None:
    for key in pax:
        if key in ("path", "size", "linkpath") or key.startswith("GNU.sparse"):
            raise UnsafeArchiveError(f"a global header of the tar sets {quoted(key)} for all members")


def _pax_size(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise DamagedArchiveError(f"the member {quoted(name)} has no readable size")
    return int(text)


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    if digits and not digits.strip(b"01234567"):
        return int(digits, 8)
    return None if digits else 0


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UnsafeArchiveError(
            f"the member {quoted(raw[:MAX_NAME].decode('latin-1'))} has a name that is not UTF-8"
        ) from None
