"""Rows that were read together, of whatever format."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
from msgspec import Struct

from marpack.errors import first_line
from marpack.json_text import legible, to_json

BATCH_ROWS = 4096  # read at once at most…
BATCH_BYTES = 8 << 20  # …or of so many bytes, about


class UnreadableValue(Struct, frozen=True):
    """What stands in a column in place of a value that could not be read."""

    why: str


class TableHead(Struct, frozen=True, kw_only=True):
    """What a table tells of itself before its rows are read."""

    names: tuple[str, ...]
    rows: int | None = None  # None: known at the end
    schema: Any = None  # Any: pyarrow's schema; None: values of a CSV or JSONL, which have no types of their column


class RowBatch(Struct, frozen=True):
    """Some rows that follow each other."""

    first: int  # number of the first one, within its table
    count: int
    columns: Mapping[str, Any]  # Any: name → a list of `count` values; or a RecordBatch

    def part(self, start: int, stop: int) -> Self:
        """Return the rows of the numbers [start, stop), which are among these."""
        if start == self.first and stop == self.first + self.count:
            return self
        offset, count = start - self.first, stop - start
        if isinstance(self.columns, pa.RecordBatch):
            return type(self)(start, count, self.columns.slice(offset, count))
        return type(self)(start, count, {name: values[offset:][:count] for name, values in self.columns.items()})

    def kept(self, name: str) -> Any:  # Any: pyarrow's array
        """Return a column as it is copied: Arrow's own, or what others hold as texts, JSON where it is no text."""
        values = self.columns[name]
        return values if isinstance(values, pa.Array) else pa.array(map(_as_text, values), pa.string())


def _as_text(value: Any) -> str | None:  # Any: of CSV or JSONL
    if value is None or isinstance(value, UnreadableValue):
        return None
    return legible(value) if isinstance(value, str) else to_json(value).decode()


def python_values(column: Any) -> Sequence[Any]:  # Any: a list, an array of numpy's or of Arrow's
    """Return a column's values as Python's own; one that cannot be is an UnreadableValue."""
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        values: Sequence[Any] = column.tolist() if hasattr(column, "tolist") else column  # Any: as above
        return values
    try:
        values = column.to_pylist(maps_as_pydicts="strict")
    except (ValueError, KeyError, OverflowError, pa.ArrowException):  # one of them spoils them all
        return [_value(scalar) for scalar in column]
    return values


def _value(scalar: Any) -> Any:  # Any: pyarrow's
    try:
        return scalar.as_py(maps_as_pydicts="strict")
    except (ValueError, KeyError, OverflowError, pa.ArrowException) as error:
        return UnreadableValue(f"a value of type {scalar.type} cannot be read: {first_line(error)}")
