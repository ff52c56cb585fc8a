"""Files within files: zips, compression, tar, numpy objects, and the pickles in them."""

import io
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from marpack.archive.zip_records import DEFLATED, LOCAL, LOCAL_MAGIC
from marpack.inspection.pickles import PickleFacts, Unscanned, is_dangerous, judge
from marpack.weights.detect import Recognized
from marpack.weights.kind import WeightsFormat
from marpack.weights.pickle_machine import OPCODE_LIMIT, read_pickle
from marpack.weights.pickle_stream import Stream
from marpack.weights.torch_zip import TorchZip, plain_members
from marpack.weights.zip_entries import NotZipError, ZipEntry, open_entry, stored

EXPANDED_LIMIT = 64 * 1024 * 1024  # bytes that a compressed file inside may expand to
_CHUNK = 256 * 1024
_CLOSED = {b"7z\xbc\xaf\x27\x1c": "7z", b"\x28\xb5\x2f\xfd": "zstandard", b"Rar!": "rar", b"\x04\x22\x4d\x18": "lz4"}
_OBJECTS = rb"""['"][|<>=]?O\d*['"]"""  # numpy's dtype of Python objects
MAX_DEPTH = 6  # files within files
MAX_FILES = 100_000  # in all of them together, and so are the next two
MAX_OPCODES = 100_000_000
MAX_EXPANDED = 1 << 30  # bytes that come out of compressed files
_SEARCHED = 4 * 1024 * 1024  # bytes behind a pickle that are searched for another
_MAX_STREAMS = 1000  # pickles one after the other in one file
_BEGINNINGS = frozenset(b"\x80(.FIJKLMNPSTUVXGcijlo])}BC\x8a\x8b\x8c\x8d\x8e\x8f\x88\x89\x95\x96")
_HIDDEN = rb"(?s)\x80[\x00-\x05]|[ci][\w.]{1,100}\n[\w.]{1,100}\n|\x8c.[\w.]{1,100}\x94?\x8c.[\w.]{1,100}\x94?\x93"
_ODD = frozenset([b"", *(bytes([code]) for code in {*_BEGINNINGS, *b"PB7R\x1fx\xfd\x5d\x93\x28\x04"})])
_END = b"PK\x05\x06"
# The pickles that TorchScript's own reader, which is C++, loads.
_SCRIPT = r"(?:data|constants|attributes|bytecode|traced_inputs)\.pkl|code/.*\.debug_pkl"

Found = Iterator[PickleFacts | Unscanned]


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
        name, start, damage = found
        if data := _expanded(file, start, damage, limit):
            yield name, io.BytesIO(data)
    elif head[257:262] == b"ustar":
        yield from _tar_members(file)
    elif head.startswith(b"\x93NUMPY"):
        yield from _objects(file, head)


class _Engine(Protocol):
    """What the three engines share."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, limit: int, /) -> bytes: ...


def _expander(head: bytes) -> tuple[str, Callable[[], _Engine], type[Exception]] | None:
    if head.startswith((b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")):
        import zlib  # noqa: PLC0415 - each engine is rare

        return "inflated", lambda: zlib.decompressobj(zlib.MAX_WBITS | 32), zlib.error  # gzip or zlib
    if head.startswith(b"BZh"):
        import bz2  # noqa: PLC0415

        return "bz2", bz2.BZ2Decompressor, OSError
    if head.startswith((b"\xfd7zXZ", b"\x5d\0\0")):
        import lzma  # noqa: PLC0415

        return "lzma", lzma.LZMADecompressor, lzma.LZMAError
    return None


def _expanded(file: BinaryIO, start: Callable[[], _Engine], damage: type[Exception], limit: int) -> bytes:
    """Return what a file expands to, up to where it is damaged. Raises WrappingError when that is too much."""
    file.seek(0)
    engine, out, pending = start(), bytearray(), b""
    while chunk := pending or file.read(_CHUNK):
        try:
            out += engine.decompress(chunk, limit + 1 - len(out))
        except damage:  # nobody else can expand it further, either
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
    if re.search(_OBJECTS, file.read(min(length, _CHUNK))) and begin + length < size:
        yield "objects", stored(file, begin + length, size - begin - length)


class NestedScan:
    """One look into everything; what is found is yielded, and so is what was not looked into."""

    def __init__(self, *, fetched: bool = False, opcodes: int = OPCODE_LIMIT) -> None:
        """Start with nothing seen.

        Args:
            fetched: The bytes come from elsewhere: leave out, and count, what torch itself reads as numbers or code.
            opcodes: How many one pickle may have.
        """
        self._thorough = not fetched
        self._opcodes = opcodes
        self._files_left = MAX_FILES
        self._opcodes_left = MAX_OPCODES
        self._bytes_left = MAX_EXPANDED
        self.unfetched = 0

    def file(self, where: str, file: BinaryIO, found: Recognized | None = None, depth: int = 0) -> Found:
        """Look into one file; `found` is what it was recognized as, where somebody did that already."""
        self._files_left -= 1
        if self._files_left < 0 or depth > MAX_DEPTH:
            yield Unscanned(where, "it lies too deep, or among too many other files, within the archive")
            return
        file.seek(0)
        head = file.read(264)
        if archive := _zip_of(file, head, found, at_end=self._thorough or depth == 0):
            yield from self._zip(where, file, archive, depth)
        try:
            for name, inner in unwrap(file, head, limit=min(EXPANDED_LIMIT, self._bytes_left)):
                self._bytes_left -= inner.seek(0, io.SEEK_END) if inner.seekable() else 0
                yield from self.file(f"{where}!{name}", inner, depth=depth + 1)
        except WrappingError as error:
            yield Unscanned(where, str(error))
        if head and head[0] in _BEGINNINGS and not head.startswith(LOCAL_MAGIC):
            yield from self._streams(where, file, depth)

    def _zip(self, where: str, file: BinaryIO, archive: TorchZip, depth: int) -> Found:
        is_script = archive.kind is WeightsFormat.TORCHSCRIPT
        plain = plain_members(archive)
        self.unfetched += 0 if self._thorough else len(plain)
        for entry in archive.entries:
            if entry.size == 0 or (entry in plain and not (self._thorough and _begins_oddly(file, entry))):
                continue
            name = entry.name.removeprefix(archive.root)
            inside = f"{where}!{entry.name}"
            try:
                inner = self._entry(file, entry)
            except NotZipError as error:
                yield Unscanned(inside, str(error))
                continue
            first = archive.read_already(name, entry)
            if first or (is_script and re.fullmatch(_SCRIPT, name)):
                yield from self._streams(inside, inner, depth, first=first, script=is_script)
            else:
                yield from self.file(inside, inner, depth=depth + 1)

    def _entry(self, file: BinaryIO, entry: ZipEntry) -> BinaryIO:
        """Open a member of a zip within a zip. Raises NotZipError, also when it expands to too much."""
        if entry.method == DEFLATED:
            if entry.size > min(EXPANDED_LIMIT, self._bytes_left):
                raise NotZipError(f"it expands to {entry.size:,} bytes")
            self._bytes_left -= entry.size
        return open_entry(file, entry)

    def _read(self, file: BinaryIO, offset: int, *, joblib: bool = False) -> Stream:
        stream = read_pickle(file, offset, limit=min(self._opcodes, self._opcodes_left), joblib=joblib)
        self._opcodes_left -= stream.opcodes
        return stream

    def _streams(
        self, where: str, file: BinaryIO, depth: int, *, first: Stream | None = None, script: bool = False
    ) -> Found:
        """Read the pickles that follow one another from a file's first byte on."""
        size = file.seek(0, io.SEEK_END)
        end = 0
        for _ in range(_MAX_STREAMS):
            stream = first or self._read(file, end)
            first = None
            if not _matters(stream, file, size):
                break
            yield from self._stream(where, file, stream, depth, script=script)
            if stream.has_arrays:  # judged as pickle.load reads it, and as joblib.load does
                stream = self._read(file, end, joblib=True)
                yield from self._stream(where, file, stream, depth)
            end = stream.end
            if stream.problem or end >= size:
                break
        if 0 < end < size and self._thorough:
            yield from self._search(where, file, end, depth)

    def _stream(self, where: str, file: BinaryIO, stream: Stream, depth: int, *, script: bool = False) -> Found:
        label = where if stream.start == 0 else f"{where}@{stream.start}"
        yield judge(stream, label, script=script)
        if stream.too_long:
            yield Unscanned(label, f"{stream.problem}; what follows was not read")
        for begin, length in stream.payloads:
            inside = stored(file, begin, length)
            yield from self.file(f"{where}@{begin}", inside, depth=depth + 1)

    def _search(self, where: str, file: BinaryIO, begin: int, depth: int) -> Found:
        """Look for a pickle that begins somewhere behind the others."""
        file.seek(begin)
        data = file.read(_SEARCHED)
        end = 0
        for match in re.finditer(_HIDDEN, data):
            if match.start() < end:
                continue
            stream = self._read(file, begin + match.start())
            if stream.imports and (stream.problem is None or any(map(is_dangerous, stream.imports))):
                end = stream.end - begin
                yield from self._stream(where, file, stream, depth)


def _zip_of(file: BinaryIO, head: bytes, found: Recognized | None, *, at_end: bool) -> TorchZip | None:
    """Return the zip that a file is, or ends in: readers of zips begin at the end."""
    if found and found.zip:
        return found.zip
    if not head.startswith(LOCAL_MAGIC):
        if not at_end:
            return None
        file.seek(max(0, file.seek(0, io.SEEK_END) - len(_END) - 18))
        if file.read(len(_END)) != _END:
            return None
    try:
        return TorchZip.read(file)
    except NotZipError:
        return None


def _begins_oddly(file: BinaryIO, entry: ZipEntry) -> bool:
    """Tell whether numbers could be something else, by their first byte: the one look that all of them get."""
    if entry.header < 0:
        return True
    file.seek(entry.header)
    data = file.read(512)
    begin = LOCAL.size + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
    return data[begin : begin + 1] in _ODD


def _matters(stream: Stream, file: BinaryIO, size: int) -> bool:
    """Tell whether a stream is a pickle to anyone, and not text or numbers that begin like one."""
    if stream.inert:
        return False
    file.seek(stream.start)
    marked = file.read(1) == b"\x80"
    if stream.problem is None:
        return marked or bool(stream.imports) or stream.end == size
    return marked or stream.too_long or stream.calls > 0 or any(map(is_dangerous, stream.imports))
