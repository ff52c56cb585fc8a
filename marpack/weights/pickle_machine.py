"""The pickle machine, its inert values, joblib's arrays."""

import re
from collections.abc import Callable
from math import prod
from typing import Any

from msgspec import Struct

from marpack.weights.bytestream import ByteStream

WRAPPER = "joblib.numpy_pickle.NumpyArrayWrapper"
_DTYPE = re.compile(r"[a-zA-Z](\d+)")
_WIDTHS = {"U": 4}  # bytes per counted unit; 1 for all others
LONGEST_TEXT = 4096  # bytes; longer strings are jumped over
LATEST_PROTOCOL = 5
_MAX_PAYLOADS = 10_000
_IMPORTABLE = re.compile(r"""[^\s:()\[\]{}"'=#,;]+""")  # no module or class has another name
_FILES = frozenset([b"PK", *(b"\x80" + bytes([number]) for number in range(LATEST_PROTOCOL + 1))])


class Global(Struct, frozen=True):
    """A name that the pickle imports."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """The dotted path, as messages and allow-lists spell it."""
        return f"{self.module}.{self.name}"


class PickledCall:
    """The result of a call that the pickle asks for, with what is put into it afterwards."""

    __slots__ = ("args", "function", "items", "state", "values")

    def __init__(self, function: object, args: object) -> None:
        self.function = function
        self.args = args
        self.items: list[tuple[object, object]] = []
        self.values: list[object] = []
        self.state: object = None

    def made_by(self, path: str) -> bool:
        """Tell whether the call was of the global `path`."""
        return isinstance(self.function, Global) and self.function.path == path


class PickledDict:
    """A dict of the pickle: pairs in order, keys unhashed."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[object, object]]) -> None:
        self.items = items

    def get(self, key: object) -> Any:  # Any: whatever the pickle's author put there
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


class Unknown:
    """A value that only running the pickle would show."""

    __slots__ = ()


UNKNOWN = Unknown()


def raw_length(state: object) -> int | None:
    """Return how many bytes follow a wrapper of this state; None for objects, which follow as a pickle of their own.

    Raises ValueError when the state does not say.
    """
    if not isinstance(state, PickledDict):
        state = PickledDict([])
    match state.get("shape"), state.get("dtype"):
        case tuple(shape), PickledCall(args=(str(code), *_)):
            width = _DTYPE.fullmatch(code)
        case _:
            raise ValueError("no shape or dtype")
    if code.startswith("O"):
        return None
    if width is None or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError("an unknown dtype or shape")
    return prod(shape) * int(width[1]) * _WIDTHS.get(code[0], 1)


def is_padded(state: object) -> bool:
    """Tell whether a byte that counts padding, and the padding, stand before the array."""
    return isinstance(state, PickledDict) and state.get("numpy_array_alignment_bytes") is not None


_COMPUTED = (PickledCall, Persistent, Unknown)  # what may turn out to be anything at all


class BrokenPickleError(Exception):
    """A real unpickler would raise here; private to the readers of this package."""


class PickleMachine:
    """Stack, marks and memo of one pickle, and what it was seen to do."""

    __slots__ = (
        "calls", "computed", "frames", "imports", "indirect", "joblib", "marks", "memo", "payloads", "running",
        "source", "stack", "storages",
    )  # fmt: skip

    def __init__(self, source: ByteStream, *, joblib: bool = False) -> None:
        self.source = source
        self.joblib = joblib  # read it as joblib does, with raw arrays between the opcodes
        self.frames: list[tuple[list[object], list[list[object]], dict[int, object]]] = []
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.imports: dict[Global, None] = {}
        self.calls = 0
        self.computed = False
        self.indirect = False
        self.running = True
        self.storages: set[str] = set()
        self.payloads: list[tuple[int, int]] = []

    def note(self, module: object, name: object) -> None:
        """Push an imported name, and remember that it was imported."""
        if isinstance(module, str) and isinstance(name, str):
            if not (_IMPORTABLE.fullmatch(module) and _IMPORTABLE.fullmatch(name)):
                raise BrokenPickleError("it imports what can have no such name")
            found = Global(module, name)
            self.imports[found] = None
            self.stack.append(found)
        elif isinstance(module, _COMPUTED) or isinstance(name, _COMPUTED):
            self.computed = True
            self.stack.append(UNKNOWN)
        else:
            raise BrokenPickleError("it imports a name that is no text")

    def call(self, function: object, args: object) -> None:
        """Push what a call would return."""
        if isinstance(function, _COMPUTED):
            self.indirect = True
        elif not isinstance(function, Global):
            raise BrokenPickleError("it calls what is no function")
        self.calls += 1
        self.stack.append(PickledCall(function, args))

    def array(self, state: object) -> None:
        """Pass over the array behind joblib's wrapper, or begin the pickle of its objects."""
        length = raw_length(state)
        if length is None:
            self.frames.append((self.stack, self.marks, self.memo))
            self.stack, self.marks, self.memo = [], [], {}
            return
        self.source.skip(length + (self.length(1) if is_padded(state) else 0))

    def pop_mark(self) -> list[object]:
        """Return what was pushed since the last MARK."""
        if not self.marks:
            raise BrokenPickleError("a MARK is missing")
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def length(self, width: int) -> int:
        """Read the little-endian length in front of a string."""
        return self.source.byte() if width == 1 else int.from_bytes(self.source.take(width), "little")

    def text(self, size: int, decode: Callable[[bytes], object]) -> None:
        """Push a string of `size` bytes, or jump over one that is too long to name anything."""
        source, start = self.source, self.source.at
        if size > LONGEST_TEXT:
            source.skip(size)
            self.stack.append(Skipped(size))
        elif start + size <= len(source.data):  # nearly always: the window is longer than names are
            source.at = start + size
            self.stack.append(decode(source.data[start : source.at]))
        else:
            self.stack.append(decode(source.take(size)))

    def payload(self, size: int) -> None:
        """Push a byte string, and note where it lies if it could be a pickle or a zip of its own."""
        source = self.source
        begins = source.data[source.at : source.at + 2] if size > 2 and source.fill(2) else b""
        if begins in _FILES and len(self.payloads) < _MAX_PAYLOADS:
            self.payloads.append((source.position, size))
        self.text(size, bytes)
