"""Pickles, read opcode by opcode and never run: their values, imports and calls, and which imports are allowed."""

import re
import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from functools import cached_property, partial
from math import prod
from operator import methodcaller
from typing import Any, BinaryIO, ClassVar

from msgspec import Struct, field
from msgspec.structs import asdict

from marpack.archive.bytesource import ByteStream, TruncatedError

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
DTYPE = "numpy.dtype"
RECONSTRUCTOR = "copyreg._reconstructor"
_DTYPE = re.compile(r"([?biufcSUVaOmM])(\d+)(?:\[\w+\])?")
_UNIT_WIDTHS = {"U": 4}  # bytes per counted unit of a dtype; 1 for all others
_SIZED_BY_STATE = "SUVa"  # dtypes whose size is what BUILD says
_OBJECT_FLAGS = 63  # of numpy's dtype O
_REFERENCE_FLAGS = 7  # the flags by which numpy takes an array's bytes for references to objects
_DTYPE_STATE = 8  # the shortest state of a dtype: version, order, subarray, names, fields, size, alignment, flags


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

    def made_by(self, path: str) -> bool:
        """Tell whether the call was of the global `path`."""
        return isinstance(self.function, Global) and self.function.path == path

    @property
    def class_path(self) -> str | None:
        """The path of the called function, or of the class given to `copyreg._reconstructor`; None if unknown."""
        if not isinstance(self.function, Global):
            return None
        if self.function.path != RECONSTRUCTOR:
            return self.function.path
        match self.args:
            case (Global(path=path), Global(module="builtins", name="object"), _):
                return path
        return None


class PickledDict(Struct, eq=False):
    """A dict of the pickle: pairs in order, keys unhashed."""

    items: list[tuple[object, object]] | tuple[()] = ()

    @classmethod
    def of(cls, values: list[object]) -> "PickledDict":
        """Make one of keys and values in turn. Raises BrokenPickleError."""
        return cls(paired(values))

    def get(self, key: object) -> object:
        """Return the last value under a plain key, or None."""
        found = None
        for name, value in self.items:
            if type(name) is type(key) and name == key:
                found = value
        return found


class Persistent(Struct, frozen=True):
    """Something kept outside the pickle, as torch keeps its storages."""

    key: object


class Skipped(Struct, frozen=True):
    """A string or byte string too long to be of interest."""

    length: int  # bytes


class Unknown(Struct, frozen=True):
    """A value that only running the pickle would show."""


FIXED = (int, float, str, bytes, tuple, type(None))  # values that nothing can be put into; a bool is an int
LITERALS = (*FIXED, bytearray, list, PickledDict, Skipped)  # values that are not callable
_ARRAY_PARTS = (WRAPPER, DTYPE, "numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct")
_ARRAY_ATTRIBUTES = frozenset(["subclass", "shape", "order", "dtype", "allow_mmap", "numpy_array_alignment_bytes"])
_NEVER_TEXT = (int, float, bytes, bytearray, tuple, list, PickledDict, type(None))
_PYTHON_2 = 2  # the last protocol in which names may be Python 2's
_MAX_IMPORTS = 10_000
_MAX_FILES = 10_000


class Effects(Struct, kw_only=True):
    """What a pickle does besides making plain values."""

    imports: dict[Global, None] = field(default_factory=dict)  # in the order they are met, each once
    acts: bool = False  # an unpickler may call something, or change an object that is not a literal
    changes: dict[Global, None] = field(default_factory=dict)  # imported objects that it changes
    computed: bool = (
        False  # a name to import may be a call's result, or an imported text: no honest pickler writes that
    )
    indirect: bool = False  # something is called that is not an imported name, but the result of another call
    misused: dict[str, None] = field(
        default_factory=dict
    )  # allowed functions, called with arguments that no pickler writes
    storages: dict[str, tuple[str, int]] = field(default_factory=dict)  # torch's: key → class and number of elements
    protocol: int = 0  # as its last PROTO tells
    files: list[tuple[int, int]] = []  # begin and length of byte strings that are files of their own

    def imported(self, module: object, name: object) -> object:
        """Return what an import would give. Raises BrokenPickleError, UnfollowedPickleError."""
        if isinstance(module, str) and isinstance(name, str):
            if self.protocol <= _PYTHON_2:  # `__builtin__.eval` is `builtins.eval`
                module, name = _python_3(module, name)
            found = Global(module, name)
            self.imports[found] = None
            if len(self.imports) > _MAX_IMPORTS:
                raise UnfollowedPickleError(f"it imports over {_MAX_IMPORTS:,} names")
            return found
        if isinstance(module, _NEVER_TEXT) or isinstance(name, _NEVER_TEXT):
            raise BrokenPickleError("it imports a name that is not text")
        self.computed = True
        return Unknown()

    def spread(self, *arguments: object) -> None:
        """Note that Python's unpickler iterates over arguments before it finds that nothing can be called."""
        self.acts |= not all(isinstance(item, (*LITERALS, Persistent)) for item in arguments)

    def called(self, function: object, args: object) -> object:
        """Return what a call would give. Raises BrokenPickleError."""
        if isinstance(function, LITERALS):
            raise BrokenPickleError("it calls a value that is not a function")
        if isinstance(function, Persistent):  # it comes from the loader, not from the pickle
            return function
        self.acts = True
        self.indirect |= not isinstance(function, Global)
        call = PickledCall(function, args)
        if isinstance(function, Global) and function.path in _CHECKED and not _CHECKED[function.path](args):
            self.misused[function.path] = None
        return call

    def built(self, target: PickledCall, state: object) -> None:
        """Note the state that BUILD gives to the result of a call."""
        self.acts = True
        if target.made_by(DTYPE) and (target.state is not None or not _is_dtype_state(target, state)):
            self.misused[DTYPE] = None
        target.state = state

    def holds(self, begin: int, length: int) -> None:
        """Note a byte string that is a file of its own. Raises UnfollowedPickleError."""
        self.files.append((begin, length))
        if len(self.files) > _MAX_FILES:
            raise UnfollowedPickleError(f"over {_MAX_FILES:,} of its byte strings are pickles or zips")

    def filled(self, target: object) -> None:
        """Note that something is put into a value. Raises BrokenPickleError."""
        if isinstance(target, FIXED):
            raise BrokenPickleError("it puts something into what holds nothing")
        self.acts |= not isinstance(target, (*LITERALS, Persistent))
        if isinstance(target, Global):
            self.changes[target] = None


class Stream(Effects, kw_only=True):
    """What one pickle would do, from its first opcode to its STOP, or as far as it gets."""

    root: object  # the value it makes; None when it breaks off
    codes: frozenset[int]  # the opcodes it uses, by their byte
    opcodes: int  # how many of them it executes
    start: int  # bytes from the file's start
    end: int
    problem: str | None = None  # why it was not read to its STOP; all opcodes before have been executed
    unfollowed: bool = False  # an unpickler may go on there

    @property
    def is_data(self) -> bool:
        """Return whether every unpickler certainly stops or fails before it calls or changes anything."""
        return not (self.unfollowed or self.acts or self.computed)

    def does_no_more_than(self, other: "Stream") -> bool:
        """Return whether another reading of the same bytes shows all that this one would do."""
        return (
            self.imports.keys() <= other.imports.keys()
            and self.changes.keys() <= other.changes.keys()
            and self.misused.keys() <= other.misused.keys()
            and self.computed <= other.computed
            and self.indirect <= other.indirect
        )

    @property
    def has_arrays(self) -> bool:
        """Return whether joblib wrote it, with raw arrays between the opcodes."""
        return any(item.path == WRAPPER for item in self.imports)


def _python_3(module: str, name: str) -> tuple[str, str]:
    return NAME_MAPPING.get((module, name)) or (IMPORT_MAPPING.get(module, module), name)


def is_of_python_2(module: object, name: object) -> bool:
    """Return whether a pickle's protocol decides which object a name imports."""
    return isinstance(module, str) and isinstance(name, str) and _python_3(module, name) != (module, name)


def paired(values: list[object]) -> list[tuple[object, object]]:
    """Return pairs of keys and values, from a list of both in turn. Raises BrokenPickleError."""
    if len(values) % 2:
        raise BrokenPickleError("a key has no value")
    return list(zip(values[::2], values[1::2], strict=True))


def dtype_width(dtype: object) -> int | None:
    """Return the bytes of one element of a numpy dtype in a pickle: 0 for Python objects, None for another value."""
    found = _dtype_code(dtype)
    if found is None or found[1] in "mM":
        return found and 8
    return 0 if found[1] == "O" else int(found[2]) * _UNIT_WIDTHS.get(found[1], 1)


def _dtype_code(dtype: object) -> re.Match[str] | None:
    match dtype:
        case PickledCall(args=(str(text), *_)) if dtype.made_by(DTYPE):
            return _DTYPE.fullmatch(text)
    return None


def is_array_part(value: object) -> bool:
    """Return whether a call makes a part of an array: whatever its arguments, it is neither text nor callable."""
    return isinstance(value, PickledCall) and any(value.made_by(path) for path in _ARRAY_PARTS)


def _is_dtype_state(dtype: PickledCall, state: object) -> bool:
    """Return whether numpy's own pickles give a dtype this state: bytes stay bytes, objects stay objects."""
    code, width = _dtype_code(dtype), dtype_width(dtype)
    if code is None or not isinstance(state, tuple) or len(state) < _DTYPE_STATE:
        return False
    _, _, subarray, _, fields, size, _, flags, *_ = state
    if not isinstance(flags, int) or not (flags == _OBJECT_FLAGS if width == 0 else not flags & _REFERENCE_FLAGS):
        return False
    if code[1] in _SIZED_BY_STATE and size != width:
        return False
    inner = [subarray[0]] if isinstance(subarray, tuple) and subarray else [] if subarray is None else [None]
    if isinstance(fields, PickledDict):
        inner += [value[0] if isinstance(value, tuple) and value else None for _, value in fields.items]
    elif fields is not None:
        return False
    return all(dtype_width(item) for item in inner)


def _is_scalar(args: object) -> bool:
    """Return whether numpy's `scalar` gets the bytes of one element, and not an object to hand back."""
    match args:
        case (dtype, (bytes() | str() | Skipped()) | PickledCall(function=Global(module="_codecs"))):
            return bool(dtype_width(dtype))
    return False


# Allowed functions → whether their arguments are what picklers write; others could corrupt memory, or call through them
_CHECKED: dict[str, Callable[[object], bool]] = {
    RECONSTRUCTOR: lambda args: PickledCall(Global("copyreg", "_reconstructor"), args).class_path is not None,
    # It calls its first argument.
    "torch._tensor._rebuild_from_type_v2": lambda args: (
        isinstance(args, tuple) and args != () and isinstance(args[0], Global) and args[0].module == "torch._utils"
    ),
    "numpy.ndarray": lambda args: args == (),  # it takes any buffer; numpy's own pickles call _reconstruct
    "numpy.core.multiarray.scalar": _is_scalar,
    "numpy._core.multiarray.scalar": _is_scalar,
}


def array_bytes(state: object) -> tuple[int | None, bool]:
    """Return how long the array behind joblib's wrapper is, and whether padding, and a byte that counts it, precede it.

    The length is None for objects, which follow as a pickle of their own.
    Raises UnfollowedPickleError when the state tells none.
    """
    fields = state if isinstance(state, PickledDict) else PickledDict()
    width, shape = dtype_width(fields.get("dtype")), fields.get("shape")
    alignment = fields.get("numpy_array_alignment_bytes")
    if width is None or not isinstance(shape, tuple) or not isinstance(alignment, int | None):
        raise UnfollowedPickleError("an array of joblib's has an unknown dtype or shape")
    if not all(isinstance(key, str) and key in _ARRAY_ATTRIBUTES for key, _ in fields.items):
        raise UnfollowedPickleError("an array of joblib's has attributes of its own")
    if width == 0:
        return None, False
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise UnfollowedPickleError("an array of joblib's has an unknown dtype or shape")
    return prod(shape) * width, alignment is not None


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


def _spelt(pattern: str, words: str) -> Iterator[str]:
    return (pattern.format(word) for word in words.split())


# Dotted paths, as of torch 2.13; older releases from 2.6 on accept a part of them.
ALLOWED = frozenset(
    [
        *_spelt("{}", _OTHERS),
        *_spelt("torch.{}", _DTYPES),
        *_spelt("torch._utils._rebuild_{}", _REBUILDERS),
        *_spelt("torch.{}Storage", _STORAGES),
        *_spelt("torch.cuda.{}Storage", _STORAGES),
        *_spelt("torch.{}Tensor", _DENSE),
        *_spelt("torch.cuda.{}Tensor", _DENSE),
        *_spelt("torch.sparse.{}Tensor", _SPARSE),
        *_spelt("torch.cuda.sparse.{}Tensor", _SPARSE),
    ]
)
# Classes of plain values, and what rebuilds them: whatever their arguments, they run no code of a pickle's author.
_PLAIN = """
    builtins.bool builtins.bytes builtins.dict builtins.float builtins.frozenset builtins.int builtins.list
    builtins.object builtins.range builtins.slice builtins.tuple
    collections.defaultdict collections.deque copyreg._reconstructor
    datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone
    decimal.Decimal fractions.Fraction uuid.UUID uuid.SafeUUID
    joblib.numpy_pickle.NumpyArrayWrapper numpy.dtype numpy.ndarray
"""
_NUMPY = """
    numpy.{0}.multiarray._reconstruct numpy.{0}.multiarray.scalar numpy.{0}.numeric._frombuffer
"""
INERT = ALLOWED | frozenset([*_spelt("{}", _PLAIN), *_NUMPY.format("core").split(), *_NUMPY.format("_core").split()])
# What only TorchScript's own reader, which is C++ and calls no Python, finds under these names.
_SCRIPT_MODULES = ("__torch__.", "torch.jit._pickle.")
# The opcodes that torch's restricted unpickler knows; protocol 2 as torch.save writes it needs no others.
WEIGHTS_ONLY_OPCODES = frozenset(b"cR\x81bae(su\x80t\x85\x86\x87N\x89\x88)]}\x8fJKMGXUQhjqr\x8a.")


def disallowed(imports: Iterable[Global], *, script: bool = False) -> tuple[Global, ...]:
    """Return the imports that torch.load(weights_only=True) refuses.

    `script` says that the pickle belongs to a TorchScript file, whose reader knows classes of its own.
    """
    found = (item for item in imports if item.path not in ALLOWED)
    return tuple(item for item in found if not (script and f"{item.module}.".startswith(_SCRIPT_MODULES)))


def loads_weights_only(stream: Stream) -> bool:
    """Tell whether torch.load(weights_only=True) would read the whole pickle without a complaint."""
    plain = stream.codes <= WEIGHTS_ONLY_OPCODES and not stream.computed and not stream.indirect
    return plain and stream.problem is None and not disallowed(stream.imports)


# Bounds are counts: a verdict must not depend on the load of the machine.
OPCODE_LIMIT = 2_500_000  # of a whole archive; a vocabulary of three million words needs about nine million
_LEAST = 25  # opcodes that take as long as what any pickle takes besides its own
_MAX_MARKS = 100_000  # open at once; a pickler nests about a thousand deep
_MAX_TEXT = 64 * 1024 * 1024  # bytes of the strings that are kept
_LONGEST_TEXT = 4096  # bytes; longer strings are jumped over
_LONGEST_LINE = 1 << 20  # bytes
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


class Arrays(Enum):
    """How the raw arrays are read that joblib writes between the opcodes."""

    UNKNOWN = "there are none"
    SKIPPED = "as joblib.load does"
    AS_OPCODES = "as pickle.load does, which fails where it takes a part of an array for a name or a function"


class OpcodeBudget:
    """How many opcodes may still be read, of all pickles of an archive together."""

    def __init__(self, count: int = OPCODE_LIMIT) -> None:
        self.count = self.left = count

    def read(self, file: BinaryIO, offset: int = 0, *, arrays: Arrays = Arrays.UNKNOWN) -> Stream:
        """Read a pickle as `read_pickle` does, within the rest of the budget."""
        stream = read_pickle(file, offset, limit=self.left, arrays=arrays)
        self.left -= max(stream.opcodes, _LEAST)
        return stream


def read_pickle(
    file: BinaryIO, offset: int = 0, *, limit: int = OPCODE_LIMIT, arrays: Arrays = Arrays.UNKNOWN
) -> Stream:
    """Read the pickle that starts at `offset`, opcode by opcode; never raises on its content.

    It is followed wherever C's unpickler or Python's follows it: what one of them refuses, the other may run.

    Args:
        file: Seekable.
        offset: Bytes from the file's start.
        limit: How many opcodes are read.
        arrays: How joblib's arrays are read.
    """
    machine = _Machine(ByteStream(file, offset), arrays)
    count, problem, unfollowed = machine.run(limit)
    effects, source = machine.effects, machine.source
    return Stream(
        **asdict(effects),
        root=machine.stack[-1] if problem is None else None,
        codes=frozenset(code for code in range(256) if machine.used[code]),
        opcodes=count,
        start=offset,
        end=source.start + source.at,
        problem=problem,
        unfollowed=unfollowed,
    )


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


def _read_real(line: bytes) -> float:
    """Return a number of FLOAT, as `_read_integer` does. Raises ValueError."""
    return float(line.partition(b"\0")[0])


def _read_place(line: bytes) -> int | bytes:
    """Return a place in the memo, as GET and PUT write it: long ones as digits. Raises BrokenPickleError."""
    found = _PLACE.fullmatch(line.partition(b"\0")[0])
    if found is None:
        raise BrokenPickleError("a place in the memo is not a number")
    digits = found[2].replace(b"_", b"").lstrip(b"0")
    if found[1] == b"-" and digits:
        raise BrokenPickleError("a place in the memo is negative")
    return int(digits or b"0") if len(digits) <= _COUNTABLE else digits


def _unquote(line: bytes) -> str:
    """Return a text written in quotes, with backslashes. Raises BrokenPickleError."""
    line = line.strip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in b"'\"":
        raise BrokenPickleError("a quoted string has no quotes")
    return _ESCAPE.sub(_unescape, line[1:-1].decode("latin-1"))


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code in ("", "x"):
        raise BrokenPickleError("a quoted string ends in the middle of an escape")
    if code[0] == "x":
        return chr(int(code[1:], 16))
    return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _LETTERS.get(code, f"\\{code}")


class _Machine:
    """Stack, marks, memo and effects of one pickle, with a method for each kind of opcode."""

    def __init__(self, source: ByteStream, arrays: Arrays) -> None:
        self.source = source
        self.arrays = arrays
        self.frames: list[tuple[list[object], list[list[object]], dict[int | bytes, object], int]] = []
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int | bytes, object] = {}  # numbers whose hashes collide are kept as digits
        self.effects = Effects()
        self.running = True
        self.text = 0  # bytes of strings kept
        self.framed = _NO_FRAME  # where the frame ends
        self.used = bytearray(256)

    def run(self, limit: int) -> tuple[int, str | None, bool]:
        """Execute up to STOP; return the number of opcodes, what kept it from there, and whether others may go on."""
        source, used, count = self.source, self.used, 0
        problem, unfollowed = None, False
        try:
            while self.running and count < limit:
                if source.start + source.at >= self.framed:
                    self.leave_frame()
                if source.at >= len(source.data) and not source.fill(1):
                    raise BrokenPickleError("it ends before its STOP")
                code = source.data[source.at]
                source.at += 1
                count += 1
                used[code] = 1
                action, operand = _ACTIONS[code]
                if operand is None:
                    action(self)
                else:
                    action(self, operand)
            if self.running:
                raise UnfollowedPickleError("it has more opcodes than are read (--max-opcodes)")
        except (UnfollowedPickleError, BrokenPickleError) as error:
            problem, unfollowed = str(error), isinstance(error, UnfollowedPickleError)
        except tuple(_FAILURES) as error:
            problem = next(text for kind, text in _FAILURES.items() if isinstance(error, kind))
        return count, problem, unfollowed or source.position > self.framed

    def take(self, size: int) -> bytes:
        source = self.source
        if source.at + size > len(source.data) and not source.fill(size):
            raise TruncatedError
        source.at += size
        return source.data[source.at - size : source.at]

    def number(self, layout: struct.Struct) -> Any:  # Any: an int or a float, as the layout has it
        return layout.unpack(self.take(layout.size))[0]

    def line(self, encoding: str = "latin-1") -> bytes:
        """Read a line; one that both unpicklers decode, and cannot, ends the pickle however long it is."""
        source = self.source
        end = source.data.find(b"\n", source.at)
        line = source.data[source.at : end] if end >= 0 else source.line(_LONGEST_LINE)
        source.at = end + 1 if end >= 0 else source.at
        if line is None:
            getincrementaldecoder(encoding)().decode(source.data[source.at :])
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
        self.stack.append(decode(self.line()))

    def push_text(self, form: tuple[struct.Struct, _Decode]) -> None:
        layout, decode = form
        size, source = self.number(layout), self.source
        if size > 2 and decode in _BINARY and source.fill(2) and source.data[source.at : source.at + 2] in _FILES:
            self.effects.holds(source.position, size)
        if size > _LONGEST_TEXT:
            self.source.skip(size)
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

    def key(self, layout: struct.Struct | int) -> int | bytes:
        """Read a place in the memo: a line for 0."""
        return self.number(layout) if isinstance(layout, struct.Struct) else _read_place(self.line())

    def put(self, layout: struct.Struct | int) -> None:
        self.memo[self.key(layout)] = self.stack[-1]

    def get(self, layout: struct.Struct | int) -> None:
        self.stack.append(self.memo[self.key(layout)])

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def push_new(self, kind: Callable[[], object]) -> None:
        self.stack.append(kind())

    def push_tuple(self, count: int) -> None:
        items = tuple(self.popped(count))
        self.stack.append(items)

    def collect(self, kind: Callable[[list[object]], object]) -> None:
        items = self.popped()
        self.stack.append(kind(items))

    def extend(self, count: int = 0) -> None:
        values, target = self.popped(count), self.stack[-1]
        if values or not isinstance(target, FIXED):  # Python's unpickler also extends by nothing; C's does not
            self.effects.filled(target)
        if isinstance(target, PickledCall):
            target.values = target.values or []
            target = target.values
        if isinstance(target, list):
            target.extend(values)

    def update(self, count: int = 0) -> None:
        values, target = self.popped(count), self.stack[-1]
        if values:  # Python's puts in the first pairs before it finds that the last key has no value
            self.effects.filled(target)
        pairs = paired(values)
        if isinstance(target, PickledDict | PickledCall):
            target.items = target.items or []
            target.items.extend(pairs)

    def name(self) -> str:
        """Read a line of a name; Python's unpickler takes an empty one at the end of the file."""
        try:
            line = self.line("utf-8")
        except TruncatedError:
            return ""
        return line.decode("utf-8")

    def imported(self, module: object, name: object) -> object:
        if self.frames and is_of_python_2(module, name):
            raise UnfollowedPickleError("joblib's versions differ in what an array's pickle imports here")
        return self.effects.imported(module, name)

    def push_global(self) -> None:
        self.stack.append(self.imported(self.name(), self.name()))

    def push_named(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.refuse_array_parts(name, module)
        self.stack.append(self.imported(module, name))

    def push_extension(self, layout: struct.Struct) -> None:
        name = f"extension_{self.number(layout)}"  # a number registered by some other code
        self.stack.append(self.effects.imported("copyreg", name))

    def refuse_array_parts(self, *values: object) -> None:
        if self.arrays is Arrays.AS_OPCODES and any(map(is_array_part, values)):
            raise BrokenPickleError("it takes a part of an array for a name or a function")

    def reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self.refuse_array_parts(function)
        self.effects.spread(args)
        self.stack.append(self.effects.called(function, args))

    def reduce_with_keywords(self) -> None:
        keywords, args, function = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.effects.spread(args, keywords)
        self.stack.append(self.effects.called(function, (args, keywords)))

    def make_object(self) -> None:
        values = self.popped()
        self.stack.append(self.effects.called(values[0], tuple(values[1:])))

    def make_instance(self) -> None:
        found = self.imported(self.name(), self.name())
        args = tuple(self.popped())  # C's takes the MARK first, Python's imports: without one both refuse
        self.stack.append(self.effects.called(found, args))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, PickledCall):
            is_empty = target.state is None and (target.args == () or not target.made_by(WRAPPER))
            self.effects.built(target, state)
            if self.arrays is Arrays.SKIPPED and target.class_path in (WRAPPER, None):
                if target.class_path is None or not is_empty:
                    raise UnfollowedPickleError("an object that it builds may be an array of joblib's")
                self.array(state)
        elif isinstance(target, LITERALS):  # it takes a state of nothing; Python's looks into another one first
            self.effects.spread(state, *(state if isinstance(state, tuple) else ()))
        else:
            self.effects.filled(target)

    def array(self, state: object) -> None:
        """Pass over the array behind joblib's wrapper, or begin the pickle of its objects."""
        length, is_padded = array_bytes(state)
        if DTYPE in self.effects.misused:
            raise UnfollowedPickleError("an array of joblib's may have a forged dtype")
        if self.framed < _NO_FRAME:
            self.leave_frame()  # joblib reads the array from behind it
        if length is None:
            self.frames.append((self.stack, self.marks, self.memo, self.effects.protocol))
            self.stack, self.marks, self.memo = [], [], {}
            return
        self.source.skip(length + (self.take(1)[0] if is_padded else 0))

    def persist(self) -> None:
        key = self.stack.pop()
        match key:
            case ("storage", Global(name=kind), str(name), _, int(count), *_):
                self.effects.storages[name] = kind, count
        self.stack.append(Persistent(key))

    def persist_line(self) -> None:
        self.stack.append(Persistent(self.line("ascii").decode("ascii")))

    def stop(self) -> None:
        if not self.stack:
            raise IndexError
        if self.framed < _NO_FRAME:
            self.leave_frame()
        if self.frames:
            value = self.stack[-1]
            self.stack, self.marks, self.memo, self.effects.protocol = self.frames.pop()
            self.stack[-1] = value
        else:
            self.running = False

    def check_protocol(self) -> None:
        self.effects.protocol = self.number(_1)
        if self.effects.protocol > _LATEST_PROTOCOL:
            raise BrokenPickleError("its protocol does not exist")

    def enter_frame(self) -> None:
        if self.framed < _NO_FRAME:
            raise UnfollowedPickleError("a frame is inside another one")
        size = self.number(_8)
        if size >= 1 << 63:  # both refuse it
            raise BrokenPickleError("a frame is longer than memory")
        self.framed = size + self.source.position

    def leave_frame(self) -> None:
        """End a frame; C's unpickler drops the first part of what its end cuts in two, and reads it anew."""
        if self.source.position != self.framed:
            raise UnfollowedPickleError("a frame ends in the middle of an opcode, or behind the STOP")
        self.framed = _NO_FRAME

    def refuse_byte(self) -> None:
        raise BrokenPickleError(f"byte {self.source.start + self.source.at - 1:,} is no opcode")

    # By their byte, as the standard library's pickletools documents them; some methods take an operand from here
    OPCODES: ClassVar[dict[bytes, tuple[Callable[..., object], *tuple[object, ...]]]] = {
        b"N": (push,), b")": (push, ()), b"\x88": (push, True), b"\x89": (push, False), b"K": (push_number, _1),
        b"M": (push_number, _2), b"J": (push_number, struct.Struct("<i")), b"G": (push_number, struct.Struct(">d")),
        b"I": (push_line, _read_integer), b"L": (push_line, _read_integer), b"F": (push_line, _read_real),
        b"S": (push_line, _unquote), b"V": (push_line, _raw),
        b"\x8a": (push_text, (_1, _signed)), b"\x8b": (push_text, (_4, _signed)),
        b"U": (push_text, (_1, _latin)), b"T": (push_text, (_4, _latin)), b"\x8c": (push_text, (_1, _utf8)),
        b"X": (push_text, (_4, _utf8)), b"\x8d": (push_text, (_8, _utf8)), b"C": (push_text, (_1, bytes)),
        b"B": (push_text, (_4, bytes)), b"\x8e": (push_text, (_8, bytes)), b"\x96": (push_text, (_8, bytearray)),
        b"(": (mark,), b"0": (pop,), b"1": (popped,), b"2": (duplicate,), b"\x94": (memoize,),
        b"p": (put, 0), b"q": (put, _1), b"r": (put, _4), b"g": (get, 0), b"h": (get, _1), b"j": (get, _4),
        b"]": (push_new, list), b"}": (push_new, PickledDict), b"\x8f": (push_new, list),  # \x8f: EMPTY_SET
        b"t": (push_tuple, 0), b"\x85": (push_tuple, 1), b"\x86": (push_tuple, 2), b"\x87": (push_tuple, 3),
        b"l": (collect, list), b"d": (collect, PickledDict.of), b"\x91": (collect, list),  # \x91: FROZENSET
        b"a": (extend, 1), b"e": (extend,), b"\x90": (extend,), b"s": (update, 2), b"u": (update,),  # \x90: ADDITEMS
        b"c": (push_global,), b"\x93": (push_named,), b"\x82": (push_extension, _1), b"\x83": (push_extension, _2),
        b"\x84": (push_extension, _4), b"R": (reduce,), b"\x81": (reduce,), b"\x92": (reduce_with_keywords,),
        b"o": (make_object,), b"i": (make_instance,), b"b": (build,), b"Q": (persist,), b"P": (persist_line,),
        b".": (stop,), b"\x80": (check_protocol,), b"\x95": (enter_frame,), b"\x97": (push_new, Unknown),
        b"\x98": (take, 0),  # READONLY_BUFFER changes nothing that we keep
    }  # fmt: skip


_ROWS = (_Machine.OPCODES.get(bytes([code]), (_Machine.refuse_byte,)) for code in range(256))
_ACTIONS = tuple((action, operand[0] if operand else None) for action, *operand in _ROWS)


OPCODES = frozenset(code for code, (action, _) in enumerate(_ACTIONS) if action is not _Machine.refuse_byte)
