"""The contents of a pickle: inert values, imports and calls; and the imports that torch and marpack allow."""

import re
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from math import prod

from msgspec import Struct, field

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
