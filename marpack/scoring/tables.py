"""Tables, the batches of their rows, and how each format is read: in bounded memory, whatever the size of a file.

Parquet and Arrow have types. A value of a CSV is a text, one of JSONL has the type in its own line; both may be .gz. No
type is ever guessed from other rows, and an invalid line costs only itself.
"""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple, Self, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip
from isal.igzip_lib import IsalError
from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import MarpackError, TableError, UsageError, first_line, shortened
from marpack.json_text import legible, to_json
from marpack.scoring.mapping import RowMapping
from marpack.scoring.storage import FileState, FoundFiles, find, open_file, shown, state_of

PATH, BODY = "path", "body"  # columns of a folder of files that are not tables
_BATCH_ROWS = 4096  # of a batch at most…
_BATCH_BYTES = 8 << 20  # …or this many bytes, about
_GROUPS_READ = 100  # row groups whose sizes are read, of any number
_BUFFER = 1 << 20  # bytes of a column chunk that are read at once
_MAX_LINE = 64 << 20  # bytes
_LINES_READ = 100  # lines of JSONL whose keys are its columns
_ISAL = cast("type[Exception]", IsalError)  # the stub of isal declares the class as one of its own
_ERRORS: tuple[type[Exception], ...] = (OSError, pa.ArrowException, EOFError, csv.Error, _ISAL)  # of any format
_INVALID_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_INVALID_VALUE = (ValueError, KeyError, OverflowError, pa.ArrowException)
_DECODE = msgspec.json.Decoder(dict[str, Any]).decode  # Any: JSON


class UnreadableValue(Struct, frozen=True):
    """The place holder of a value that cannot be read."""

    why: str


_Row = tuple[Any, ...] | UnreadableValue  # Any: JSON


class TableHead(Struct, frozen=True, kw_only=True):
    """A table's description, without its rows."""

    names: tuple[str, ...]
    rows: int | None = None  # None: known at the end
    schema: Any = None  # Any: pyarrow's schema; None: a CSV or JSONL, whose columns have no types


class RowBatch(Struct, frozen=True):
    """Some consecutive rows."""

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
        """Return a column as it is copied: an Arrow array unchanged, other values as texts or JSON."""
        values = self.columns[name]
        if isinstance(values, pa.Array):
            return values

        def as_text(value: Any) -> str | None:  # Any: of CSV or JSONL
            if value is None or isinstance(value, UnreadableValue):
                return None
            return legible(value) if isinstance(value, str) else to_json(value).decode()

        return pa.array(map(as_text, values), pa.string())


def python_values(column: Any) -> Sequence[Any]:  # Any: a list, an array of numpy's or of Arrow's
    """Return a column's values as Python's own; one that cannot be read is an UnreadableValue."""
    if getattr(getattr(column, "dtype", None), "kind", "") in set("mM"):  # numpy returns times as numbers
        column = pa.array(column)
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        values: Sequence[Any] = column.tolist() if hasattr(column, "tolist") else column  # Any: as above
        return values
    kind = _in_microseconds(column.type)

    def read(part: Any) -> list[Any]:  # Any: pyarrow's
        values: list[Any] = (part if kind == part.type else part.cast(kind)).to_pylist(maps_as_pydicts="strict")
        return values

    try:
        return read(column)
    except _INVALID_VALUE:
        made: list[Any] = []  # Any: as above
        for place in range(len(column)):
            try:
                made += read(column.take([place]))
            except _INVALID_VALUE as error:
                made.append(UnreadableValue(f"a value of type {column.type} cannot be read: {first_line(error)}"))
        return made


def _in_microseconds(kind: Any) -> Any:  # Any: pyarrow's type
    """Return a type whose times have Python's resolution; of finer times pyarrow makes pandas' own objects."""
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


# --- tables of other libraries --------------------------------------------------------------------------------------


def batch_of(rows: Any, mapping: RowMapping) -> RowBatch:  # Any: of any library
    """Return all rows of a table; raise UsageError for another object, or one without a mapping's columns."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        mapping.check(rows.schema)
        return RowBatch(0, rows.num_rows, rows)
    if isinstance(rows, Mapping):
        mapping.check_names(list(rows))
        counts = {len(values) for values in rows.values()}
        if len(counts) > 1:
            hint = "Pass columns of one length, with None for missing values."
            raise UsageError("the columns have different lengths", where="rows", hint=hint)
        return RowBatch(0, max(counts, default=0), rows)
    if not (hasattr(rows, "columns") and hasattr(rows, "assign")):
        hint = "Pass a dict of columns, an Arrow table or a pandas DataFrame."
        raise UsageError(f"not a table, but of type {type(rows).__name__}", where="rows", hint=hint)
    mapping.check_names(list(rows.columns))
    columns = {}
    for name in mapping.request_columns:
        try:
            columns[name] = pa.array(rows[name], from_pandas=True)  # NaN, which is pandas' missing value, becomes null
        except pa.ArrowException:  # of values of several types
            columns[name] = rows[name].tolist()
    return RowBatch(0, len(rows), columns)


def with_columns(rows: Any, keep: tuple[str, ...], made: Mapping[str, Any]) -> Any:  # Any: as above, pyarrow's arrays
    """Return a table of the same kind, with the kept columns of another and with new ones."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        fields = [*(rows.schema.field(name) for name in keep), *(pa.field(name, made[name].type) for name in made)]
        columns = [*(rows.column(name) for name in keep), *made.values()]
        return type(rows).from_arrays(columns, schema=pa.schema(fields))
    if isinstance(rows, Mapping):
        return {name: rows[name] for name in keep} | {name: array.to_pylist() for name, array in made.items()}
    return rows[list(keep)].assign(**{name: array.to_pandas().to_numpy() for name, array in made.items()})


# --- formats --------------------------------------------------------------------------------------------------------


class TableKind(StrEnum):
    """The format of a table."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    JSONL = "jsonl"
    FILES = "files"  # a row each


def _parquet_head(file: BinaryIO, _: str) -> TableHead:
    table = pq.ParquetFile(file)
    schema = table.schema_arrow
    return TableHead(names=tuple(schema.names), rows=table.metadata.num_rows, schema=schema)


def _read_parquet(file: BinaryIO, _: str, columns: Sequence[str], start: int, stop: int | None) -> Iterator[RowBatch]:
    """Yield batches of Parquet, read unbuffered and by one thread: memory stays flat at any size of a row group."""
    table = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
    first, groups = 0, list(range(table.num_row_groups))
    while groups and first + (rows := table.metadata.row_group(groups[0]).num_rows) <= start:
        first += rows
        groups.pop(0)
    # The rows of a batch follow from the bytes per row of the largest row group.
    most, total = 1.0, table.metadata.num_row_groups
    for number in range(0, total, 1 + total // _GROUPS_READ):
        group = table.metadata.row_group(number)
        chunks = [group.column(place) for place in range(group.num_columns)]
        wanted = [each for each in chunks if {each.path_in_schema, each.path_in_schema.partition(".")[0]} & {*columns}]
        most = max(most, sum(each.total_uncompressed_size for each in wanted) / max(1, group.num_rows))
    count = max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / most)))
    batches = table.iter_batches(count, row_groups=groups, columns=list(columns), use_threads=False)
    return _between(batches, first, start, stop)


def _arrow_head(file: BinaryIO, _: str) -> TableHead:
    schema = pa.ipc.open_file(file).schema
    return TableHead(names=tuple(schema.names), schema=schema)


def _read_arrow(file: BinaryIO, _: str, columns: Sequence[str], start: int, stop: int | None) -> Iterator[RowBatch]:
    """Yield batches of Arrow's file format, which Feather is also: those that were written, in slices."""
    table = pa.ipc.open_file(file)
    batches = (table.get_batch(number).select(list(columns)) for number in range(table.num_record_batches))
    pieces = (each.slice(at, _BATCH_ROWS) for each in batches for at in range(0, each.num_rows, _BATCH_ROWS))
    return _between(pieces, 0, start, stop)


def _between(batches: Iterator[Any], first: int, start: int, stop: int | None) -> Iterator[RowBatch]:  # Any: pyarrow's
    """Yield the rows [start, stop) of batches, which begin with row `first`."""
    for batch in batches:
        end = first + batch.num_rows
        wanted = max(first, start), end if stop is None else min(end, stop)
        if wanted[0] < wanted[1]:
            yield RowBatch(first, batch.num_rows, batch).part(*wanted)
        if stop is not None and end >= stop:
            return
        first = end


def _csv_head(file: BinaryIO, name: str) -> TableHead:
    header = next(_csv_records(file, name), None)
    if not header:
        raise UsageError("the file has no header", where=name, hint="Write the columns' names into the first line.")
    return TableHead(names=tuple(header))


def _read_csv(file: BinaryIO, name: str, columns: Sequence[str], start: int, stop: int | None) -> Iterator[RowBatch]:
    records = _csv_records(file, name)
    header = next(records, [])
    places, width = [header.index(column) for column in columns], len(header)

    def row(record: list[str]) -> tuple[int, _Row]:
        if len(record) != width:
            return 0, UnreadableValue(f"the row has {len(record)} fields, the header {width}")
        return sum(map(len, record)), tuple([record[place] for place in places])

    return _batches(map(row, islice(records, start, stop)), columns, start)


def _csv_records(file: BinaryIO, name: str) -> Iterator[list[str]]:
    # Bytes that are not UTF-8 are escaped: a request with them is the row's own failure.
    text = (line.decode("utf-8", "surrogateescape") for line in _lines(file, name))
    if csv.field_size_limit() < _MAX_LINE:  # of the whole process; it is only ever raised
        csv.field_size_limit(_MAX_LINE)
    first = (line.removeprefix("\ufeff") for line in islice(text, 1))
    return (record for record in csv.reader(chain(first, text), strict=True) if record)


def _jsonl_head(file: BinaryIO, name: str) -> TableHead:
    names: dict[str, None] = {}
    for number, line in enumerate(islice(filter(bytes.strip, _lines(file, name)), _LINES_READ)):
        try:
            names |= dict.fromkeys(_DECODE(line))
        except _INVALID_JSON as error:
            if number == 0:
                what = f"the first line is not a JSON object: {first_line(error)}"
                raise UsageError(what, where=name, hint="Write one JSON object on each line.") from None
    if not names:
        raise UsageError("the file has no rows", where=name, hint="Name a file with at least one JSON object.")
    return TableHead(names=tuple(names))


def _read_jsonl(file: BinaryIO, name: str, columns: Sequence[str], start: int, stop: int | None) -> Iterator[RowBatch]:
    def row(line: bytes) -> tuple[int, _Row]:
        try:
            values = _DECODE(line)
        except _INVALID_JSON as error:
            return len(line), UnreadableValue(f"the line is not a JSON object: {shortened(first_line(error))}")
        return len(line), tuple([values.get(column) for column in columns])

    return _batches(map(row, islice(filter(bytes.strip, _lines(file, name)), start, stop)), columns, start)


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed if it is compressed, of a bounded length."""
    opened: IO[bytes] = file
    if name.partition("?")[0].lower().endswith(".gz"):
        opened = igzip.open(file)  # type: ignore[no-untyped-call]  # isal names no types
    for line in iter(partial(opened.readline, _MAX_LINE), b""):
        if len(line) == _MAX_LINE:
            hint = "Check that the file is text, or split the line."
            raise TableError(f"a line is longer than {_MAX_LINE:,} bytes", hint=hint, code="line-too-long")
        yield line


def _batches(rows: Iterable[tuple[int, _Row]], columns: Sequence[str], first: int) -> Iterator[RowBatch]:
    """Yield rows, which come with their sizes in bytes, several at a time."""
    values: list[list[Any]] = [[] for _ in columns]  # Any: JSON
    size = count = 0
    for weight, row in rows:
        for place, column in enumerate(values):
            column.append(row if isinstance(row, UnreadableValue) else row[place])
        size, count = size + weight, count + 1
        if count == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield RowBatch(first, count, dict(zip(columns, values, strict=True)))
            values, first, size, count = [[] for _ in columns], first + count, 0, 0
    if count:
        yield RowBatch(first, count, dict(zip(columns, values, strict=True)))


# Kind → what returns a table's head, and what yields the columns of its rows [start, stop), in bounded batches.
_FORMATS = {
    TableKind.PARQUET: (_parquet_head, _read_parquet),
    TableKind.ARROW: (_arrow_head, _read_arrow),
    TableKind.CSV: (_csv_head, _read_csv),
    TableKind.JSONL: (_jsonl_head, _read_jsonl),
}
_SUFFIXES = {
    **dict.fromkeys((".parquet", ".pq"), TableKind.PARQUET),
    **dict.fromkeys((".arrow", ".feather"), TableKind.ARROW),
    **dict.fromkeys((".csv", ".csv.gz"), TableKind.CSV),
    **dict.fromkeys((".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"), TableKind.JSONL),
}


# --- the inputs of a run --------------------------------------------------------------------------------------------


class TableInput(Struct, frozen=True, kw_only=True):
    """One table in its state when the run was planned, by which `--resume` identifies it."""

    name: str  # a path or an address; of files, that of their folder
    kind: TableKind
    state: FileState
    rows: int | None = None  # None: known once it was read
    files: tuple[str, ...] = ()  # below `name`

    @property
    def shown(self) -> str:
        """The name in messages and parts: an address without its secrets."""
        return shown(self.name)

    def mapping(self, mapping: RowMapping) -> RowMapping:
        """Return how this table's rows become requests; in a folder of files, each file is a row."""
        if self.kind is not TableKind.FILES:
            return mapping
        return replace(mapping, body=None, path=PATH, root=self.name)

    def read(self, columns: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[RowBatch]:
        """Yield the columns of the rows [start, stop), None being the end, in batches of bounded size.

        Raises TableError, with the row, for a table that is damaged or has changed.
        """
        if self.kind is TableKind.FILES:
            for first in range(start, len(self.files) if stop is None else min(stop, len(self.files)), _BATCH_ROWS):
                names = self.files[first : min(first + _BATCH_ROWS, stop or len(self.files))]
                yield RowBatch(first, len(names), pa.RecordBatch.from_pydict({PATH: pa.array(names, pa.string())}))
            return
        row = start
        try:
            self._check_state()
            with open_file(self.name) as file:
                for batch in _FORMATS[self.kind][1](file, self.name, columns, start, stop):
                    yield batch
                    row = batch.first + batch.count
                    if "://" not in self.name:
                        self._check_state()
        except _ERRORS as error:
            what = f"the table cannot be read from row {row:,} on: {first_line(error)}"
            raise TableError(what, where=self.shown, code="unreadable-table") from error
        except (UsageError, TableError) as error:
            what, code = f"{error.what}, at row {row:,}", vars(error).get("code")
            raise TableError(what, where=self.shown, hint=error.hint, code=code) from error

    def _check_state(self) -> None:
        if state_of(self.name) != self.state:
            hint = "Start a new run with another output folder, and do not change its tables."
            raise TableError("the table was changed since the run began", hint=hint, code="changed-table")


class Tables(NamedTuple):
    """The inputs of a run."""

    inputs: tuple[TableInput, ...]
    kept: tuple[Any, ...]  # Any: pyarrow's fields; of the columns that are copied


def plan_tables(words: Sequence[str], mapping: RowMapping) -> Tables:
    """Return the tables that words name, in the words' order, and by name within each.

    Raises UsageError for other files, a missing column, or a kept one of another type than in the table before.
    """
    kept: dict[str, Any] = {}  # Any: as above
    inputs: dict[str, TableInput] = {}
    for table, head in (each for word in words for each in _tables(find(word))):
        if table.name in inputs:
            hint = "Name each table once."
            raise UsageError("the same table is named twice", where=table.shown, hint=hint, code="duplicate-table")
        inputs[table.name] = table
        if table.kind is TableKind.FILES and (mapping.source, *mapping.request_columns) not in {
            ("body", BODY),
            ("path", PATH),
        }:
            what = "these files are not tables: each is a row with the columns path and body"
            raise UsageError(what, where=table.shown, hint="Send their contents with --body body.", code="not-a-table")
        if head.schema is None:
            mapping.check_names(head.names, table.shown)
        else:
            table.mapping(mapping).check(head.schema, table.shown)
        for name in mapping.keep:
            field = pa.field(name, pa.string() if head.schema is None else head.schema.field(name).type)
            if kept.setdefault(name, field).type != field.type:
                what = f"the column {name} is of type {field.type}, and {kept[name].type} in the tables before"
                hint = "Do not keep it, or score the tables separately."
                raise UsageError(what, where=table.shown, hint=hint, code="column-type-mismatch")
    return Tables(tuple(inputs.values()), tuple(kept[name] for name in mapping.keep))


def _tables(found: FoundFiles) -> Iterator[tuple[TableInput, TableHead]]:
    """Yield the tables among some files; if none is a table, all of them are the rows of one."""
    kinds = {name: _kind(found, name) for name in found.names}
    others = [name for name in found.names if kinds[name] is TableKind.FILES]
    if others and len(others) < len(kinds):
        what = f"the folder has tables and other files, such as {others[0]}"
        hint = "Name the tables by a pattern, such as 'folder/*.parquet'."
        raise UsageError(what, where=found.root, hint=hint, code="mixed-folder")
    if others:
        digest, size = hashlib.blake2b(digest_size=16), 0
        for name in others:
            if legible(name) != name:
                what = "the file's name is not UTF-8, and no column can contain it"
                raise UsageError(what, where=f"{found.root}/{legible(name)}", hint="Rename the file.")
            state = state_of(found.path(name))
            size += state.size
            digest.update(f"{name}\0{state.size}\0{state.version}\0".encode())
        state, count = FileState(size, digest.hexdigest()), len(others)
        table = TableInput(name=found.root, kind=TableKind.FILES, state=state, rows=count, files=found.names)
        yield table, TableHead(names=(PATH,), rows=count, schema=pa.schema([(PATH, pa.string())]))
        return
    for name, kind in kinds.items():
        path = found.path(name)
        state = state_of(path)
        try:
            with open_file(path) as file:
                head = _FORMATS[kind][0](file, path)
        except _ERRORS as error:
            what, hint = f"the file cannot be read as {kind}: {first_line(error)}", "Fix it, or fetch it again."
            raise UsageError(what, where=shown(path), hint=hint) from None
        except MarpackError as error:
            code = vars(error).get("code")
            raise UsageError(error.what, where=shown(path), hint=error.hint, code=code) from None
        yield TableInput(name=path, kind=kind, state=state, rows=head.rows), head


def _kind(found: FoundFiles, name: str) -> TableKind:
    """Return a file's kind: by its suffix, or, without one, by its first bytes."""
    suffixes = PurePosixPath(name.partition("?")[0].lower()).suffixes
    for count in (2, 1):
        if (kind := _SUFFIXES.get("".join(suffixes[-count:]))) is not None:
            return kind
    if suffixes:
        return TableKind.FILES
    with open_file(found.path(name)) as file:
        magic = file.read(6)
    if magic.startswith(b"PAR1"):
        return TableKind.PARQUET
    return TableKind.ARROW if magic == b"ARROW1" else TableKind.FILES
