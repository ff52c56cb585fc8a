"""What a pickle would make, as inert values: nothing here is ever imported, called or hashed by content."""

from typing import Any

from msgspec import Struct


class Global(Struct, frozen=True):
    """A name that the pickle imports."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """The dotted path, as messages and allow-lists spell it."""
        return f"{self.module}.{self.name}"


class Made:
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


class Table:
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
