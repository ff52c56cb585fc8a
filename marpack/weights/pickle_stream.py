"""What stands in a pickle: its inert values, what they would import and call, and how it spells them."""

import re
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from functools import cached_property
from math import prod

from msgspec import Struct, field

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
_DTYPE = re.compile(r"[a-zA-Z](\d+)")
_WIDTHS = {"U": 4}  # bytes per counted unit of a dtype; 1 for all others


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

    @cached_property
    def is_identifier(self) -> bool:
        """Tell whether Python code could spell it: a module of another name is the archive's own."""
        return all(part.isidentifier() for part in self.path.split("."))


class PickledCall(Struct, eq=False):
    """The result of a call that the pickle asks for, with what is put into it afterwards."""

    function: object
    args: object
    items: list[tuple[object, object]] | tuple[()] = ()
    values: list[object] | tuple[()] = ()
    state: object = None

    def made_by(self, path: str) -> bool:
        """Tell whether the call was of the global `path`."""
        return isinstance(self.function, Global) and self.function.path == path


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
LITERALS = (*FIXED, bytearray, list, PickledDict, Skipped)  # values that nobody can call
_COMPUTED = (PickledCall, Persistent, Unknown)  # what may turn out to be anything at all
_NO_TEXTS = (WRAPPER, "numpy.dtype", "numpy.ndarray")  # classes whose objects are never a name
_PYTHON_2 = 2  # the last protocol in which names may be Python 2's
_MAX_IMPORTS = 10_000
_MAX_FILES = 10_000


class Effects(Struct, kw_only=True):
    """What a pickle does besides making plain values."""

    imports: dict[Global, None] = field(default_factory=dict)  # in the order they are met, each once
    acts: bool = False  # C's unpickler would call something, or put something into what is no literal
    asks: bool = False  # before that, it asks by a text for something kept outside, which few loaders give
    changes: dict[Global, None] = field(default_factory=dict)  # what it imports and then puts something into
    computed: bool = False  # a name to import is itself computed, or too long to keep: no honest pickler writes that
    indirect: bool = False  # something is called that is no imported name, but the result of another call
    storages: dict[str, tuple[str, int]] = field(default_factory=dict)  # torch's: key → class and number of elements
    protocol: int = 0  # as its last PROTO tells
    files: list[tuple[int, int]] = []  # begin and length of byte strings that are files of their own

    def imported(self, module: object, name: object) -> object:
        """Return what an import would give. Raises BrokenPickleError, UnfollowedPickleError."""
        if isinstance(module, str) and isinstance(name, str):
            if not (module and name):
                raise BrokenPickleError("it imports what has no name")
            if self.protocol <= _PYTHON_2:  # `__builtin__.eval` is `builtins.eval`
                module, name = NAME_MAPPING.get((module, name), (module, name))
                module = IMPORT_MAPPING.get(module, module)
            found = Global(module, name)
            self.imports[found] = None
            if len(self.imports) > _MAX_IMPORTS:
                raise UnfollowedPickleError(f"it imports over {_MAX_IMPORTS:,} names")
            return found
        for part in (module, name):
            if not isinstance(part, (str, Skipped, *_COMPUTED)) or _is_made_by(part, _NO_TEXTS):
                raise BrokenPickleError("it imports a name that is no text")
        self.computed = True
        return Unknown()

    def called(self, function: object, args: object) -> PickledCall:
        """Return what a call would give. Raises BrokenPickleError."""
        if isinstance(function, LITERALS):
            raise BrokenPickleError("it calls what is no function")
        self.indirect |= not isinstance(function, Global)
        is_name = not isinstance(function, Global) or function.is_identifier
        self.acts |= is_name and isinstance(args, (tuple, Global, *_COMPUTED))  # Python's takes other arguments, too
        return PickledCall(function, args)

    def holds(self, begin: int, length: int) -> None:
        """Note a byte string that is a file of its own. Raises UnfollowedPickleError."""
        self.files.append((begin, length))
        if len(self.files) > _MAX_FILES:
            raise UnfollowedPickleError(f"over {_MAX_FILES:,} of its byte strings are pickles or zips")

    def filled(self, target: object) -> None:
        """Note that something is put into a value. Raises BrokenPickleError."""
        if isinstance(target, FIXED):
            raise BrokenPickleError("it puts something into what holds nothing")
        self.acts |= not isinstance(target, LITERALS)
        if isinstance(target, Global):
            self.changes[target] = None


class Stream(Effects, kw_only=True):
    """What one pickle would do, from its first opcode to its STOP, or as far as it gets."""

    root: object  # the value it makes; None when it breaks off
    codes: frozenset[int]  # the opcodes it uses, by their byte
    opcodes: int  # how many of them it executes
    start: int  # bytes from the file's start
    end: int
    problem: str | None = None  # why it was not read to its STOP; what stands before has been executed by then
    unfollowed: bool = False  # an unpickler may go on there
    is_data: bool = False  # C's unpickler certainly breaks off before it calls anything: a pickle to no one

    @property
    def has_arrays(self) -> bool:
        """Tell whether joblib wrote it, with raw arrays between the opcodes."""
        return any(item.path == WRAPPER for item in self.imports)


def _is_made_by(value: object, paths: tuple[str, ...]) -> bool:
    return isinstance(value, PickledCall) and any(value.made_by(path) for path in paths)


def paired(values: list[object]) -> list[tuple[object, object]]:
    """Return keys with their values, of what stands in turn. Raises BrokenPickleError."""
    if len(values) % 2:
        raise BrokenPickleError("a key has no value")
    return list(zip(values[::2], values[1::2], strict=True))


def array_bytes(state: object) -> tuple[int | None, bool]:
    """Return how long the array behind joblib's wrapper is, and whether padding, and a byte that counts it, precede it.

    The length is None for objects, which follow as a pickle of their own.
    Raises UnfollowedPickleError when the state tells none.
    """
    fields = state if isinstance(state, PickledDict) else PickledDict()
    match fields.get("shape"), fields.get("dtype"):
        case tuple(shape), PickledCall(args=(str(code), *_)):
            width = _DTYPE.fullmatch(code)
        case _:
            raise UnfollowedPickleError("an array of joblib's has no shape or dtype")
    if code.startswith("O"):
        return None, False
    if width is None or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise UnfollowedPickleError("an array of joblib's has an unknown dtype or shape")
    padded = fields.get("numpy_array_alignment_bytes") is not None
    return prod(shape) * int(width[1]) * _WIDTHS.get(code[0], 1), padded
