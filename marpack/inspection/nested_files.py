"""Files within files: what wraps them, and which bytes of them an unpickler reads."""

import ast
import io
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from math import prod
from typing import Any, BinaryIO, NamedTuple, cast

from marpack.archive.bytesource import open_range, read_at
from marpack.archive.zip_format import (
    DEFLATED,
    END,
    END_MAGIC,
    LOCAL_MAGIC,
    TAIL,
    LargeZipError,
    NotZipError,
    ZipEntry,
    open_entry,
)
from marpack.inspection.pickles import (
    RUN_BY_TORCH,
    PickleFacts,
    StrayImports,
    Unscanned,
    is_dangerous,
    judge,
)
from marpack.weights.contents import (
    LEGACY_STARTS,
    Recognized,
    TorchZip,
    end_of_legacy_storages,
    is_legacy,
    plain_members,
    read_legacy_pickles,
    script_problems,
)
from marpack.weights.kind import (
    FIRST_BYTES,
    Program,
    ProgramKind,
    WeightsFormat,
    named_kind,
    package_kind,
    program_kind,
)
from marpack.weights.pickle import OPCODE_LIMIT, OPCODES, OpcodeBudget, Stream
from marpack.weights.tensors import is_exact_safetensors

HEAD = 512  # first bytes of a file, which show whether it wraps others
_CHUNK = 64 * 1024  # bytes read at once
_ZEROS = bytes(_CHUNK)
_MAX_STREAMS = 10_000  # one after the other in one file
_TRIED = 1024  # bytes that decompress, after which the file is compressed
_CLOSED = {  # compressed formats that marpack does not read: a pattern of their first bytes → name
    rb"7z\xbc\xaf\x27\x1c": "7z",
    rb"\x28\xb5\x2f\xfd": "zstandard",
    rb"[\x50-\x5f]\x2a\x4d\x18": "zstandard or lz4, after a frame to skip",
    rb"Rar!": "rar",
    rb"[\x02\x04][\x21\x22][\x4c\x4d]\x18": "lz4",
    rb"LZIP\x01": "lzip",
    rb"[\x00-\xff]{4}PTMF": "flatbuffers, as torch's mobile models are",
    rb"\xff\x06\0\0sNaPpY": "snappy",
    rb"ZF[\sxX\da-fA-F_+-]{19}": "joblib before 0.10",  # a number in base 16, then zlib
}
_BLOCKS = (bytes.fromhex("314159265359"), bytes.fromhex("177245385090"))  # how bzip2's blocks begin, and its end
_DICTIONARY = 1 << 26  # bytes that LZMA may take to try it
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

EXPANDED_LIMIT = 64 * 1024 * 1024  # bytes that a compressed file inside may expand to
MAX_DEPTH = 6  # files within files
MAX_FILES = 50_000  # in all of them together, and so is the next
MAX_EXPANDED = 128 * 1024 * 1024  # bytes that come out of compressed files, or pad pickles
_MAX_SHARED = 18  # files inside that a byte is part of, on average: three ways of reading at each of six depths
MAX_STREAMS = 1000  # pickles one after the other in one file
_SAFETENSORS = (".safetensors", ".sft")
_PADDING = b"\0 \t\r\n"
_MODULES = (".py", ".pyc", ".pyo", ".pyw", ".so", ".pyd")
_PROTOCOLS = tuple(b"\x80" + bytes([number]) for number in range(6))  # how pickles begin since protocol 2
_WRAPPED = tuple(bytes([code]) for code in b"P7RZ\x1fx\xfd\x5d\x93\x28\x04B")  # how wrapped files begin
# First bytes of a tensor's storage that no other reader takes for a pickle, a wrapped file or a program.
_NUMERIC = {bytes([code]) for code in set(range(256)) - OPCODES}.difference(_WRAPPED, FIRST_BYTES)
_FOREIGN = (WeightsFormat.SAFETENSORS, WeightsFormat.ONNX, WeightsFormat.ELF)  # weights that are not pickles by nature
# Files whose name says that somebody unpickles them, and those that may be of another format.
_COMPRESSED = r"(?:\.(?:gz|bz2|xz|lzma|z|zlib))?\Z"
_PICKLES = re.compile(rf"\.(?:pkl|pickle|joblib){_COMPRESSED}", re.IGNORECASE)
_WEIGHTS = re.compile(rf"\.(?:pt|pth|ckpt){_COMPRESSED}", re.IGNORECASE)
# The pickles that TorchScript's own reader, which is C++, loads.
_SCRIPT = r"(?:data|constants|attributes|bytecode|traced_inputs)\.pkl|code/.*\.debug_pkl"


class WrappingError(Exception):
    """The inner file cannot be read, or not to its end, for the reason in the text."""


class Inner(NamedTuple):
    """A file within another one."""

    name: str  # for messages
    file: BinaryIO
    unpickled: bool = False  # by the reader of the file around it
    expanded: bool = False  # its bytes are in memory, and go to the reader of the file around it


def unwrap(file: BinaryIO, head: bytes, *, limit: int) -> Iterator[Inner]:
    """Yield the files that a file wraps, by its first `HEAD` bytes; nothing for a plain one.

    A compressed file may expand to `limit` bytes. Raises WrappingError, after the files that could be read, for a file
    that wraps others and cannot be read to its end.
    """
    for pattern, name in _CLOSED.items():
        if re.match(pattern, head):
            raise WrappingError(f"it is packed with {name}, which marpack does not read")
    if _may_be_lzma(file):
        raise WrappingError("it may be packed with LZMA, without a container, which marpack does not read")
    if _is_tar(head):
        yield from _tar_members(file)
    elif head.startswith(_NUMPY):
        yield from _behind_arrays(file)
    elif codec := _codec(head):
        if limit <= 0:
            raise WrappingError("it is compressed, and other files have expanded to the limit")
        out = bytearray()
        problem = _expand(file, codec, out, limit)
        if out:
            yield Inner(codec.name, io.BytesIO(out), expanded=True)
        if problem:
            raise WrappingError(problem)


def is_wrapping(file: BinaryIO, at: int) -> bool:
    """Return whether the rest of a file from a byte on may wrap another one."""
    head = read_at(file, at, HEAD)
    is_closed = any(re.match(pattern, head) for pattern in _CLOSED)
    return is_closed or _may_be_lzma(file, at) or head.startswith(_NUMPY) or _is_tar(head) or _codec(head) is not None


class _Codec(NamedTuple):
    """One kind of compression."""

    name: str
    start: Callable[[], Any]  # Any: the engines of three modules, which share an interface
    damage: type[Exception]
    sure: bool = True  # its magic is long enough to believe it


def _codec(head: bytes) -> _Codec | None:
    if head.startswith(b"\x1f\x8b\x08") or _is_zlib(head):
        import zlib  # noqa: PLC0415 - each engine is rare

        gzip = head[0] == 0x1F
        return _Codec("inflated", lambda: zlib.decompressobj(zlib.MAX_WBITS | 32), zlib.error, sure=gzip)
    if head.startswith(b"BZh") and head[4:10] in _BLOCKS:
        import bz2  # noqa: PLC0415

        return _Codec("bz2", bz2.BZ2Decompressor, OSError)
    if head.startswith(b"\xfd7zXZ\0"):
        import lzma  # noqa: PLC0415

        return _Codec("lzma", lambda: lzma.LZMADecompressor(memlimit=_MEMORY), lzma.LZMAError)
    return None


def _is_zlib(head: bytes) -> bool:
    """Return whether a file begins as RFC 1950 says: deflate, a window of up to 32 KiB, no preset dictionary."""
    if len(head) < 2 or int.from_bytes(head[:2], "big") % 31:
        return False
    return head[0] & 15 == 8 and head[0] < 0x80 and not head[1] & 32


def _is_lzma(head: bytes) -> bool:
    """Return whether liblzma accepts a file as LZMA without a container."""
    if len(head) < 14 or head[0] >= 225 or head[13]:
        return False
    dictionary, size = int.from_bytes(head[1:5], "little"), int.from_bytes(head[5:13], "little")
    simple = dictionary.bit_count() < 2 or (dictionary.bit_count() == 2 and dictionary & dictionary >> 1)
    return bool(simple or dictionary == (1 << 32) - 1) and (size < 1 << 38 or size == (1 << 64) - 1)


def _may_be_lzma(file: BinaryIO, at: int = 0) -> bool:
    """Return whether a file decompresses, or begins to, into what another reader may unpickle or unwrap."""
    for _ in range(_MAX_STREAMS):
        file.seek(at)
        at += _skip_padding(file, b"\0")  # empty streams
        head = file.read(HEAD)
        if not _is_lzma(head):
            return False
        import lzma  # noqa: PLC0415 - rare

        size = min(int.from_bytes(head[1:5], "little"), _DICTIONARY)
        data = head[:1] + size.to_bytes(4, "little") + head[5:]
        engine = lzma.LZMADecompressor(lzma.FORMAT_ALONE)
        try:
            out = engine.decompress(data)
        except lzma.LZMAError:
            break
        if out and (engine.eof or len(head) == HEAD):
            return True
        if not engine.eof:
            break
        at += len(head) - len(engine.unused_data)
    else:
        return True
    with suppress(lzma.LZMAError):
        first = lzma.LZMADecompressor(lzma.FORMAT_ALONE).decompress(data, 1)
        return first not in (b"", b"\0")  # no reader takes zeros at the beginning for more than padding
    return False


def _expand(file: BinaryIO, codec: _Codec, out: bytearray, limit: int) -> str | None:
    """Append the bytes that a file expands to, and return why they end early, if they do.

    Data that may not be compressed are decompressed byte by byte at first: if that fails, they are not.
    """
    file.seek(0)
    engine, data, fed, streams, is_certain = codec.start(), b"", 0, 0, codec.sure
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
            is_certain = True  # its checksum fits
            if streams == _MAX_STREAMS:
                return f"it has over {_MAX_STREAMS:,} compressed streams in a row"
            data = engine.unused_data + data
            file.seek(-len(data), io.SEEK_CUR)
            _skip_padding(file, b"\0")
            engine, data, fed, streams = codec.start(), b"", 0, streams + 1
    return "its compressed data end too early" if fed and (is_certain or fed >= _TRIED) else None


def _skip_padding(file: BinaryIO, padding: bytes, limit: int = sys.maxsize) -> int:
    """Move to the next byte that is not padding, and return how many bytes were: more than `limit` if it gave up."""
    skipped = 0
    while skipped <= limit and (block := file.read(_CHUNK)):
        rest = b"" if _ZEROS.startswith(block) else block.lstrip(padding)
        skipped += len(block) - len(rest)
        if rest:
            file.seek(-len(rest), io.SEEK_CUR)
            break
    return skipped


def _is_tar(head: bytes) -> bool:
    """Return whether a file begins with the header of a tar of any age, by its checksum."""
    digits = head[148:156].strip(b" \0")
    if len(head) < HEAD or not re.fullmatch(b"[0-7]{1,7}", digits):
        return head[257:262] == b"ustar"
    return int(digits, 8) == sum(head[:148]) + 8 * ord(" ") + sum(head[156:HEAD]) or head[257:262] == b"ustar"


class _Bounded:
    """A file that refuses large reads."""

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
                    yield Inner(member.name, open_range(file, member.offset_data, member.size))
            end = archive.offset
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise WrappingError(f"the tar inside cannot be read: {error}") from None
    size = file.seek(0, io.SEEK_END)
    if size - end > _MAX_RECORD:
        raise WrappingError(f"over {_MAX_RECORD:,} bytes follow the end of the tar inside")
    file.seek(end)
    if rest := file.read(max(0, size - end)).lstrip(b"\0"):
        yield Inner("rest", io.BytesIO(rest), expanded=True)
    if names >= _TORCH_TAR:
        raise WrappingError("torch wrote it before its version 0.2: pickles and numbers alternate in it")


def _behind_arrays(file: BinaryIO) -> Iterator[Inner]:
    """Yield the pickle of an array of objects, or the bytes after arrays of numbers."""
    size, begin = file.seek(0, io.SEEK_END), 0
    while begin < size:
        file.seek(begin)
        head = file.read(12)
        if not head.startswith(_NUMPY):
            yield Inner("rest", open_range(file, begin, size - begin))
            return
        start = begin + (10 if head[6:7] == b"\x01" else 12)
        length = int.from_bytes(head[8 : start - begin], "little")
        if length > _MAX_HEADER or start + length > size:
            raise WrappingError(f"the header of numpy's array has {length:,} bytes")
        file.seek(start)
        try:
            fields = ast.literal_eval(_LONG.sub("", file.read(length).decode("latin-1").strip()))
            width, shape = _width(fields["descr"]), fields["shape"]
        except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError):
            raise WrappingError("the header of numpy's array cannot be read") from None
        begin = start + length
        if width is None:
            yield Inner("objects", open_range(file, begin, size - begin), unpickled=True)
            return
        begin += width * _count(shape)
    if begin > size:
        raise WrappingError("numpy's array is cut off")


def _width(descr: object) -> int | None:
    """Return the bytes of one element, by its dtype's description; None for objects. Raises WrappingError."""
    if isinstance(descr, str) and (found := _PLAIN.fullmatch(descr)):
        return int(found[2]) * _UNIT_WIDTHS.get(found[1], 1) if found[1] else 8 if found[4] else 1
    if isinstance(descr, str) and _OBJECTS.fullmatch(descr):
        return None
    if not isinstance(descr, list):
        raise WrappingError(f"numpy's array has an unknown dtype, {str(descr)[:40]!r}")
    total: int | None = 0
    for _, inner, *shape in descr:
        width = _width(inner)
        total = None if width is None or total is None else total + width * prod(map(_count, shape))
    return total


def _count(shape: object) -> int:
    """Return the number of elements of an array. Raises WrappingError for a shape that is not one."""
    sizes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(sizes, tuple) or not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise WrappingError(f"numpy's array has an invalid shape, {str(shape)[:40]}")
    return prod(sizes)


Part = PickleFacts | StrayImports | Program | Unscanned
Found = Iterator[Part]
Unwrapping = Generator[Part, None, bool]


class Claim(Enum):
    """The reason to read a file as a pickle. Without one, it is a pickle if unpickling it calls anything."""

    NUMBERS = "nothing, not even a pickle's mark: the storage of a tensor, or bytes among the values of a pickle"
    NONE = "a pickle's mark, if it begins with one"
    NAMED = "its name, which files of other formats also have"
    UNPICKLED = "its name, or the file around it, which unpickles it"


class NestedScan:
    """One scan of all files; it yields pickles, programs and the parts that it cannot scan."""

    def __init__(
        self,
        *,
        fetched: bool = False,
        opcodes: int = OPCODE_LIMIT,
        weights: str | None = None,
        members: Iterable[str] = (),
    ) -> None:
        """Start a scan within a limit of opcodes for all pickles together.

        With `fetched`, members that torch reads as numbers or code are counted and not read. `weights` is the member
        that the manifest names; an import of a module among `members` runs the archive's code.
        """
        self.budget = OpcodeBudget(opcodes)
        self.unfetched = 0
        self._thorough = not fetched
        self._weights = weights
        packed: set[str] = set()  # names by which the members and their folders can be imported
        for member in members:
            *folders, name = member.split("/")
            packed.update(folders, [name.partition(".")[0]] if name.endswith(_MODULES) else ())
        self._packed = frozenset(packed)
        self._files_left = MAX_FILES
        self._bytes_left = MAX_EXPANDED
        self._inside_left = MAX_EXPANDED * _MAX_SHARED
        self._is_over = False

    def file(
        self,
        where: str,
        file: BinaryIO,
        found: Recognized | None = None,
        depth: int = 0,
        claim: Claim = Claim.NONE,
    ) -> Found:
        """Scan one file; `found` is its format, if it is known already."""
        self._files_left -= 1
        if depth > MAX_DEPTH:
            yield Unscanned(where, f"it is nested deeper than {MAX_DEPTH} files")
            return
        size = file.seek(0, io.SEEK_END)
        self._inside_left += -size if depth else size * _MAX_SHARED
        limits = {
            f"{MAX_FILES:,} other files": self._files_left,
            f"{self.budget.count:,} opcodes of pickles (--max-opcodes)": self.budget.left - 1,
            "too many files that share their bytes": self._inside_left,
        }
        if reached := [limit for limit, left in limits.items() if left < 0]:
            yield from () if self._is_over else [Unscanned(where, f"it and all later files come after {reached[0]}")]
            self._is_over = True
            return
        file.seek(0)
        head = file.read(HEAD)
        claim = self._claim_of(where, claim, found)
        if kind := program_kind(where, head, file):
            yield Program(where, kind)
        try:
            tail = TAIL if self._thorough else END.size if depth == 0 else 0
            if archive := _zip_of(file, head, found, self.budget, tail):
                yield from self._scan_zip(where, file, archive, depth)
        except NotZipError as error:
            if claim is not Claim.NUMBERS or isinstance(error, LargeZipError):
                yield Unscanned(where, f"it begins as a zip, and cannot be read as one: {error}")
        is_wrapped = yield from self._scan_wrapped(where, file, head, depth, claim)
        claim = Claim.NONE if is_wrapped else claim
        pickles = list(found.pickles) if found else []  # those that torch.save wrote before torch 1.6
        if found is None and head.startswith(LEGACY_STARTS) and is_legacy(file):
            pickles = read_legacy_pickles(file, self.budget)
        if pickles:
            yield from self._scan_torch(where, file, pickles, depth)
        elif head and not head.startswith(LOCAL_MAGIC) and (head[0] in OPCODES or claim is Claim.UNPICKLED):
            yield from self._scan_concatenated(where, file, 0, claim, depth, first=head[:2])

    def _claim_of(self, where: str, claim: Claim, found: Recognized | None) -> Claim:
        if claim is not Claim.NONE:
            return claim
        if _PICKLES.search(where):
            return Claim.UNPICKLED
        is_foreign = found is not None and found.kind in _FOREIGN
        return Claim.NAMED if _WEIGHTS.search(where) or (where == self._weights and not is_foreign) else Claim.NONE

    def _scan_wrapped(self, where: str, file: BinaryIO, head: bytes, depth: int, claim: Claim) -> Unwrapping:
        """Scan the files that a file wraps; return whether there are any."""
        found = False
        try:
            for name, inner, is_pickle, is_expanded in unwrap(file, head, limit=min(EXPANDED_LIMIT, self._bytes_left)):
                found, inside = True, Claim.UNPICKLED if is_pickle else Claim.NONE
                if is_expanded:  # as good a pickle as the file that it comes from
                    self._bytes_left -= inner.seek(0, io.SEEK_END)
                    inside = claim
                yield from self.file(f"{where}!{name}", inner, depth=depth + 1, claim=inside)
        except WrappingError as error:
            found = True
            yield Unscanned(where, str(error))
        return found

    def _scan_zip(self, where: str, file: BinaryIO, archive: TorchZip, depth: int) -> Found:
        is_script = archive.kind is WeightsFormat.TORCHSCRIPT and not archive.is_ambiguous
        package = yield from self._judge_zip(where, archive)
        plain = plain_members(archive)
        pickled: frozenset[ZipEntry] = frozenset()
        if package in RUN_BY_TORCH:
            numbers, pickled = archive.exported_data()
            plain |= numbers
        self.unfetched += 0 if self._thorough else len(plain)
        for entry in archive.entries:
            is_plain = entry in plain
            inside = f"{where}!{entry.name}"
            if is_plain and (kind := named_kind(entry.name)):
                yield Program(inside, kind)
            if entry.size == 0 or (is_plain and not self._thorough):
                continue
            try:
                inner = open_entry(file, entry)
                if is_plain and inner.read(1) in _NUMERIC:
                    continue
                if entry.method == DEFLATED and entry.size > min(EXPANDED_LIMIT, self._bytes_left):
                    raise NotZipError(f"it expands to {entry.size:,} bytes")
                self._bytes_left -= entry.size if entry.method == DEFLATED else 0
            except NotZipError as error:
                yield Unscanned(inside, str(error))
                continue
            if entry.encrypted:
                yield Unscanned(inside, "it is encrypted, or its zip says so")
            name = entry.name.removeprefix(archive.root)
            first = archive.streams.get(name) if archive.members.get(name) is entry else None
            if first or (is_script and re.fullmatch(_SCRIPT, name)):
                pickles = [first or self.budget.read(inner)]
                yield from self._scan_torch(inside, inner, pickles, depth, script=is_script)
            else:
                claim = Claim.NUMBERS if is_plain else Claim.NONE
                claim = Claim.UNPICKLED if entry in pickled else claim
                yield from self.file(inside, inner, depth=depth + 1, claim=claim)

    def _judge_zip(self, where: str, archive: TorchZip) -> Generator[Part, None, ProgramKind | None]:
        """Judge a zip as a whole; return the kind of program that it is."""
        if archive.is_ambiguous:
            yield Unscanned(where, "it has several directories, and readers take different ones")
        if kind := package_kind(archive.entries):
            yield Program(where, kind)
            if kind is ProgramKind.TORCH_PACKAGE:
                yield Unscanned(where, "it is a torch.package: its own modules can take the place of installed ones")
        for name, reason in script_problems(archive):
            yield Unscanned(f"{where}!{name}", reason)
        return kind

    def _scan_torch(
        self, where: str, file: BinaryIO, pickles: list[Stream], depth: int, *, script: bool = False
    ) -> Found:
        """Judge the pickles that a loader of torch reads, and scan the bytes after them and their storages."""
        for stream in pickles:
            yield from self._scan_pickle(where, file, stream, depth, torch=True, script=script)
        if not pickles[-1].problem:
            end = end_of_legacy_storages(file, pickles) or pickles[-1].end  # torch.load raises where they are not whole
            yield from self._scan_concatenated(where, file, end, Claim.NONE, depth)

    def _scan_concatenated(
        self, where: str, file: BinaryIO, at: int, claim: Claim, depth: int, *, first: bytes = b""
    ) -> Found:
        """Read the pickles that follow one another from a byte on, which is padding unless `first` begins there."""
        size = file.seek(0, io.SEEK_END)
        if not first:
            at, first = self._next_pickle(file, at)
        count = 0
        while first and (first[0] in OPCODES or claim is Claim.UNPICKLED):
            count += 1
            if count > MAX_STREAMS:
                yield Unscanned(where, f"it has over {MAX_STREAMS:,} pickles in a row")
                return
            stream = self.budget.read(file, at)
            is_marked = first in _PROTOCOLS
            at, first = (stream.end, b"") if stream.problem else self._next_pickle(file, stream.end)
            wrapped = bool(first) and is_wrapping(file, at)
            if self._is_pickle(stream, claim, is_marked=is_marked, is_whole=at >= size):
                # Its name says its only loader, except as the manifest's weights: older servers unpickle those.
                is_idle = where != self._weights or (stream.is_data and not stream.imports)
                if is_idle and where.endswith(_SAFETENSORS) and is_exact_safetensors(file):
                    return
                yield from self._scan_pickle(where, file, stream, depth)
            elif stream.imports:
                yield StrayImports(where, tuple(item.path for item in stream.imports))
            claim = Claim.NAMED if claim is Claim.UNPICKLED else claim
            if wrapped:
                rest = open_range(file, at, size - at)
                yield from self.file(f"{where}@{at}", rest, depth=depth + 1, claim=claim)
                return
        if self._bytes_left < 0:
            yield Unscanned(where, "it is padded with more bytes than are read")

    def _is_pickle(self, stream: Stream, claim: Claim, *, is_marked: bool, is_whole: bool) -> bool:
        """Return whether a stream is judged as a pickle; otherwise it is data, and no unpickler calls anything."""
        if not stream.is_data or claim is Claim.UNPICKLED or (is_marked and claim is not Claim.NUMBERS):
            return True
        if stream.imports:
            is_own = any(item.module.partition(".")[0] in self._packed for item in stream.imports)
            is_certain = claim is Claim.NAMED or is_own
            return is_certain or (stream.problem is None and any(map(is_dangerous, stream.imports)))
        return stream.problem is None and (is_whole or claim is Claim.NAMED)

    def _scan_pickle(
        self, where: str, file: BinaryIO, stream: Stream, depth: int, *, torch: bool = False, script: bool = False
    ) -> Found:
        """Judge a pickle, and scan the byte strings in it that are pickles or zips."""
        yield from self._judge_pickle(where, stream, torch=torch, script=script)
        for begin, length in stream.files:
            yield from self.file(
                f"{where}@{begin}", open_range(file, begin, length), depth=depth + 1, claim=Claim.NUMBERS
            )

    def _judge_pickle(self, where: str, stream: Stream, *, torch: bool = False, script: bool = False) -> Found:
        label = where if stream.start == 0 else f"{where}@{stream.start}"
        yield judge(stream, label, torch=torch, script=script, packed=self._packed)
        if stream.problem:
            yield Unscanned(label, stream.problem)

    def _next_pickle(self, file: BinaryIO, at: int) -> tuple[int, bytes]:
        """Return where the padding ends, and the next two bytes: none at the end of the file or at the limit."""
        file.seek(at)
        skipped = _skip_padding(file, _PADDING, self._bytes_left)
        self._bytes_left -= skipped
        return at + skipped, file.read(2) if self._bytes_left >= 0 else b""


def _zip_of(file: BinaryIO, head: bytes, found: Recognized | None, budget: OpcodeBudget, tail: int) -> TorchZip | None:
    """Return the zip that a file is, or ends in, if its end record is in the last `tail` bytes.

    Raises NotZipError for what begins as a zip, and LargeZipError.
    """
    if found and found.zip:
        return found.zip
    if head.startswith(LOCAL_MAGIC):
        return TorchZip(file, budget)
    data = head
    if len(head) == HEAD:
        file.seek(max(0, file.seek(0, io.SEEK_END) - tail))
        data = file.read(tail)
    try:
        return TorchZip(file, budget) if END_MAGIC in data else None
    except LargeZipError:
        raise
    except NotZipError:
        return None
