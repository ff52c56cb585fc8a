"""Rows that belong together, read from a table of whatever format or handed in as one of whichever library."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
from msgspec import Struct

from marpack.errors import UsageError, first_line
from marpack.json_text import legible, to_json
from marpack.scoring.mapping import RowMapping

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
    if getattr(getattr(column, "dtype", None), "kind", "") in set("mM"):  # numpy tells times as numbers
        column = pa.array(column)
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        values: Sequence[Any] = column.tolist() if hasattr(column, "tolist") else column  # Any: as above
        return values
    kind = _in_microseconds(column.type)
    try:
        values = _as_python(column, kind)
    except _UNREADABLE:  # one of them spoils them all
        return [_value(column.take([place]), kind) for place in range(len(column))]
    return values


_UNREADABLE = (ValueError, KeyError, OverflowError, pa.ArrowException)


def _as_python(column: Any, kind: Any) -> Sequence[Any]:  # Any: pyarrow's
    values: Sequence[Any] = (column if kind == column.type else column.cast(kind)).to_pylist(maps_as_pydicts="strict")
    return values


def _value(column: Any, kind: Any) -> Any:  # Any: pyarrow's; the column is of one value
    try:
        return _as_python(column, kind)[0]
    except _UNREADABLE as error:
        return UnreadableValue(f"a value of type {column.type} cannot be read: {first_line(error)}")


def _in_microseconds(kind: Any) -> Any:  # Any: pyarrow's type
    """Return a type whose times are no finer than Python's: of finer ones pyarrow makes pandas' own, where that is."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in fields])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_in_microseconds(kind.item_type)))
    return kind


def batch_of(rows: Any, mapping: RowMapping) -> RowBatch:  # Any: of whichever library
    """Return all rows of a table; raises UsageError for what is none, and for one without a mapping's columns."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        mapping.check(rows.schema)
        return RowBatch(0, rows.num_rows, rows)
    if isinstance(rows, Mapping):
        mapping.check_names(list(rows))
        counts = {len(values) for values in rows.values()}
        if len(counts) > 1:
            raise UsageError("the columns are of different lengths", where="rows")
        return RowBatch(0, max(counts, default=0), rows)
    if hasattr(rows, "columns") and hasattr(rows, "assign"):
        mapping.check_names(list(rows.columns))
        return RowBatch(0, len(rows), {name: _without_nan(rows[name]) for name in mapping.asked})
    hint = "give a dict of columns, an Arrow table or a pandas DataFrame"
    raise UsageError(f"this is no table but of type {type(rows).__name__}", where="rows", hint=hint)


def _without_nan(series: Any) -> Any:  # Any: pandas'
    """Return a column whose missing values are null, which pandas writes as NaN."""
    try:
        return pa.array(series, from_pandas=True)
    except pa.ArrowException:  # of values of several types
        return series.tolist()


def with_columns(rows: Any, keep: tuple[str, ...], made: Mapping[str, Any]) -> Any:  # Any: as above, pyarrow's arrays
    """Return a table like another, of those of its columns that are kept and of new ones."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        fields = [*(rows.schema.field(name) for name in keep), *(pa.field(name, made[name].type) for name in made)]
        columns = [*(rows.column(name) for name in keep), *made.values()]
        return type(rows).from_arrays(columns, schema=pa.schema(fields))
    if isinstance(rows, Mapping):
        return {name: rows[name] for name in keep} | {name: array.to_pylist() for name, array in made.items()}
    return rows[list(keep)].assign(**{name: array.to_pandas().to_numpy() for name, array in made.items()})
