"""What stands in a pickle: its inert values, what they would import and call, and how it spells them."""

import re
from functools import cached_property
from math import prod

from msgspec import Struct

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
_DTYPE = re.compile(r"[a-zA-Z](\d+)")
_WIDTHS = {"U": 4}  # bytes per counted unit of a dtype; 1 for all others
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class BrokenPickleError(Exception):
    """A real unpickler would raise here; private to the readers of this package."""


class Global(Struct, frozen=True, dict=True):
    """A name that the pickle imports."""

    module: str
    name: str

    @cached_property
    def path(self) -> str:
        """The dotted path, as messages and allow-lists spell it."""
        return f"{self.module}.{self.name}"


class PickledCall(Struct, eq=False):
    """The result of a call that the pickle asks for, with what is put into it afterwards."""

    function: object
    args: object
    items: list[tuple[object, object]] = []
    values: list[object] = []
    state: object = None

    def made_by(self, path: str) -> bool:
        """Tell whether the call was of the global `path`."""
        return isinstance(self.function, Global) and self.function.path == path


class PickledDict(Struct, eq=False):
    """A dict of the pickle: pairs in order, keys unhashed."""

    items: list[tuple[object, object]] = []

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


class Stream(Struct, frozen=True, kw_only=True):
    """What one pickle would do, from its first opcode to its STOP, or as far as it gets."""

    root: object  # the value it makes; None when it breaks off
    imports: tuple[Global, ...]  # in the order they are met, each once
    calls: int  # REDUCE, NEWOBJ, NEWOBJ_EX, OBJ and INST
    computed: bool  # a name to import is itself computed: no honest pickler writes that
    indirect: bool  # something is called that is no imported name, but the result of another call
    storages: frozenset[str]  # keys of the torch storages it refers to
    payloads: tuple[tuple[int, int], ...]  # begin and length of byte strings that look like files of their own
    codes: frozenset[int]  # the opcodes it uses, by their byte
    opcodes: int  # how many of them it executes
    start: int  # bytes from the file's start
    end: int
    problem: str | None = None  # why it breaks off; what stands before has been executed by then
    too_long: bool = False  # given up at the limit, not at a fault of the pickle's own

    @property
    def has_arrays(self) -> bool:
        """Tell whether joblib wrote it, with raw arrays between the opcodes."""
        return any(item.path == WRAPPER for item in self.imports)

    @property
    def inert(self) -> bool:
        """Tell whether it breaks off before it could do anything: a pickle to no one."""
        return self.problem is not None and not self.too_long and not self.imports and not self.computed


def decimal(line: bytes) -> int:
    """Return a number written in decimals; 00 and 01 are False and True."""
    return line == b"01" if line in (b"00", b"01") else int(line.rstrip(b"L"))


def unquoted(line: bytes) -> str:
    """Return a text written in quotes, with backslashes. Raises BrokenPickleError."""
    line = line.strip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in b"'\"":
        raise BrokenPickleError("a quoted string has no quotes")
    return _ESCAPE.sub(_unescaped, line[1:-1].decode("latin-1"))


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x":
        return chr(int(code[1:], 16))
    return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _LETTERS.get(code, code)


def array_bytes(state: object) -> tuple[int | None, bool]:
    """Return how long the array behind joblib's wrapper is, and whether padding, and a byte that counts it, precede it.

    The length is None for objects, which follow as a pickle of their own. Raises ValueError when the state tells none.
    """
    fields = state if isinstance(state, PickledDict) else PickledDict()
    match fields.get("shape"), fields.get("dtype"):
        case tuple(shape), PickledCall(args=(str(code), *_)):
            width = _DTYPE.fullmatch(code)
        case _:
            raise ValueError("no shape or dtype")
    if code.startswith("O"):
        return None, False
    if width is None or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError("an unknown dtype or shape")
    padded = fields.get("numpy_array_alignment_bytes") is not None
    return prod(shape) * int(width[1]) * _WIDTHS.get(code[0], 1), padded
