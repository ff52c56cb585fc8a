"""The walk through files within files, and which bytes of them an unpickler would be given."""

import io
import re
from collections.abc import Generator, Iterator
from enum import Enum
from typing import BinaryIO

from marpack.archive.zip_records import DEFLATED, END, END_MAGIC, LOCAL, LOCAL_MAGIC
from marpack.inspection.pickles import HostileExpression, PickleFacts, Unscanned, is_dangerous, judge
from marpack.inspection.wrappings import HEAD, WrappingError, unwrap
from marpack.weights import legacy
from marpack.weights.bytestream import read_at
from marpack.weights.detect import Recognized
from marpack.weights.kind import WeightsFormat
from marpack.weights.pickle_machine import OPCODE_LIMIT, OPCODES, OpcodeBudget
from marpack.weights.pickle_stream import Stream
from marpack.weights.programs import FIRST_BYTES, Program, ProgramKind, package_kind, program_kind
from marpack.weights.torch_zip import TorchZip, plain_members
from marpack.weights.zip_entries import TAIL, LargeZipError, NotZipError, ZipEntry, open_entry, stored

EXPANDED_LIMIT = 64 * 1024 * 1024  # bytes that a compressed file inside may expand to
MAX_DEPTH = 6  # files within files
MAX_FILES = 50_000  # in all of them together, and so is the next
MAX_EXPANDED = 128 * 1024 * 1024  # bytes that come out of compressed files, or pad pickles
MAX_STREAMS = 1000  # pickles one after the other in one file
_CHUNK = 64 * 1024
_MAGIC = (b"\x80", b"L")  # with which torch.save's magic number may begin
_PADDING = b"\0 \t\r\n"
_PROTOCOLS = tuple(b"\x80" + bytes([number]) for number in range(6))  # how pickles begin since protocol 2
_ODD = (b"P", b"7", b"R", b"\x1f", b"x", b"\xfd", b"\x5d", b"\x93", b"\x28", b"\x04", b"B")  # how wrappings begin
# Files whose name says that somebody unpickles them, and those that may be of another format.
_COMPRESSED = r"(?:\.(?:gz|bz2|xz|lzma|z|zlib))?\Z"
_PICKLES = re.compile(rf"\.(?:pkl|pickle|joblib){_COMPRESSED}", re.IGNORECASE)
_WEIGHTS = re.compile(rf"\.(?:pt|pth|ckpt){_COMPRESSED}", re.IGNORECASE)
# The pickles that TorchScript's own reader, which is C++, loads.
_SCRIPT = r"(?:data|constants|attributes|bytecode|traced_inputs)\.pkl|code/.*\.debug_pkl"
# Formats that are recognized by more than a pickle's marks, so that no name or first byte makes them one.
_OTHERS = (WeightsFormat.SAFETENSORS, WeightsFormat.ONNX, WeightsFormat.ELF)

Part = PickleFacts | HostileExpression | Program | Unscanned
Found = Iterator[Part]
Unwrapping = Generator[Part, None, bool]


class Claim(Enum):
    """What speaks for it that a file is a pickle."""

    NUMBERS = "nothing, whatever it begins with: numbers, or bytes among the values of a pickle"
    NONE = "nothing but its bytes"
    NAMED = "its name, which files of other formats have, too"
    UNPICKLED = "its name, or what it lies in"


class NestedScan:
    """One look into everything; what is found is yielded, and so is what was not looked into."""

    def __init__(self, *, fetched: bool = False, opcodes: int = OPCODE_LIMIT, weights: str | None = None) -> None:
        """Start with nothing seen.

        Args:
            fetched: The bytes come from elsewhere: leave out, and count, what torch itself reads as numbers or code.
            opcodes: How many all pickles together may have.
            weights: The member that the manifest names as the weights.
        """
        self.budget = OpcodeBudget(opcodes)
        self.unfetched = 0
        self._thorough = not fetched
        self._weights = weights
        self._files_left = MAX_FILES
        self._bytes_left = MAX_EXPANDED
        self._is_over = False

    def file(
        self,
        where: str,
        file: BinaryIO,
        found: Recognized | None = None,
        depth: int = 0,
        claim: Claim = Claim.NONE,
    ) -> Found:
        """Look into one file; `found` is what it was recognized as, where somebody did that already."""
        self._files_left -= 1
        if reason := self._spent(depth):
            if not self._is_over or depth > MAX_DEPTH:
                yield Unscanned(where, reason)
            self._is_over |= depth <= MAX_DEPTH
            return
        file.seek(0)
        head = file.read(HEAD)
        claim = self._claim(where, claim, found)
        if kind := program_kind(where, head, file):
            yield Program(where, kind)
        try:
            tail = TAIL if self._thorough else END.size if depth == 0 else 0
            if archive := _zip_of(file, head, found, self.budget, tail):
                yield from self._zip(where, file, archive, depth)
        except NotZipError as error:
            if claim is not Claim.NUMBERS or isinstance(error, LargeZipError):
                yield Unscanned(where, f"it begins as a zip, and cannot be read as one: {error}")
        is_wrapped = yield from self._wrapped(where, file, head, depth, claim)
        if pickles := _legacy_pickles(file, head, found, self.budget):
            yield from self._legacy(where, file, pickles, depth)
        elif head and not head.startswith(LOCAL_MAGIC):
            claim = Claim.NONE if is_wrapped else claim
            if head[0] in OPCODES or claim is Claim.UNPICKLED:
                yield from self._follow(where, file, 0, claim, depth, first=head[:2])

    def _wrapped(self, where: str, file: BinaryIO, head: bytes, depth: int, claim: Claim) -> Unwrapping:
        """Look into the files that a file wraps; return whether there is any."""
        found = False
        try:
            for name, inner, is_pickle in unwrap(file, head, limit=min(EXPANDED_LIMIT, self._bytes_left)):
                found, inside = True, Claim.UNPICKLED if is_pickle else Claim.NONE
                if isinstance(inner, io.BytesIO):  # expanded: as good a pickle as the file that it comes from
                    self._bytes_left -= inner.seek(0, io.SEEK_END)
                    inside = claim
                yield from self.file(f"{where}!{name}", inner, depth=depth + 1, claim=inside)
        except WrappingError as error:
            found = True
            yield Unscanned(where, str(error))
        return found

    def _spent(self, depth: int) -> str | None:
        """Return why no more is looked into, if so."""
        if depth > MAX_DEPTH:
            return f"it lies deeper than {MAX_DEPTH} files within files"
        if self._files_left < 0:
            return f"it lies, with all that follows, behind {MAX_FILES:,} other files"
        if self.budget.left <= 0:
            return f"it lies, with all that follows, behind {self.budget.count:,} opcodes of pickles (--max-opcodes)"
        return None

    def _claim(self, where: str, claim: Claim, found: Recognized | None) -> Claim:
        if found and found.kind in _OTHERS:
            return Claim.NUMBERS
        if claim is not Claim.NONE:
            return claim
        if _PICKLES.search(where):
            return Claim.UNPICKLED
        return Claim.NAMED if where == self._weights or _WEIGHTS.search(where) else Claim.NONE

    def _zip(self, where: str, file: BinaryIO, archive: TorchZip, depth: int) -> Found:
        is_script = archive.kind is WeightsFormat.TORCHSCRIPT
        numbers, pickled = yield from self._packed(where, archive)
        plain = plain_members(archive) | numbers
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
            if entry.encrypted:
                yield Unscanned(inside, "it is encrypted, or its zip says so")
            first = archive.read_already(name, entry)
            if first or (is_script and re.fullmatch(_SCRIPT, name)):
                first = first or self.budget.read(inner)
                yield from self._pickle(inside, inner, first, depth, torch=True, script=is_script)
                if not first.problem:
                    yield from self._follow(inside, inner, first.end, Claim.NONE, depth)
            else:
                claim = Claim.NUMBERS if entry in plain else Claim.NONE
                claim = Claim.UNPICKLED if entry in pickled else claim
                yield from self.file(inside, inner, depth=depth + 1, claim=claim)

    def _packed(self, where: str, archive: TorchZip) -> Generator[Part, None, tuple[frozenset[ZipEntry], ...]]:
        """Judge a zip as a whole; return which members torch.export.load reads as numbers, and which it unpickles."""
        if kind := package_kind(archive.entries):
            yield Program(where, kind)
            if kind is ProgramKind.TORCH_PACKAGE:
                yield Unscanned(where, "it is a torch.package: its own modules can take the place of installed ones")
        if not archive.is_exported:
            return frozenset(), frozenset()
        from marpack.weights.exported_scan import scan_exported  # noqa: PLC0415 - many types that few archives need

        exported = scan_exported(archive, self.budget)
        for problem in exported.problems:
            reported = HostileExpression if problem.is_dangerous else Unscanned
            yield reported(f"{where}!{problem.member}", problem.reason)
        return exported.numbers, exported.pickles

    def _entry(self, file: BinaryIO, entry: ZipEntry) -> BinaryIO:
        """Open a member of a zip within a zip. Raises NotZipError, also when it expands to too much."""
        if entry.method == DEFLATED:
            if entry.size > min(EXPANDED_LIMIT, self._bytes_left):
                raise NotZipError(f"it expands to {entry.size:,} bytes")
            self._bytes_left -= entry.size
        return open_entry(file, entry)

    def _legacy(self, where: str, file: BinaryIO, pickles: list[Stream], depth: int) -> Found:
        """Judge what torch.save wrote before torch 1.6, and look behind its storages."""
        for stream in pickles:
            yield from self._pickle(where, file, stream, depth, torch=True)
        if not pickles[-1].problem:
            end = legacy.end_of_storages(file, pickles) or pickles[-1].end  # torch.load raises where they are not whole
            yield from self._follow(where, file, end, Claim.NONE, depth)

    def _follow(self, where: str, file: BinaryIO, at: int, claim: Claim, depth: int, *, first: bytes = b"") -> Found:
        """Read the pickles that follow one another from a byte on, which is padding unless `first` begins there."""
        size = file.seek(0, io.SEEK_END)
        if not first:
            at, first = self._behind(file, at)
        count = 0
        while first and (first[0] in OPCODES or claim is Claim.UNPICKLED):
            count += 1
            if count > MAX_STREAMS:
                yield Unscanned(where, f"it has over {MAX_STREAMS:,} pickles in a row")
                return
            stream = self.budget.read(file, at)
            if stream.imports and stream.has_arrays:
                plain, stream = stream, self.budget.read(file, at, joblib=True)
                if plain.unfollowed or not plain.imports.keys() <= stream.imports.keys():  # numbers read as opcodes
                    yield from _judged(where, plain)
            marked = first in _PROTOCOLS
            at, first = (stream.end, b"") if stream.problem else self._behind(file, stream.end)
            if _is_pickle(stream, claim, marked=marked, is_whole=at >= size):
                yield from self._pickle(where, file, stream, depth)
            claim = Claim.NUMBERS if claim is Claim.NUMBERS else Claim.NONE
        if self._bytes_left < 0:
            yield Unscanned(where, "it is padded with more bytes than are read")

    def _pickle(
        self, where: str, file: BinaryIO, stream: Stream, depth: int, *, torch: bool = False, script: bool = False
    ) -> Found:
        """Judge a pickle, and look into the byte strings in it that are pickles or zips."""
        yield from _judged(where, stream, torch=torch, script=script)
        for begin, length in stream.files:
            yield from self.file(f"{where}@{begin}", stored(file, begin, length), depth=depth + 1, claim=Claim.NUMBERS)

    def _behind(self, file: BinaryIO, at: int) -> tuple[int, bytes]:
        """Return where the padding at a byte ends, and the two bytes there: none at the end, or where we give up."""
        file.seek(at)
        while (chunk := file.read(_CHUNK)) and self._bytes_left >= 0:
            rest = chunk.lstrip(_PADDING)
            at += len(chunk) - len(rest)
            if rest:
                return at, _two(file, at)
            self._bytes_left -= len(chunk)
        return at, b""


def _two(file: BinaryIO, at: int) -> bytes:
    file.seek(at)
    return file.read(2)


def _judged(where: str, stream: Stream, *, torch: bool = False, script: bool = False) -> Found:
    label = where if stream.start == 0 else f"{where}@{stream.start}"
    yield judge(stream, label, torch=torch, script=script)
    if stream.problem:
        yield Unscanned(label, stream.problem)


def _is_pickle(stream: Stream, claim: Claim, *, marked: bool, is_whole: bool) -> bool:
    """Tell whether a stream is a pickle to anyone, and not text or numbers that begin like one.

    To import is not to run anything but what is packed or installed: words one below the other do that.
    """
    if claim is Claim.UNPICKLED or (marked and claim is not Claim.NUMBERS):
        return True
    if claim is Claim.NAMED and not (stream.is_data and stream.opcodes == 1 and not stream.imports):
        return True  # else no unpickler gets beyond its first byte
    if stream.is_data:
        return False
    is_bad = any(map(is_dangerous, stream.imports))
    if stream.asks:
        return stream.acts and is_bad
    if stream.problem is None and not stream.acts and not stream.imports:
        return is_whole
    return stream.problem is not None or stream.acts or is_bad


def _legacy_pickles(file: BinaryIO, head: bytes, found: Recognized | None, budget: OpcodeBudget) -> list[Stream]:
    """Return the pickles that torch.save wrote before torch 1.6, if it did."""
    if found or head[:1] not in _MAGIC:
        return list(found.pickles) if found else []
    return legacy.read_pickles(file, budget) if legacy.looks_like(file, head) else []


def _zip_of(file: BinaryIO, head: bytes, found: Recognized | None, budget: OpcodeBudget, tail: int) -> TorchZip | None:
    """Return the zip that a file is, or ends in, if its end record lies in the last `tail` bytes.

    Raises NotZipError for what begins as a zip, and LargeZipError.
    """
    if found and found.zip:
        return found.zip
    if head.startswith(LOCAL_MAGIC):
        return TorchZip.read(file, budget)
    data = head
    if len(head) == HEAD:
        file.seek(max(0, file.seek(0, io.SEEK_END) - tail))
        data = file.read(tail)
    try:
        return TorchZip.read(file, budget) if END_MAGIC in data else None
    except LargeZipError:
        raise
    except NotZipError:
        return None


def _begins_oddly(file: BinaryIO, entry: ZipEntry) -> bool:
    """Tell whether numbers could be something else, by their first byte: the one look that all of them get."""
    if entry.header < 0:
        return True
    data = read_at(file, entry.header, HEAD)
    begin = LOCAL.size + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
    first = data[begin : begin + 1]
    return not first or first[0] in OPCODES or first in _ODD or first in FIRST_BYTES
