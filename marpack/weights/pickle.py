"""Pickles, read opcode by opcode and never run: their values, imports and calls, and which imports are allowed."""

import re
import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property, partial
from operator import methodcaller
from typing import Any, BinaryIO, ClassVar

from msgspec import Struct

from marpack.archive.bytesource import read_at

_SMALLEST, _LARGEST = 256, 16 * 1024  # bytes per read: short after a jump, longer the longer one reads on
WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
_DTYPE = "numpy.dtype"
_RECONSTRUCTOR = "copyreg._reconstructor"
_DTYPE_CODE = re.compile(r"([?biufcSUVaOmM])(\d+)(?:\[\w+\])?")
_SIZED_BY_STATE = "SUVa"  # dtypes whose size is what BUILD says
_OBJECT_FLAGS = 63  # of numpy's dtype O
_REFERENCE_FLAGS = 7  # the flags by which numpy takes an array's bytes for references to objects
_DTYPE_STATE = 8  # the shortest state of a dtype: version, order, subarray, names, fields, size, alignment, flags


class TruncatedError(Exception):
    """The file ends in the middle of something; private to the readers of this package."""


class ByteStream:
    """Bytes in order, with cheap jumps over unneeded ones."""

    __slots__ = ("_file", "_window", "at", "data", "start")

    def __init__(self, file: BinaryIO, offset: int = 0) -> None:
        self._file = file
        self.start = offset  # the file position of data[0]
        self._window = _SMALLEST
        self.data = b""
        self.at = 0
        self.fill(1)

    @property
    def position(self) -> int:
        """Bytes from the file's start to the next byte."""
        return self.start + self.at

    def fill(self, count: int) -> bool:
        """Have `count` bytes from here on in the window; False when the file ends before."""
        if len(self.data) - self.at >= count:
            return True
        self.start += self.at
        rest = self.data[self.at :]
        self._file.seek(self.start + len(rest))
        self.data = rest + self._file.read(max(count - len(rest), self._window))
        self._window = min(self._window * 2, _LARGEST)
        self.at = 0
        return len(self.data) >= count

    def byte(self) -> int:
        """Return the next byte. Raises TruncatedError."""
        if self.at >= len(self.data) and not self.fill(1):
            raise TruncatedError
        self.at += 1
        return self.data[self.at - 1]

    def line(self, longest: int) -> bytes | None:
        """Return the bytes before the next newline, and pass it; None when it is further than `longest` away.

        A file that ends without a newline ends in a line without its last byte. Raises TruncatedError at the end.
        """
        size = _SMALLEST
        while (end := self.data.find(b"\n", self.at)) < 0:
            if size > longest:
                return None
            if not self.fill(size):
                break
            size *= 4
        if end < 0 and (end := self.data.find(b"\n", self.at)) < 0:
            end = len(self.data) - 1
        if end < self.at:
            raise TruncatedError
        line, self.at = self.data[self.at : end], end + 1
        return line

    def skip(self, count: int) -> None:
        """Jump over `count` bytes, reading the last of them to check that they exist. Raises TruncatedError."""
        inside = len(self.data) - self.at
        if count <= inside:
            self.at += count
            return
        target = self.position + count - 1
        data = read_at(self._file, target, _SMALLEST)
        if not data:
            raise TruncatedError
        self.start, self._window, self.data, self.at = target, _SMALLEST, data, 1


class BrokenPickleError(Exception):
    """Any unpickler would raise here, Python's and C's; private to the readers of this package."""


class UnfollowedPickleError(Exception):
    """An unpickler may go on here, and we cannot follow it; private to the readers of this package."""


class Global(Struct, frozen=True, dict=True):
    """A name that the pickle imports, as Python 3 has it."""

    module: str
    name: str

    @cached_property
    def path(self) -> str:
        """The dotted path, as messages and allow-lists spell it."""
        return f"{self.module}.{self.name}"


class PickledCall(Struct, eq=False):
    """The result of a call in the pickle, with the items and the state that are put into it."""

    function: object
    args: object
    items: list[tuple[object, object]] | tuple[()] = ()
    values: list[object] | tuple[()] = ()
    state: object = None

    def calls(self, path: str) -> bool:
        """Return whether the called function is the global `path`."""
        return isinstance(self.function, Global) and self.function.path == path

    @property
    def class_path(self) -> str | None:
        """The path of the called function, or of the class given to `copyreg._reconstructor`; None if unknown."""
        match self.function, self.args:
            case Global(path="copyreg._reconstructor"), (Global(path=path), Global(path="builtins.object"), _):
                return path
            case Global(path=path), _ if path != _RECONSTRUCTOR:
                return path
        return None


class PickledDict(Struct, eq=False):
    """A dict of the pickle: pairs in order, keys unhashed."""

    items: list[tuple[object, object]] | tuple[()] = ()

    def get(self, key: object) -> object:
        """Return the last value under a plain key, or None."""
        found = (value for name, value in reversed(self.items) if type(name) is type(key) and name == key)
        return next(found, None)


class Persistent(Struct, frozen=True):
    """Something kept outside the pickle, as torch keeps its storages."""

    key: object


class Skipped(Struct, frozen=True):
    """A string or byte string too long to be of interest."""

    length: int  # bytes


class Unknown(Struct, frozen=True):
    """A value that only running the pickle would show."""


_FIXED = (int, float, str, bytes, tuple, type(None))  # values that nothing can be put into; a bool is an int
_LITERALS = (*_FIXED, bytearray, list, PickledDict, Skipped)  # values that are not callable
_NEVER_TEXT = (int, float, bytes, bytearray, tuple, list, PickledDict, type(None))


class Stream(Struct, kw_only=True):
    """The effects of one pickle, from its first opcode to its STOP, or as far as it is read."""

    root: object = None  # the value it makes; None when it breaks off
    codes: frozenset[int] = frozenset()  # the opcodes it uses, by their byte
    opcodes: int = 0  # how many of them it executes
    start: int  # bytes from the file's start
    end: int
    problem: str | None = None  # why it was not read to its STOP; all opcodes before have been executed
    unfollowed: bool = False  # an unpickler may go on there
    imports: dict[Global, None] = {}  # in the order they are met, each once
    acts: bool = False  # an unpickler may call something, or change an object that is not a literal
    changes: dict[Global, None] = {}  # imported objects that it changes
    # A name to import may be a call's result, or an imported text: no honest pickler writes that.
    computed: bool = False
    indirect: bool = False  # something is called that is not an imported name, but the result of another call
    misused: dict[str, None] = {}  # allowed functions with arguments that no pickler writes
    storages: dict[str, tuple[str, int]] = {}  # torch's: key → class and number of elements
    protocol: int = 0  # of its last PROTO
    files: list[tuple[int, int]] = []  # begin and length of byte strings that are files of their own
    is_data: bool = False  # every unpickler certainly stops or fails before it calls or changes anything


def _paired(values: list[object]) -> list[tuple[object, object]]:
    if len(values) % 2:
        raise BrokenPickleError("a key has no value")
    return list(zip(values[::2], values[1::2], strict=True))


def _dtype_code(dtype: object) -> tuple[str, int] | None:
    """Return a numpy dtype's kind, and the bytes of an element (0 for Python objects); None for another value."""
    match dtype:
        case PickledCall(args=(str(text), *_)) if dtype.calls(_DTYPE) and (found := _DTYPE_CODE.fullmatch(text)):
            kind, count = found[1], int(found[2])
            return kind, {"m": 8, "M": 8, "O": 0, "U": 4 * count}.get(kind, count)
    return None


def _is_dtype_state(dtype: PickledCall, state: object) -> bool:
    """Return whether numpy's own pickles give a dtype this state: bytes stay bytes, objects stay objects."""
    code = _dtype_code(dtype)
    if code is None or not isinstance(state, tuple) or len(state) < _DTYPE_STATE:
        return False
    kind, width = code
    _, _, subarray, _, fields, size, _, flags, *_ = state
    if not isinstance(flags, int) or not (flags == _OBJECT_FLAGS if width == 0 else not flags & _REFERENCE_FLAGS):
        return False
    if kind in _SIZED_BY_STATE and size != width:
        return False
    inner = [subarray[0]] if isinstance(subarray, tuple) and subarray else [] if subarray is None else [None]
    if isinstance(fields, PickledDict):
        inner += [value[0] if isinstance(value, tuple) and value else None for _, value in fields.items]
    elif fields is not None:
        return False
    return all((found := _dtype_code(item)) and found[1] for item in inner)


def _is_scalar(args: object) -> bool:
    """Return whether numpy's `scalar` gets the bytes of one element, and not an object to hand back."""
    match args:
        case (dtype, (bytes() | str() | Skipped()) | PickledCall(function=Global(module="_codecs"))):
            code = _dtype_code(dtype)
            return code is not None and code[1] > 0
    return False


# Allowed functions → whether their arguments are what picklers write; others could corrupt memory, or call through them
_CHECKED: dict[str, Callable[[object], bool]] = {
    _RECONSTRUCTOR: lambda args: PickledCall(Global("copyreg", "_reconstructor"), args).class_path is not None,
    # It calls its first argument.
    "torch._tensor._rebuild_from_type_v2": lambda args: (
        isinstance(args, tuple) and args != () and isinstance(args[0], Global) and args[0].module == "torch._utils"
    ),
    "numpy.ndarray": lambda args: args == (),  # it takes any buffer; numpy's own pickles call _reconstruct
    "numpy.core.multiarray.scalar": _is_scalar,
    "numpy._core.multiarray.scalar": _is_scalar,
}


_DENSE = "BFloat16 Bool Byte Char Double Float Half Int Long Short"
_STORAGES = f"{_DENSE} ComplexDouble ComplexFloat"
_SPARSE = "BFloat16 Byte Char Double Float Half Int Long Short"
_DTYPES = """
    bfloat16 bool complex32 complex64 complex128 float16 float32 float64
    float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
    int1 int2 int3 int4 int5 int6 int7 int8 int16 int32 int64
    uint1 uint2 uint3 uint4 uint5 uint6 uint7 uint8 uint16 uint32 uint64
    bits8 bits16 bits1x8 bits2x4 bits4x2 qint8 qint32 quint8 quint2x4 quint4x2
    per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric per_channel_affine_float_qparams
"""
_REBUILDERS = """
    device_tensor_from_cpu_tensor device_tensor_from_numpy meta_tensor_no_storage nested_tensor parameter
    parameter_with_state qtensor sparse_tensor tensor tensor_v2 tensor_v3 wrapper_subclass
"""
_OTHERS = """
    _codecs.encode builtins.bytearray builtins.complex builtins.set collections.Counter collections.OrderedDict
    torch.Size torch.Tensor torch.device torch._tensor._rebuild_from_type_v2 torch.nn.parameter.Parameter
    torch.serialization._get_layout torch.storage.TypedStorage torch.storage.UntypedStorage
    torch.QInt32Storage torch.QInt8Storage torch.QUInt2x4Storage torch.QUInt4x2Storage torch.QUInt8Storage
"""
# Dotted paths, as of torch 2.13; older releases from 2.6 on accept a part of them.
_PATTERNS = (
    ("{}", _OTHERS),
    ("torch.{}", _DTYPES),
    ("torch._utils._rebuild_{}", _REBUILDERS),
    ("torch.{}Storage", _STORAGES),
    ("torch.cuda.{}Storage", _STORAGES),
    ("torch.{}Tensor", _DENSE),
    ("torch.cuda.{}Tensor", _DENSE),
    ("torch.sparse.{}Tensor", _SPARSE),
    ("torch.cuda.sparse.{}Tensor", _SPARSE),
)
ALLOWED = frozenset(pattern.format(word) for pattern, words in _PATTERNS for word in words.split())
# Classes of plain values, and what rebuilds them: whatever their arguments, they run no code of a pickle's author.
_PLAIN = """
    builtins.bool builtins.bytes builtins.dict builtins.float builtins.frozenset builtins.int builtins.list
    builtins.object builtins.range builtins.slice builtins.tuple
    collections.defaultdict collections.deque copyreg._reconstructor
    datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone
    decimal.Decimal fractions.Fraction uuid.UUID uuid.SafeUUID
    joblib.numpy_pickle.NumpyArrayWrapper numpy.dtype numpy.ndarray
    numpy.core.multiarray._reconstruct numpy.core.multiarray.scalar numpy.core.numeric._frombuffer
    numpy._core.multiarray._reconstruct numpy._core.multiarray.scalar numpy._core.numeric._frombuffer
"""
INERT = ALLOWED | frozenset(_PLAIN.split())
# What only TorchScript's own reader, which is C++ and calls no Python, finds under these names.
_SCRIPT_MODULES = re.compile(
    r"torch\.jit\._pickle\.|__torch__\.(?!torch\.classes\.(?!(?:quantized|sparse|rnn|xnnpack|mkldnn|profiler|cuda)\.))"
)
# The opcodes that torch's restricted unpickler knows; protocol 2 as torch.save writes it needs no others.
WEIGHTS_ONLY_OPCODES = frozenset(b"cR\x81bae(su\x80t\x85\x86\x87N\x89\x88)]}\x8fJKMGXUQhjqr\x8a.")


def disallowed(imports: Iterable[Global], *, script: bool = False) -> tuple[Global, ...]:
    """Return the imports that torch.load(weights_only=True) refuses.

    `script` says that the pickle belongs to a TorchScript file, whose reader knows classes of its own.
    """
    found = (item for item in imports if item.path not in ALLOWED)
    return tuple(item for item in found if not (script and _SCRIPT_MODULES.match(f"{item.module}.")))


def loads_weights_only(stream: Stream) -> bool:
    """Return whether torch.load(weights_only=True) would read the whole pickle."""
    plain = stream.codes <= WEIGHTS_ONLY_OPCODES and not stream.computed and not stream.indirect
    return plain and stream.problem is None and not disallowed(stream.imports)


# Bounds are counts: a verdict must not depend on the load of the machine.
OPCODE_LIMIT = 2_500_000  # of a whole archive; a vocabulary of three million words needs about nine million
_LEAST = 25  # opcodes that take as long as what any pickle takes besides its own
_MAX_MARKS = 100_000  # open at once; a pickler nests about a thousand deep
_MAX_TEXT = 64 * 1024 * 1024  # bytes of the strings that are kept
_LONGEST_TEXT = 4096  # bytes; longer strings are jumped over
_LONGEST_LINE = 1 << 20  # bytes
_MAX_IMPORTS = 10_000
_MAX_FILES = 10_000
_PYTHON_2 = 2  # the last protocol in which names may be those of Python 2
_LATEST_PROTOCOL = 5
_NO_FRAME = 1 << 65  # bytes: farther than any frame ends
_1, _2, _4, _8 = struct.Struct("B"), struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|[^x]|$|x)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", "'": "'", '"': '"'}
# What strtol or Python's int take in base 0, and what int takes in base 10
_INTEGER = re.compile(
    rb"\s*[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|0[0-7_]*|[1-9](?:_?[0-9])*)\s*"
)
_PLACE = re.compile(rb"\s*([+-]?)0*([0-9](?:_?[0-9])*)\s*")
_COUNTABLE = 18  # digits of numbers that are read; longer ones are of no interest

_Decode = Callable[[bytes], object]
_utf8: _Decode = methodcaller("decode", "utf-8", "surrogatepass")
_latin: _Decode = methodcaller("decode", "latin-1")  # what Python 2 wrote: names and keys are ASCII
_raw: _Decode = methodcaller("decode", "raw_unicode_escape")
_signed: _Decode = partial(int.from_bytes, byteorder="little", signed=True)
_BINARY = (bytes, bytearray)
_FILES = frozenset([b"PK", *(b"\x80" + bytes([number]) for number in range(_LATEST_PROTOCOL + 1))])
_FAILURES: dict[type[Exception], str] = {
    TruncatedError: "it ends in the middle of an opcode",
    IndexError: "its stack runs empty",
    KeyError: "it asks for a value that it never kept",
    ValueError: "an argument cannot be read",
    OverflowError: "an argument cannot be read",
}


class OpcodeBudget:
    """How many opcodes may still be read, of all pickles of an archive together."""

    def __init__(self, count: int = OPCODE_LIMIT) -> None:
        self.count = self.left = count

    def read(self, file: BinaryIO, offset: int = 0) -> Stream:
        """Read a pickle as `read_pickle` does, within the rest of the budget."""
        stream = _Machine(file, offset).run(self.left)
        self.left -= max(stream.opcodes, _LEAST)
        return stream


def read_pickle(file: BinaryIO, offset: int = 0, *, limit: int = OPCODE_LIMIT) -> Stream:
    """Read the pickle that starts at a byte of a seekable file, up to `limit` opcodes; never raises on its content.

    It is followed wherever C's unpickler or Python's follows it: what one of them refuses, the other may run.
    """
    return _Machine(file, offset).run(limit)


def _read_integer(line: bytes) -> object:
    """Return a number of INT or LONG, as far as C's unpickler or Python's reads it. Raises BrokenPickleError."""
    if line in (b"00", b"01"):
        return line == b"01"
    text, end, _ = line.partition(b"\0")  # where C's stops
    text = text.removesuffix(b"L")
    if not _INTEGER.fullmatch(text) and (text or not end):
        raise BrokenPickleError("invalid integer")
    if text.isdigit() and text[:1] != b"0" and len(text) <= _COUNTABLE:
        return int(text)
    for base in (0, 8):  # negative, long, or in another base: C reads 017 as octal
        with suppress(ValueError):
            return int(text or b"0", base)
    return Skipped(len(text))  # Python reads no more than 4,300 digits


def _unquote(line: bytes) -> str:
    """Return a text written in quotes, with backslashes. Raises BrokenPickleError."""
    line = line.strip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in b"'\"":
        raise BrokenPickleError("a quoted string has no quotes")

    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        if code in ("", "x"):
            raise BrokenPickleError("a quoted string ends in the middle of an escape")
        if code[0] == "x":
            return chr(int(code[1:], 16))
        return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _LETTERS.get(code, f"\\{code}")

    return _ESCAPE.sub(unescape, line[1:-1].decode("latin-1"))


class _Machine(ByteStream):
    """Stack, marks, memo and effects of one pickle, with a method for each kind of opcode."""

    def __init__(self, file: BinaryIO, offset: int) -> None:
        super().__init__(file, offset)
        self.stream = Stream(start=offset, end=offset)
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int | bytes, object] = {}  # numbers whose hashes collide are kept as digits
        self.running = True
        self.has_wrapper = False  # it imports joblib's wrapper: raw arrays follow the states of such objects
        self.text = 0  # bytes of strings kept
        self.framed = _NO_FRAME  # where the frame ends

    def run(self, limit: int) -> Stream:
        stream, used, count = self.stream, bytearray(256), 0
        try:
            while self.running and count < limit:
                if self.start + self.at >= self.framed:
                    self.leave_frame()
                if self.at >= len(self.data) and not self.fill(1):
                    raise BrokenPickleError("it ends before its STOP")
                code = self.data[self.at]
                self.at += 1
                count += 1
                used[code] = 1
                action, operands = _ACTIONS[code]
                action(self, *operands)
            if self.running:
                raise UnfollowedPickleError("it has more opcodes than are read (--max-opcodes)")
            stream.root = self.stack[-1]
        except (UnfollowedPickleError, BrokenPickleError) as error:
            stream.problem, stream.unfollowed = str(error), isinstance(error, UnfollowedPickleError)
        except tuple(_FAILURES) as error:
            stream.problem = next(text for kind, text in _FAILURES.items() if isinstance(error, kind))
        stream.end, stream.opcodes = self.start + self.at, count
        stream.codes = frozenset(code for code in range(256) if used[code])
        stream.unfollowed |= stream.end > self.framed
        stream.is_data = not (stream.unfollowed or stream.acts or stream.computed)
        return stream

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data) and not self.fill(size):
            raise TruncatedError
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, layout: struct.Struct) -> Any:  # Any: an int or a float, as the layout has it
        return layout.unpack(self.take(layout.size))[0]

    def read_line(self, encoding: str = "latin-1") -> bytes:
        """Read a line; one that both unpicklers decode, and cannot, ends the pickle however long it is."""
        end = self.data.find(b"\n", self.at)
        line = self.data[self.at : end] if end >= 0 else self.line(_LONGEST_LINE)
        self.at = end + 1 if end >= 0 else self.at
        if line is None:
            getincrementaldecoder(encoding)().decode(self.data[self.at :])
            raise UnfollowedPickleError(f"a line has over {_LONGEST_LINE:,} bytes")
        self.keep(len(line))
        return line

    def keep(self, size: int) -> None:
        self.text += size
        if self.text > _MAX_TEXT:
            raise UnfollowedPickleError(f"its strings have over {_MAX_TEXT:,} bytes")

    def push(self, value: object = None) -> None:
        self.stack.append(value)

    def push_number(self, layout: struct.Struct) -> None:
        self.stack.append(self.number(layout))

    def push_line(self, decode: _Decode) -> None:
        self.stack.append(decode(self.read_line()))

    def push_text(self, layout: struct.Struct, decode: _Decode) -> None:
        size = self.number(layout)
        if size > 2 and decode in _BINARY and self.fill(2) and self.data[self.at : self.at + 2] in _FILES:
            self.stream.files.append((self.start + self.at, size))
            if len(self.stream.files) > _MAX_FILES:
                raise UnfollowedPickleError(f"over {_MAX_FILES:,} of its byte strings are pickles or zips")
        if size > _LONGEST_TEXT:
            self.skip(size)
            self.stack.append(Skipped(size))
        else:
            self.keep(size)
            self.stack.append(decode(self.take(size)))

    def mark(self) -> None:
        if len(self.marks) >= _MAX_MARKS:
            raise UnfollowedPickleError(f"it opens over {_MAX_MARKS:,} MARKs")
        self.marks.append(self.stack)
        self.stack = []

    def popped(self, count: int = 0) -> list[object]:
        """Return the `count` values on top; 0: all values since the last MARK."""
        if not count:
            if not self.marks:
                raise BrokenPickleError("a MARK is missing")
            items, self.stack = self.stack, self.marks.pop()
            return items
        if len(self.stack) < count:
            raise IndexError
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def pop(self) -> None:
        self.popped(1 if self.stack else 0)

    def duplicate(self) -> None:
        self.stack.append(self.stack[-1])

    def key(self, layout: struct.Struct | None) -> int | bytes:
        """Read a place in the memo, or a line that holds one: long ones stay digits."""
        if layout is not None:
            place: int = self.number(layout)
            return place
        found = _PLACE.fullmatch(self.read_line().partition(b"\0")[0])
        if found is None:
            raise BrokenPickleError("a place in the memo is not a number")
        digits = found[2].replace(b"_", b"").lstrip(b"0")
        if found[1] == b"-" and digits:
            raise BrokenPickleError("a place in the memo is negative")
        return int(digits or b"0") if len(digits) <= _COUNTABLE else digits

    def put(self, layout: struct.Struct | None = None) -> None:
        self.memo[self.key(layout)] = self.stack[-1]

    def get(self, layout: struct.Struct | None = None) -> None:
        self.stack.append(self.memo[self.key(layout)])

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def push_new(self, kind: Callable[[], object]) -> None:
        self.stack.append(kind())

    def collect(self, kind: Callable[[list[object]], object], count: int = 0) -> None:
        items = self.popped(count)
        self.stack.append(kind(items))

    def note_change(self, target: object) -> None:
        """Note that something is put into a value. Raises BrokenPickleError."""
        if isinstance(target, _FIXED):
            raise BrokenPickleError("it puts something into what holds nothing")
        self.stream.acts |= not isinstance(target, (*_LITERALS, Persistent))
        if isinstance(target, Global):
            self.stream.changes[target] = None

    def extend(self, count: int = 0) -> None:
        values, target = self.popped(count), self.stack[-1]
        if values or not isinstance(target, _FIXED):  # Python's unpickler also extends by nothing; C's does not
            self.note_change(target)
        if isinstance(target, PickledCall):
            target.values = target.values or []
            target = target.values
        if isinstance(target, list):
            target.extend(values)

    def update(self, count: int = 0) -> None:
        values, target = self.popped(count), self.stack[-1]
        if values:  # Python's puts in the first pairs before it finds that the last key has no value
            self.note_change(target)
        pairs = _paired(values)
        if isinstance(target, PickledDict | PickledCall):
            target.items = target.items or []
            target.items.extend(pairs)

    def name(self) -> str:
        """Read a line of a name; Python's unpickler takes an empty one at the end of the file."""
        try:
            line = self.read_line("utf-8")
        except TruncatedError:
            return ""
        return line.decode("utf-8")

    def import_name(self, module: object, name: object) -> object:
        stream = self.stream
        if isinstance(module, str) and isinstance(name, str):
            new = NAME_MAPPING.get((module, name)) or (IMPORT_MAPPING.get(module, module), name)  # as Python 3 has it
            # Up to protocol 2, `__builtin__.eval` is `builtins.eval`.
            found = Global(*new) if stream.protocol <= _PYTHON_2 else Global(module, name)
            stream.imports[found] = None
            self.has_wrapper |= found.path == WRAPPER
            if len(stream.imports) > _MAX_IMPORTS:
                raise UnfollowedPickleError(f"it imports over {_MAX_IMPORTS:,} names")
            return found
        if isinstance(module, _NEVER_TEXT) or isinstance(name, _NEVER_TEXT):
            raise BrokenPickleError("it imports a name that is not text")
        stream.computed = True
        return Unknown()

    def push_global(self) -> None:
        self.stack.append(self.import_name(self.name(), self.name()))

    def push_named(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self.import_name(module, name))

    def push_extension(self, layout: struct.Struct) -> None:
        name = f"extension_{self.number(layout)}"  # a number registered by some other code
        self.stack.append(self.import_name("copyreg", name))

    def note_iteration(self, *arguments: object) -> None:
        """Note that Python's unpickler iterates over arguments before it finds that nothing can be called."""
        self.stream.acts |= not all(isinstance(item, (*_LITERALS, Persistent)) for item in arguments)

    def call(self, function: object, args: object) -> None:
        if isinstance(function, _LITERALS):
            raise BrokenPickleError("it calls a value that is not a function")
        if isinstance(function, Persistent):  # it comes from the loader, not from the pickle
            self.stack.append(function)
            return
        self.stream.acts = True
        self.stream.indirect |= not isinstance(function, Global)
        if isinstance(function, Global) and function.path in _CHECKED and not _CHECKED[function.path](args):
            self.stream.misused[function.path] = None
        self.stack.append(PickledCall(function, args))

    def reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self.note_iteration(args)
        self.call(function, args)

    def reduce_with_keywords(self) -> None:
        keywords, args, function = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.note_iteration(args, keywords)
        self.call(function, (args, keywords))

    def make_object(self) -> None:
        values = self.popped()
        self.call(values[0], tuple(values[1:]))

    def make_instance(self) -> None:
        found = self.import_name(self.name(), self.name())
        self.call(found, tuple(self.popped()))  # C's takes the MARK first, Python's imports: without one both refuse

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, PickledCall):
            self.stream.acts = True
            if target.calls(_DTYPE) and (target.state is not None or not _is_dtype_state(target, state)):
                self.stream.misused[_DTYPE] = None
            target.state = state
            if self.has_wrapper and not target.calls(_DTYPE):
                raise UnfollowedPickleError("a raw array of joblib's may follow, which is not scanned")
        elif isinstance(target, _LITERALS):  # it takes a state of nothing; Python's looks into another one first
            self.note_iteration(state, *(state if isinstance(state, tuple) else ()))
        else:
            self.note_change(target)

    def persist(self) -> None:
        key = self.stack.pop()
        match key:
            case ("storage", Global(name=kind), str(name), _, int(count), *_):
                self.stream.storages[name] = kind, count
        self.stack.append(Persistent(key))

    def persist_line(self) -> None:
        self.stack.append(Persistent(self.read_line("ascii").decode("ascii")))

    def stop(self) -> None:
        if self.framed < _NO_FRAME:
            self.leave_frame()
        self.running = False

    def check_protocol(self) -> None:
        self.stream.protocol = self.number(_1)
        if self.stream.protocol > _LATEST_PROTOCOL:
            raise BrokenPickleError("its protocol does not exist")

    def enter_frame(self) -> None:
        if self.framed < _NO_FRAME:
            raise UnfollowedPickleError("a frame is inside another one")
        size = self.number(_8)
        if size >= 1 << 63:  # both refuse it
            raise BrokenPickleError("a frame is longer than memory")
        self.framed = size + self.start + self.at

    def leave_frame(self) -> None:
        """End a frame; C's unpickler drops the first part of what its end cuts in two, and reads it anew."""
        if self.start + self.at != self.framed:
            raise UnfollowedPickleError("a frame ends in the middle of an opcode, or behind the STOP")
        self.framed = _NO_FRAME

    def refuse_byte(self) -> None:
        raise BrokenPickleError(f"byte {self.start + self.at - 1:,} is not an opcode")

    # By their byte, as the standard library's pickletools documents them; some methods take operands from here
    OPCODES: ClassVar[dict[bytes, tuple[Callable[..., object], *tuple[object, ...]]]] = {
        b"N": (push,), b")": (push, ()), b"\x88": (push, True), b"\x89": (push, False), b"K": (push_number, _1),
        b"M": (push_number, _2), b"J": (push_number, struct.Struct("<i")), b"G": (push_number, struct.Struct(">d")),
        b"I": (push_line, _read_integer), b"L": (push_line, _read_integer),
        b"F": (push_line, lambda line: float(line.partition(b"\0")[0])),  # where C's stops
        b"S": (push_line, _unquote), b"V": (push_line, _raw),
        b"\x8a": (push_text, _1, _signed), b"\x8b": (push_text, _4, _signed),
        b"U": (push_text, _1, _latin), b"T": (push_text, _4, _latin), b"\x8c": (push_text, _1, _utf8),
        b"X": (push_text, _4, _utf8), b"\x8d": (push_text, _8, _utf8), b"C": (push_text, _1, bytes),
        b"B": (push_text, _4, bytes), b"\x8e": (push_text, _8, bytes), b"\x96": (push_text, _8, bytearray),
        b"(": (mark,), b"0": (pop,), b"1": (popped,), b"2": (duplicate,), b"\x94": (memoize,),
        b"p": (put,), b"q": (put, _1), b"r": (put, _4), b"g": (get,), b"h": (get, _1), b"j": (get, _4),
        b"]": (push_new, list), b"}": (push_new, PickledDict), b"\x8f": (push_new, list),  # \x8f: EMPTY_SET
        b"t": (collect, tuple), b"\x85": (collect, tuple, 1), b"\x86": (collect, tuple, 2),
        b"\x87": (collect, tuple, 3), b"l": (collect, list),
        b"d": (collect, lambda values: PickledDict(_paired(values))),
        b"\x91": (collect, list),  # FROZENSET
        b"a": (extend, 1), b"e": (extend,), b"\x90": (extend,), b"s": (update, 2), b"u": (update,),  # \x90: ADDITEMS
        b"c": (push_global,), b"\x93": (push_named,), b"\x82": (push_extension, _1), b"\x83": (push_extension, _2),
        b"\x84": (push_extension, _4), b"R": (reduce,), b"\x81": (reduce,), b"\x92": (reduce_with_keywords,),
        b"o": (make_object,), b"i": (make_instance,), b"b": (build,), b"Q": (persist,), b"P": (persist_line,),
        b".": (stop,), b"\x80": (check_protocol,), b"\x95": (enter_frame,), b"\x97": (push_new, Unknown),
        b"\x98": (take, 0),  # READONLY_BUFFER changes nothing that we keep
    }  # fmt: skip


_ROWS = (_Machine.OPCODES.get(bytes([code]), (_Machine.refuse_byte,)) for code in range(256))
_ACTIONS = tuple((action, tuple(operands)) for action, *operands in _ROWS)
OPCODES = frozenset(map(ord, _Machine.OPCODES))
