"""What wraps another file: compression, tar, and the header that numpy puts before numbers and objects."""

import ast
import io
import re
from collections.abc import Callable, Iterator
from math import prod
from typing import BinaryIO, NamedTuple, Protocol, cast

from marpack.weights.zip_entries import stored

HEAD = 512  # bytes of a file that tell what wraps it
_CHUNK = 64 * 1024  # bytes fed to an engine at once
_MAX_STREAMS = 10_000  # one after the other in one file
_TRIED = 1024  # bytes after which nobody doubts that they are compressed
_CLOSED = {b"7z\xbc\xaf\x27\x1c": "7z", b"\x28\xb5\x2f\xfd": "zstandard", b"Rar!": "rar", b"\x04\x22\x4d\x18": "lz4"}
_ZFILE, _ZFILE_LENGTH = b"ZF", slice(2, 21)  # joblib before 0.10: a number in base 16, then zlib
_BLOCKS = (bytes.fromhex("314159265359"), bytes.fromhex("177245385090"))  # how bzip2's blocks begin, and its end
_ALONE = b"\x5d\0\0"  # how LZMA without a container begins, as nearly everybody writes it
_DICTIONARY = 1 << 26  # bytes; more are never needed within the limit of what is expanded
_MEMORY = 128 * 1024 * 1024  # bytes that xz may take
_MAX_MEMBERS = 20_000  # of a tar, folders and links among them
_MAX_RECORD = 1 << 20  # bytes of a tar's extended header
_TORCH_TAR = {"sys_info", "pickle", "storages", "tensors"}
_NUMPY = b"\x93NUMPY"
_MAX_HEADER = 1 << 16  # bytes of numpy's header
_PLAIN = re.compile(r"[<>=|]?(?:([biufcSUVa])(\d+)|([?])|([mM]8)(?:\[[\w/]+\])?)")
_UNIT_WIDTHS = {"U": 4}  # bytes per counted unit; 1 for all others
_OBJECTS = re.compile(r"[<>=|]?O8?")
_LONG = re.compile(r"(?<=\d)L\b")  # what Python 2 wrote behind numbers


class WrappingError(Exception):
    """The inner file cannot be looked into, or not to its end; the text says why."""


class Inner(NamedTuple):
    """A file within another one."""

    name: str  # for messages
    file: BinaryIO
    unpickled: bool = False  # by whoever opens the wrapping


def unwrap(file: BinaryIO, head: bytes, *, limit: int) -> Iterator[Inner]:
    """Yield the files that a file wraps; nothing for a plain one.

    Args:
        file: Seekable.
        head: Its first `HEAD` bytes.
        limit: How many bytes a compressed file may expand to.

    Raises WrappingError for what is wrapped but cannot be followed to its end, after what could be.
    """
    for magic, name in _CLOSED.items():
        if head.startswith(magic):
            raise WrappingError(f"it is compressed with {name}, which marpack does not read")
    if _is_zfile(head):
        raise WrappingError("it is compressed as joblib did before version 0.10, which marpack does not read")
    if _is_tar(head):
        yield from _tar_members(file)
    elif head.startswith(_NUMPY):
        yield from _behind_arrays(file)
    elif codec := _codec(head):
        if limit <= 0:
            raise WrappingError("it is compressed, and what others expand to is as much as is looked into")
        out = bytearray()
        problem = _expand(file, codec, out, limit)
        if out:
            yield Inner(codec.name, io.BytesIO(out))
        if problem:
            raise WrappingError(problem)


def wraps(head: bytes) -> bool:
    """Return whether a file that begins with these `HEAD` bytes may wrap another one."""
    return head.startswith((*_CLOSED, _NUMPY)) or _is_tar(head) or _is_zfile(head) or _codec(head) is not None


def _is_zfile(head: bytes) -> bool:
    try:
        int(head[_ZFILE_LENGTH], 16)
    except ValueError:
        return False
    return head.startswith(_ZFILE)


class _Engine(Protocol):
    """What the three engines share."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, limit: int, /) -> bytes: ...


class _Codec(NamedTuple):
    """One kind of compression."""

    name: str
    start: Callable[[], _Engine]
    damage: type[Exception]
    sure: bool = True  # its magic is long enough to believe it
    has_checksum: bool = True
    lead: bytes = b""  # what stands in the place of the file's first bytes


def _codec(head: bytes) -> _Codec | None:
    if head.startswith(b"\x1f\x8b\x08") or _is_zlib(head):
        import zlib  # noqa: PLC0415 - each engine is rare

        gzip = head[0] == 0x1F
        return _Codec("inflated", lambda: zlib.decompressobj(zlib.MAX_WBITS | 32), zlib.error, sure=gzip)
    if head.startswith(b"BZh") and head[4:10] in _BLOCKS:
        import bz2  # noqa: PLC0415

        return _Codec("bz2", bz2.BZ2Decompressor, OSError)
    alone = _is_lzma(head)
    if head.startswith(b"\xfd7zXZ\0") or alone:
        import lzma  # noqa: PLC0415

        size = min(int.from_bytes(head[1:5], "little"), _DICTIONARY)
        lead = head[:1] + size.to_bytes(4, "little") if alone else b""
        sure = not alone or head.startswith(_ALONE)
        return _Codec("lzma", lambda: lzma.LZMADecompressor(memlimit=_MEMORY), lzma.LZMAError, sure, not alone, lead)
    return None


def _is_zlib(head: bytes) -> bool:
    """Tell whether RFC 1950 has it: deflate, a window of up to 32 KiB, a check of 31, no preset dictionary."""
    if len(head) < 2 or int.from_bytes(head[:2], "big") % 31:
        return False
    return head[0] & 15 == 8 and head[0] < 0x80 and not head[1] & 32


def _is_lzma(head: bytes) -> bool:
    """Tell whether liblzma takes it for LZMA without a container: any properties, a size that can be, a first 0."""
    if len(head) < 14 or head[0] >= 225 or head[13]:
        return False
    dictionary, size = int.from_bytes(head[1:5], "little"), int.from_bytes(head[5:13], "little")
    simple = dictionary.bit_count() < 2 or (dictionary.bit_count() == 2 and dictionary & dictionary >> 1)
    return bool(simple or dictionary == (1 << 32) - 1) and (size < 1 << 38 or size == (1 << 64) - 1)


def _expand(file: BinaryIO, codec: _Codec, out: bytearray, limit: int) -> str | None:
    """Append what a file expands to; return why that is not all of it, if it is not.

    What only looks compressed is fed byte by byte at first: it comes to nothing at once, and nothing is said of it.
    """
    file.seek(len(codec.lead))
    engine, data, fed, streams, is_certain = codec.start(), codec.lead, 0, 0, codec.sure
    while data or (data := file.read(_CHUNK)):
        believed = is_certain or fed >= _TRIED
        step = len(data) if believed else 1
        try:
            out += engine.decompress(data[:step], limit + 1 - len(out))
        except codec.damage:
            return "its compressed data are damaged" if believed else None
        if len(out) > limit:
            return f"it expands to over {limit:,} bytes"
        fed, data = fed + step, data[step:]
        if engine.eof:
            is_certain |= bool(out) or codec.has_checksum  # LZMA without a container has no checksum
            if streams == _MAX_STREAMS:
                return f"it has over {_MAX_STREAMS:,} compressed streams in a row"
            data = (engine.unused_data + data).lstrip(b"\0")
            engine, fed, streams = codec.start(), 0, streams + 1
    return "its compressed data end too early" if fed and (is_certain or fed >= _TRIED) else None


def _is_tar(head: bytes) -> bool:
    """Tell whether a file begins with the header of a tar, of whatever age: its checksum tells."""
    digits = head[148:156].strip(b" \0")
    if len(head) < HEAD or not re.fullmatch(b"[0-7]{1,7}", digits):
        return head[257:262] == b"ustar"
    return int(digits, 8) == sum(head[:148]) + 8 * ord(" ") + sum(head[156:HEAD]) or head[257:262] == b"ustar"


class _Bounded:
    """A file of which nobody reads much at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_RECORD:
            raise WrappingError(f"the tar inside has an extended header of over {_MAX_RECORD:,} bytes")
        return self._file.read(size)


def _tar_members(file: BinaryIO) -> Iterator[Inner]:
    import tarfile  # noqa: PLC0415 - rare

    file.seek(0)
    names: set[str] = set()
    try:
        with tarfile.open(fileobj=cast("BinaryIO", _Bounded(file)), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number >= _MAX_MEMBERS:
                    raise WrappingError(f"the tar inside has over {_MAX_MEMBERS:,} members")
                if member.sparse:
                    raise WrappingError(f"the tar inside has a sparse file, {member.name}")
                if member.isreg() or member.type not in tarfile.SUPPORTED_TYPES:  # as tarfile takes them
                    names.add(member.name)
                    yield Inner(member.name, stored(file, member.offset_data, member.size))
            end = archive.offset
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise WrappingError(f"the tar inside cannot be read: {error}") from None
    if rest := _behind_zeros(file, end):
        yield rest
    if names >= _TORCH_TAR:
        raise WrappingError("torch wrote it before its version 0.2: pickles and numbers alternate in it")


def _behind_zeros(file: BinaryIO, begin: int) -> Inner | None:
    """Return what follows the zeros at the end of a tar, if anything does. Raises WrappingError."""
    size = file.seek(0, io.SEEK_END)
    if size - begin > _MAX_RECORD:
        raise WrappingError(f"over {_MAX_RECORD:,} bytes follow the end of the tar inside")
    file.seek(begin)
    rest = file.read(max(0, size - begin)).lstrip(b"\0")
    return Inner("rest", io.BytesIO(rest)) if rest else None


def _behind_arrays(file: BinaryIO) -> Iterator[Inner]:
    """Yield what follows the headers of numpy's arrays: a pickle if one holds objects, else what stands behind all."""
    size, begin = file.seek(0, io.SEEK_END), 0
    while begin < size:
        file.seek(begin)
        head = file.read(12)
        if not head.startswith(_NUMPY):
            yield Inner("rest", stored(file, begin, size - begin))
            return
        start = begin + (10 if head[6:7] == b"\x01" else 12)
        length = int.from_bytes(head[8 : start - begin], "little")
        if length > _MAX_HEADER or start + length > size:
            raise WrappingError(f"the header of numpy's array has {length:,} bytes")
        file.seek(start)
        numbers = _array_bytes(file.read(length))
        begin = start + length + (numbers or 0)
        if numbers is None:
            yield Inner("objects", stored(file, begin, size - begin), unpickled=True)
            return
    if begin > size:
        raise WrappingError("numpy's array is cut off")


def _array_bytes(header: bytes) -> int | None:
    """Return how many bytes of numbers follow a header of numpy's; None for objects. Raises WrappingError."""
    text = header.decode("latin-1").strip()
    for spelt in (text, _LONG.sub("", text)):
        try:
            fields = ast.literal_eval(spelt)
            width, shape = _width(fields["descr"]), fields["shape"]
        except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError):
            continue
        return None if width is None else width * _count(shape)
    raise WrappingError("the header of numpy's array cannot be read")


def _width(descr: object) -> int | None:
    """Return the bytes of one element, by its dtype's description; None for objects. Raises WrappingError."""
    if isinstance(descr, str) and (found := _PLAIN.fullmatch(descr)):
        return int(found[2]) * _UNIT_WIDTHS.get(found[1], 1) if found[1] else 8 if found[4] else 1
    if isinstance(descr, str) and _OBJECTS.fullmatch(descr):
        return None
    if not isinstance(descr, list):
        raise WrappingError(f"numpy's array has an unknown dtype, {str(descr)[:40]!r}")
    total: int | None = 0
    for item in descr:
        match item:
            case (_, inner):
                count = 1
            case (_, inner, shape):
                count = _count(shape)
            case _:
                raise WrappingError("numpy's array has an unknown dtype")
        width = _width(inner)
        total = None if width is None or total is None else total + width * count
    return total


def _count(shape: object) -> int:
    """Return the number of elements of an array. Raises WrappingError for a shape that is not one."""
    sizes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(sizes, tuple) or not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise WrappingError(f"numpy's array has an invalid shape, {str(shape)[:40]}")
    return prod(sizes)
