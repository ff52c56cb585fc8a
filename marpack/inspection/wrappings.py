"""What wraps other files without being a zip: compression, tar and numpy's object arrays."""

import io
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from marpack.weights.zip_entries import stored

EXPANDED_LIMIT = 64 * 1024 * 1024  # bytes that a compressed file inside may expand to
_CHUNK = 256 * 1024
_CLOSED = {b"7z\xbc\xaf\x27\x1c": "7z", b"\x28\xb5\x2f\xfd": "zstandard", b"Rar!": "rar", b"\x04\x22\x4d\x18": "lz4"}
_OBJECTS = re.compile(rb"""['"][|<>=]?O\d*['"]""")  # numpy's dtype of Python objects


class WrappingError(Exception):
    """The inner file cannot be looked into; the text says why."""


def unwrap(file: BinaryIO, head: bytes, *, limit: int = EXPANDED_LIMIT) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the files that a file wraps, by a name for messages; nothing for a plain file.

    Args:
        file: Seekable.
        head: Its first 264 bytes.
        limit: How many bytes a compressed file may expand to.

    Raises WrappingError for what is wrapped but cannot be opened.
    """
    for magic, name in _CLOSED.items():
        if head.startswith(magic):
            raise WrappingError(f"it is compressed with {name}, which marpack does not read")
    if found := _expander(head):
        name, start = found
        if data := _expanded(file, start, limit):
            yield name, io.BytesIO(data)
    elif head[257:262] == b"ustar":
        yield from _tar_members(file)
    elif head.startswith(b"\x93NUMPY"):
        yield from _objects(file, head)


def _expander(head: bytes) -> tuple[str, Callable[[], Any]] | None:  # Any: the three engines share no base class
    if head.startswith((b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")):
        import zlib  # noqa: PLC0415 - each engine is rare

        return "inflated", lambda: zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, whichever it is
    if head.startswith(b"BZh"):
        import bz2  # noqa: PLC0415

        return "bz2", bz2.BZ2Decompressor
    if head.startswith((b"\xfd7zXZ", b"\x5d\0\0")):
        import lzma  # noqa: PLC0415

        return "lzma", lzma.LZMADecompressor
    return None


def _expanded(file: BinaryIO, start: Callable[[], Any], limit: int) -> bytes:  # Any: as above
    """Return what a file expands to, up to where it is damaged. Raises WrappingError when that is too much."""
    file.seek(0)
    engine, out, pending = start(), bytearray(), b""
    while chunk := pending or file.read(_CHUNK):
        try:
            out += engine.decompress(chunk, limit + 1 - len(out))
        except Exception:  # noqa: BLE001 - zlib.error, OSError, LZMAError: nobody else can expand it further, either
            break
        if len(out) > limit:
            raise WrappingError(f"it expands to over {limit:,} bytes")
        pending = getattr(engine, "unconsumed_tail", b"")
        if engine.eof:
            pending, engine = engine.unused_data, start()
    return bytes(out)


def _tar_members(file: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    import tarfile  # noqa: PLC0415 - rare

    file.seek(0)
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                if member.isreg() and not member.sparse:
                    yield member.name, stored(file, member.offset_data, member.size)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise WrappingError(f"the tar inside cannot be read: {error}") from None


def _objects(file: BinaryIO, head: bytes) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the pickle that follows the header of a .npy of Python objects."""
    width = 2 if head[6:7] == b"\x01" else 4
    begin = 8 + width
    length = int.from_bytes(head[8:begin], "little")
    size = file.seek(0, io.SEEK_END)
    file.seek(begin)
    if _OBJECTS.search(file.read(min(length, _CHUNK))) and begin + length < size:
        yield "objects", stored(file, begin + length, size - begin - length)
