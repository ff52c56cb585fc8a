"""The walk through files within files, and which bytes of them an unpickler would be given."""

import io
import re
from collections.abc import Generator, Iterable, Iterator
from enum import Enum
from typing import BinaryIO

from marpack.archive.zip_records import DEFLATED, END, END_MAGIC, LOCAL, LOCAL_MAGIC
from marpack.inspection.pickles import (
    HostileExpression,
    PickleFacts,
    PickleVerdict,
    StrayImports,
    Unscanned,
    is_dangerous,
    is_packed,
    judge,
)
from marpack.inspection.wrappings import HEAD, WrappingError, unwrap, wraps
from marpack.weights import legacy, safetensors
from marpack.weights.bytestream import read_at
from marpack.weights.detect import Recognized
from marpack.weights.kind import WeightsFormat
from marpack.weights.pickle_machine import OPCODE_LIMIT, OPCODES, Arrays, OpcodeBudget
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
_SAFETENSORS = (".safetensors", ".sft")
_PADDING = b"\0 \t\r\n"
_MODULES = (".py", ".pyc", ".pyo", ".pyw", ".so", ".pyd")
_PROTOCOLS = tuple(b"\x80" + bytes([number]) for number in range(6))  # how pickles begin since protocol 2
_WRAPPED = tuple(bytes([code]) for code in b"P7RZ\x1fx\xfd\x5d\x93\x28\x04B")  # how wrapped files begin
_FOREIGN = (WeightsFormat.SAFETENSORS, WeightsFormat.ONNX, WeightsFormat.ELF)  # weights that are not pickles by nature
# Files whose name says that somebody unpickles them, and those that may be of another format.
_COMPRESSED = r"(?:\.(?:gz|bz2|xz|lzma|z|zlib))?\Z"
_PICKLES = re.compile(rf"\.(?:pkl|pickle|joblib){_COMPRESSED}", re.IGNORECASE)
_WEIGHTS = re.compile(rf"\.(?:pt|pth|ckpt){_COMPRESSED}", re.IGNORECASE)
# The pickles that TorchScript's own reader, which is C++, loads.
_SCRIPT = r"(?:data|constants|attributes|bytecode|traced_inputs)\.pkl|code/.*\.debug_pkl"

Part = PickleFacts | HostileExpression | StrayImports | Program | Unscanned
Found = Iterator[Part]
Unwrapping = Generator[Part, None, bool]


class Claim(Enum):
    """What says that a file is a pickle. Without a claim it still is one if unpickling it would call anything."""

    NUMBERS = "nothing, not even a pickle's mark: the storage of a tensor, or bytes among the values of a pickle"
    NONE = "a pickle's mark, if it begins with one"
    NAMED = "its name, which files of other formats also have"
    UNPICKLED = "its name, or the file around it, which unpickles it"


class NestedScan:
    """One look into everything; what is found is yielded, and so is what was not looked into."""

    def __init__(
        self,
        *,
        fetched: bool = False,
        opcodes: int = OPCODE_LIMIT,
        weights: str | None = None,
        members: Iterable[str] = (),
    ) -> None:
        """Start a scan.

        Args:
            fetched: The bytes come from elsewhere: leave out, and count, what torch itself reads as numbers or code.
            opcodes: How many all pickles together may have.
            weights: The member that the manifest names as the weights.
            members: Names of the archive's members: an import of a module among them runs the archive's code.
        """
        self.budget = OpcodeBudget(opcodes)
        self.unfetched = 0
        self._thorough = not fetched
        self._weights = weights
        self._packed = frozenset(module for name in members for module in _modules(name))
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
        elif head and not head.startswith(LOCAL_MAGIC):  # pickle.load fails at its first byte
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
        if claim is not Claim.NONE:
            return claim
        if _PICKLES.search(where):
            return Claim.UNPICKLED
        is_foreign = found is not None and found.kind in _FOREIGN
        return Claim.NAMED if _WEIGHTS.search(where) or (where == self._weights and not is_foreign) else Claim.NONE

    def _zip(self, where: str, file: BinaryIO, archive: TorchZip, depth: int) -> Found:
        is_script = archive.kind is WeightsFormat.TORCHSCRIPT and not archive.is_ambiguous
        numbers, pickled = yield from self._judge_zip(where, archive)
        plain = plain_members(archive) | numbers
        self.unfetched += 0 if self._thorough else len(plain)
        for entry in archive.entries:
            if entry.size == 0 or (entry in plain and not (self._thorough and may_hide_pickle(file, entry))):
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

    def _judge_zip(self, where: str, archive: TorchZip) -> Generator[Part, None, tuple[frozenset[ZipEntry], ...]]:
        """Judge a zip as a whole; return which members torch.export.load reads as numbers, and which it unpickles."""
        if archive.is_ambiguous:
            yield Unscanned(where, "it has several directories, and readers take different ones")
        if kind := package_kind(archive.entries):
            yield Program(where, kind)
            if kind is ProgramKind.TORCH_PACKAGE:
                yield Unscanned(where, "it is a torch.package: its own modules can take the place of installed ones")
        if not archive.is_exported:
            return frozenset(), frozenset()
        from marpack.weights.exported_scan import scan_exported  # noqa: PLC0415 - many types that few archives need

        exported = scan_exported(archive, self.budget, min(EXPANDED_LIMIT, self._bytes_left))
        self._bytes_left -= exported.expanded
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
            if stream.has_arrays:
                stream = self.budget.read(file, at, arrays=Arrays.SKIPPED)
                yield from self._beside(where, file, stream, at)
            is_marked = first in _PROTOCOLS
            at, first = (stream.end, b"") if stream.problem else self._behind(file, stream.end)
            wrapped = bool(first) and wraps(read_at(file, at, HEAD))
            if self._is_pickle(stream, claim, is_marked=is_marked, is_whole=at >= size):
                # Its name says its only loader, except as the manifest's weights: older servers unpickle those.
                is_idle = where != self._weights or (stream.is_data and not stream.imports)
                if is_idle and where.endswith(_SAFETENSORS) and safetensors.is_exact(file):
                    return
                yield from self._pickle(where, file, stream, depth)
            elif stream.imports:
                yield StrayImports(where, tuple(item.path for item in stream.imports))
            claim = Claim.NAMED if claim is Claim.UNPICKLED else claim
            if wrapped:
                rest = stored(file, at, size - at)
                yield from self.file(f"{where}@{at}", rest, depth=depth + 1, claim=claim)
                return
        if self._bytes_left < 0:
            yield Unscanned(where, "it is padded with more bytes than are read")

    def _beside(self, where: str, file: BinaryIO, stream: Stream, at: int) -> Found:
        """Judge what pickle.load does with joblib's file, if that is more than what joblib.load does."""
        plain = [self.budget.read(file, at, arrays=Arrays.AS_OPCODES)]
        while plain[-1].problem is None and plain[-1].end < stream.end:  # it stops at an array's pickle
            plain.append(self.budget.read(file, plain[-1].end, arrays=Arrays.AS_OPCODES))
        more = {item: None for reading in plain for item in reading.imports if item not in stream.imports}
        if any(map(is_dangerous, more)):
            for reading in plain:
                yield from self._judged(where, reading)
            return
        if more:
            yield StrayImports(where, tuple(item.path for item in more))
        ends_beyond = plain[-1].problem is None and plain[-1].end != stream.end
        is_safe = judge(stream, where, packed=self._packed).verdict is PickleVerdict.SAFE
        differs = any(reading.unfollowed or not reading.does_no_more_than(stream) for reading in plain)
        if ends_beyond or (is_safe and differs):
            yield Unscanned(where, "joblib.load and pickle.load read it differently")

    def _is_pickle(self, stream: Stream, claim: Claim, *, is_marked: bool, is_whole: bool) -> bool:
        """Return whether a stream is judged as a pickle; otherwise it is data, and no unpickler calls anything."""
        if not stream.is_data or claim is Claim.UNPICKLED or (is_marked and claim is not Claim.NUMBERS):
            return True
        if stream.imports:
            is_listed = claim is not Claim.NAMED and not any(is_packed(item, self._packed) for item in stream.imports)
            return not is_listed or (stream.problem is None and any(map(is_dangerous, stream.imports)))
        return stream.problem is None and (is_whole or claim is Claim.NAMED)

    def _pickle(
        self, where: str, file: BinaryIO, stream: Stream, depth: int, *, torch: bool = False, script: bool = False
    ) -> Found:
        """Judge a pickle, and look into the byte strings in it that are pickles or zips."""
        yield from self._judged(where, stream, torch=torch, script=script)
        for begin, length in stream.files:
            yield from self.file(f"{where}@{begin}", stored(file, begin, length), depth=depth + 1, claim=Claim.NUMBERS)

    def _judged(self, where: str, stream: Stream, *, torch: bool = False, script: bool = False) -> Found:
        label = where if stream.start == 0 else f"{where}@{stream.start}"
        yield judge(stream, label, torch=torch, script=script, packed=self._packed)
        if stream.problem:
            yield Unscanned(label, stream.problem)

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


def _modules(member: str) -> Iterator[str]:
    """Yield the names by which a member's folders, and the member itself, could be imported."""
    *folders, name = member.split("/")
    yield from folders
    if name.endswith(_MODULES):
        yield name.partition(".")[0]


def may_hide_pickle(file: BinaryIO, entry: ZipEntry) -> bool:
    """Return whether a tensor's storage may be read as something else, by its first byte."""
    if entry.header < 0:
        return True
    data = read_at(file, entry.header, HEAD)
    begin = LOCAL.size + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
    first = data[begin : begin + 1]
    return not first or first[0] in OPCODES or first in _WRAPPED or first in FIRST_BYTES
