"""Python's two unpicklers, run with inert imports that record what an unpickler does to them."""

import copyreg
import io
import pickle
import resource
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MAX_LOADS = 6  # pickles that are loaded one after the other from a file
_MEMORY = 256 * 1024 * 1024  # bytes more than a process has to begin with
_PADDING = b"\0 \t\r\n"
_PYTHON_2 = 2  # the last protocol whose names may be those of Python 2
EXTENSIONS = {7: ("extmodule", "one"), 300: ("extmodule", "two"), 70_000: ("builtins", "eval")}


class Event(NamedTuple):
    """One thing that an unpickler did to an imported object, or to what a call of one returned."""

    kind: str  # "call", "state" or "read"
    path: str  # the import, as "module.name"
    depth: int  # calls between the import and the object: 0 for the import itself
    args: int  # number of arguments of a call


class Load(NamedTuple):
    """What one load did."""

    begin: int
    end: int | None  # None: it failed
    imports: list[tuple[tuple[str, str], ...]]  # each with the spellings that it may have had for Python 3
    events: list[Event]
    error: Exception | None


class Variant(NamedTuple):
    """How a file is loaded."""

    in_c: bool
    encoding: str
    has_buffers: bool
    kinds: int  # which kinds of objects imports and calls give: 0 for classes only
    is_buffered: bool = False  # a file that can be peeked into, as files on disk
    in_joblib: bool = False


JOBLIB = Variant(in_c=False, encoding="ASCII", has_buffers=False, kinds=0, in_joblib=True)
imports: list[tuple[tuple[str, str], ...]] = []
events: list[Event] = []


class Inert:
    """The methods of inert objects: everything that an unpickler can do to them is recorded and gives inert objects."""

    path: str
    depth: int

    def __call__(self, *args: object, **_: object) -> object:
        return called(self.path, self.depth, args)

    def append(self, *_: object) -> None:
        record("state", self)

    extend = add = update = __setstate__ = __setattr__ = __setitem__ = append  # type: ignore[assignment]

    def __iter__(self) -> Iterator[object]:
        record("read", self)
        return iter(())

    def items(self) -> tuple[()]:
        record("read", self)
        return ()

    keys = items


class InertType(Inert, type):
    """The class of inert classes."""


class InertTuple(Inert, tuple):  # type: ignore[type-arg]  # noqa: SLOT001 - arguments that C's unpickler passes on
    __hash__ = object.__hash__


class InertDict(Inert, dict):  # type: ignore[type-arg]  # a state and keywords that C's unpickler takes
    __hash__ = object.__hash__


class FromLoader(InertType):
    """The class of what `persistent_load` gives: not imported, so that nothing is recorded."""

    def __call__(cls, *_: object, **__: object) -> object:
        return FROM_LOADER


def record(kind: str, target: Inert, args: int = 0) -> None:
    if target.depth >= 0:
        events.append(Event(kind, target.path, target.depth, args))


def called(path: str, depth: int, args: tuple[object, ...]) -> object:
    events.append(Event("call", path, depth, len(args)))
    return inert(path, min(depth + 1, 2), kinds)


def instantiated(cls: InertType, *args: object, **_: object) -> object:
    """Stand in for `__new__`; Python's unpickler also calls that of an instance."""
    return called(cls.path, cls.depth, args) if cls.depth >= 0 else FROM_LOADER


def inert_class(path: str, depth: int, metaclass: type[InertType] = InertType) -> InertType:
    made = type.__new__(metaclass, "Inert", (), {"__new__": instantiated})
    type.__setattr__(made, "path", path)
    type.__setattr__(made, "depth", depth)
    return made


kinds = 0  # of the variant that runs
FROM_LOADER = inert_class("persistent", -1, FromLoader)


@cache
def inert(path: str, depth: int, kinds: int) -> object:
    """Return what stands for an import or a call's result; by its path it is a class, a text, a tuple or a dict."""
    kind = (len(path) + depth) % 4 if kinds else 0
    if kind == 1:
        return path.rpartition(".")[2] if kinds == 1 else path.encode("utf-8", "surrogatepass")
    if kind in (2, 3):
        value: Any = InertTuple() if kind == 2 else InertDict()
        object.__setattr__(value, "path", path)
        object.__setattr__(value, "depth", depth)
        return value
    return inert_class(path, depth)


def python_3(module: str, name: str) -> tuple[str, str]:
    """Return a name as Python 3 has it, by the rule of `find_class`."""
    if (module, name) in NAME_MAPPING:
        return NAME_MAPPING[module, name]
    return IMPORT_MAPPING.get(module, module), name


class CUnpickler(pickle.Unpickler):
    """C's, which does not show its protocol: an import may have been mapped or not."""

    def find_class(self, module: str, name: str) -> object:
        spelt = python_3(module, name)
        imports.append((spelt, (module, name)))
        return inert(".".join(spelt), 0, kinds)

    def persistent_load(self, key: object) -> object:
        return FROM_LOADER


class PythonUnpickler(pickle._Unpickler):  # type: ignore[name-defined,misc]
    """Python's own."""

    def find_class(self, module: str, name: str) -> object:
        spelt = python_3(module, name) if self.proto <= _PYTHON_2 else (module, name)
        imports.append((spelt,))
        return inert(".".join(spelt), 0, kinds)

    def persistent_load(self, key: object) -> object:
        return FROM_LOADER


class Dtype:
    """Stands for numpy's dtype, which a forged state makes crash."""

    def __init__(self, code: object, *_: object) -> None:
        made = np.dtype(code) if isinstance(code, str) else np.dtype("f8")
        self.hasobject, self.itemsize, self.is_sized = made.hasobject, made.itemsize, made.kind in "SUV"

    def __setstate__(self, state: Any) -> None:
        self.hasobject = bool(state[7] & 1)
        self.itemsize = state[5] if self.is_sized and state[5] >= 0 else self.itemsize


class ArrayWrapper:
    """Stands for joblib's NumpyArrayWrapper: its state replaces what it likes, its methods among them."""

    def __init__(self, subclass: object, shape: Any, order: object, dtype: Any, *_: object) -> None:
        self.shape, self.dtype, self.numpy_array_alignment_bytes = shape, dtype, 16

    def safe_get_numpy_array_alignment_bytes(self) -> object:
        return getattr(self, "numpy_array_alignment_bytes", None)

    def read_array(self, unpickler: "JoblibUnpickler", _: bool) -> object:
        count = 1
        for size in self.shape:
            count *= int(np.int64(size))
        if self.dtype.hasobject:
            inner: Any = pickle._Unpickler(unpickler.file)  # type: ignore[attr-defined]
            inner.find_class = unpickler.find_class
            return inner.load()
        if self.safe_get_numpy_array_alignment_bytes() is not None:
            unpickler.file.read(unpickler.file.read(1)[0])
        size = count * self.dtype.itemsize
        if count < 0 or len(unpickler.file.read(size)) < size:
            raise ValueError("the array is cut off")
        return inert("numpy.ndarray", 1, kinds)

    def read(self, unpickler: "JoblibUnpickler", ensure: bool) -> object:
        return self.read_array(unpickler, ensure)


class JoblibUnpickler(PythonUnpickler):
    """joblib's, which reads arrays between opcodes."""

    dispatch = pickle._Unpickler.dispatch.copy()  # type: ignore[attr-defined]

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        self.file = file

    def find_class(self, module: str, name: str) -> object:
        found = super().find_class(module, name)
        path = ".".join(imports[-1][0])
        return {"joblib.numpy_pickle.NumpyArrayWrapper": ArrayWrapper, "numpy.dtype": Dtype}.get(path, found)

    def load_build(self) -> None:
        super().load_build()
        if isinstance(self.stack[-1], ArrayWrapper):
            self.stack.append(self.stack.pop().read(self, True))

    dispatch[pickle.BUILD[0]] = load_build


@contextmanager
def limited(more: int) -> Iterator[None]:
    """Bound the addresses of this process: what asks for gigabytes raises MemoryError."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextmanager
def bounded() -> Iterator[None]:
    """Register extension codes, and bound the memory: a place in the memo or a length may ask for gigabytes."""
    copyreg._inverted_registry.update(EXTENSIONS)  # type: ignore[attr-defined]
    try:
        with limited(_MEMORY):
            yield
    finally:
        for code in EXTENSIONS:
            del copyreg._inverted_registry[code]  # type: ignore[attr-defined]


def load_all(data: bytes, variant: Variant, keep: Callable[[object], None] = id) -> list[Load]:
    """Load pickle after pickle from a file, padding between them, up to its end or the first failure."""
    global kinds  # noqa: PLW0603 - the inert objects of one run share it, and a run is one thread
    kinds = variant.kinds
    if inert.cache_info().currsize > 20_000:
        inert.cache_clear()
    file: Any = io.BytesIO(data)
    if variant.is_buffered:
        file = io.BufferedReader(file)
    unpickler = JoblibUnpickler if variant.in_joblib else CUnpickler if variant.in_c else PythonUnpickler
    loads: list[Load] = []
    end: int | None = 0
    while end is not None and end < len(data) and len(loads) < MAX_LOADS:
        imports.clear()
        events.clear()
        begin, end, error = end, None, None
        buffers = [b"abc", bytearray(b"d"), b""] if variant.has_buffers else None
        try:
            keep(unpickler(file, encoding=variant.encoding, buffers=buffers).load())
            end = file.tell()
        except Exception as raised:  # noqa: BLE001 - a stream may raise what it likes
            error = raised
        loads.append(Load(begin, end, imports[:], events[:], error))
        if end is not None and end < len(data) and data[end] in _PADDING:
            end = len(data) - len(data[end:].lstrip(_PADDING))
            file.seek(end)
        if copyreg._extension_cache:  # type: ignore[attr-defined]
            copyreg._extension_cache.clear()  # type: ignore[attr-defined]
    return loads
