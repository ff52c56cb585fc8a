"""How tables of each format are read: in batches of bounded size, however large the file or a row group of it is.

Parquet and Arrow have types. A value of a CSV is a text, one of JSONL is what its own line says, both also with .gz: no
type is ever guessed from other rows, and a line that is no row costs only itself.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import IO, Any, BinaryIO, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip
from isal.igzip_lib import IsalError

from marpack.errors import TableError, UsageError, first_line, shortened
from marpack.scoring.batches import BATCH_BYTES, BATCH_ROWS, RowBatch, TableHead, UnreadableValue

# What reading one may raise: of the file, of what is in it.
ARROW_ERRORS: tuple[type[Exception], ...] = (OSError, pa.ArrowException)
_GROUPS_LOOKED_AT = 100  # row groups whose sizes are asked for, of however many
_BUFFER = 1 << 20  # bytes of a column chunk that are read at once
_DAMAGED = cast("type[Exception]", IsalError)  # the stub of isal takes the class for an error of its own
# What reading one may raise: of the file, of its compression, of its text.
TEXT_ERRORS = (OSError, EOFError, csv.Error, _DAMAGED)
_MAX_LINE = 64 << 20  # bytes
_LINES_LOOKED_AT = 100  # lines of JSONL whose keys are taken for its columns
_Row = tuple[Any, ...] | UnreadableValue  # Any: JSON
_NO_OBJECT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_DECODE = msgspec.json.Decoder(dict[str, Any]).decode  # Any: as above


class ParquetFormat:
    """Parquet, read unbuffered and by one thread: memory stays flat at any size of a row group."""

    def look(self, file: BinaryIO, name: str) -> TableHead:
        """Return the footer's columns and rows; raises UsageError for what has none."""
        try:
            table = pq.ParquetFile(file)
        except ARROW_ERRORS as error:
            what = f"the file is no Parquet, or not all of one: {first_line(error)}"
            raise UsageError(what, where=name) from None
        schema = table.schema_arrow
        return TableHead(names=tuple(schema.names), rows=table.metadata.num_rows, schema=schema)

    def read(self, file: BinaryIO, _: str, columns: Sequence[str], start: int, stop: int | None) -> Iterator[RowBatch]:
        """Yield the rows [start, stop); row groups before them are not read."""
        table = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
        first, groups = 0, list(range(table.num_row_groups))
        while groups and first + (rows := table.metadata.row_group(groups[0]).num_rows) <= start:
            first += rows
            groups.pop(0)
        batches = table.iter_batches(
            _batch_rows(table.metadata, set(columns)), row_groups=groups, columns=list(columns), use_threads=False
        )
        return _between(batches, first, start, stop)


def _batch_rows(metadata: Any, columns: set[str]) -> int:  # Any: pyarrow's
    """Return how many rows a batch may have, by what those of the heaviest row group weigh."""
    most = 1.0
    for number in range(0, metadata.num_row_groups, 1 + metadata.num_row_groups // _GROUPS_LOOKED_AT):
        group = metadata.row_group(number)
        chunks = [group.column(place) for place in range(group.num_columns)]
        size = sum(each.total_uncompressed_size for each in chunks if _top(each.path_in_schema, columns))
        most = max(most, size / max(1, group.num_rows))
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / most)))


def _top(path: str, columns: set[str]) -> bool:
    return path in columns or path.partition(".")[0] in columns


class ArrowFormat:
    """Arrow's file format, which Feather is, too; its batches are what they were written as."""

    def look(self, file: BinaryIO, name: str) -> TableHead:
        """Return the columns; raises UsageError for what is none."""
        try:
            schema = pa.ipc.open_file(file).schema
        except ARROW_ERRORS as error:
            what = f"the file is no Arrow or Feather file, or not all of one: {first_line(error)}"
            raise UsageError(what, where=name) from None
        return TableHead(names=tuple(schema.names), schema=schema)

    def read(self, file: BinaryIO, _: str, columns: Sequence[str], start: int, stop: int | None) -> Iterator[RowBatch]:
        """Yield the rows [start, stop); batches before them are read and passed over."""
        table = pa.ipc.open_file(file)
        batches = (table.get_batch(number).select(list(columns)) for number in range(table.num_record_batches))
        return _between((piece for batch in batches for piece in _pieces(batch)), 0, start, stop)


def _pieces(batch: Any) -> Iterator[Any]:  # Any: pyarrow's
    return (batch.slice(place, BATCH_ROWS) for place in range(0, batch.num_rows, BATCH_ROWS))


def _between(batches: Iterator[Any], first: int, start: int, stop: int | None) -> Iterator[RowBatch]:  # Any: as above
    """Yield those rows of batches, which begin with row `first`, that are in [start, stop)."""
    for batch in batches:
        end = first + batch.num_rows
        wanted = max(first, start), end if stop is None else min(end, stop)
        if wanted[0] < wanted[1]:
            yield RowBatch(first, batch.num_rows, batch).part(*wanted)
        if stop is not None and end >= stop:
            return
        first = end


class CsvFormat:
    """Comma-separated values in UTF-8, with a header."""

    def look(self, file: BinaryIO, name: str) -> TableHead:
        """Return the columns; raises UsageError for a file without any."""
        header = next(_records(_plain(file, name)), None)
        if not header:
            raise UsageError("the file has no header, so its columns have no names", where=name)
        return TableHead(names=tuple(header))

    def read(
        self, file: BinaryIO, name: str, columns: Sequence[str], start: int, stop: int | None
    ) -> Iterator[RowBatch]:
        """Yield the rows [start, stop)."""
        records = _records(_plain(file, name))
        header = next(records, [])
        places = [header.index(column) for column in columns]
        rows = (_fields(record, len(header), places) for record in islice(records, start, stop))
        return _batches(rows, columns, start)


def _records(file: IO[bytes]) -> Iterator[list[str]]:
    # Bytes that are no UTF-8 are kept apart: a request that they would go into is the row's own failure.
    text = (line.decode("utf-8", "surrogateescape") for line in _lines(file))
    if csv.field_size_limit() < _MAX_LINE:  # of the whole process; it is only ever raised
        csv.field_size_limit(_MAX_LINE)
    first = (line.removeprefix("\ufeff") for line in islice(text, 1))
    return (record for record in csv.reader(chain(first, text), strict=True) if record)


def _fields(record: list[str], width: int, places: Sequence[int]) -> tuple[int, _Row]:
    if len(record) != width:
        return 0, UnreadableValue(f"the row has {len(record)} fields where the header has {width}")
    return sum(map(len, record)), tuple([record[place] for place in places])


class JsonlFormat:
    """One JSON object a line; empty lines are none."""

    def look(self, file: BinaryIO, name: str) -> TableHead:
        """Return the keys of the first lines; raises UsageError for a file that does not begin with an object."""
        names: dict[str, None] = {}
        for number, line in enumerate(islice(_filled(_plain(file, name)), _LINES_LOOKED_AT)):
            try:
                names |= dict.fromkeys(_DECODE(line))
            except _NO_OBJECT as error:
                if number == 0:
                    what = f"the file is no JSONL, whose lines are JSON objects: {first_line(error)}"
                    raise UsageError(what, where=name) from None
        if not names:
            raise UsageError("the file holds no rows", where=name)
        return TableHead(names=tuple(names))

    def read(
        self, file: BinaryIO, name: str, columns: Sequence[str], start: int, stop: int | None
    ) -> Iterator[RowBatch]:
        """Yield the rows [start, stop)."""
        lines = islice(_filled(_plain(file, name)), start, stop)
        return _batches(((len(line), _object(line, columns)) for line in lines), columns, start)


def _filled(file: IO[bytes]) -> Iterator[bytes]:
    return (line for line in _lines(file) if not line.isspace())


def _object(line: bytes, columns: Sequence[str]) -> _Row:
    try:
        values = _DECODE(line)
    except _NO_OBJECT as error:
        return UnreadableValue(f"the line is no JSON object: {shortened(first_line(error))}")
    return tuple([values.get(column) for column in columns])


def _plain(file: BinaryIO, name: str) -> IO[bytes]:
    """Return a file of what is compressed, if it is."""
    if not name.partition("?")[0].lower().endswith(".gz"):
        return file
    opened: IO[bytes] = igzip.open(file)  # type: ignore[no-untyped-call]  # isal names no types
    return opened


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines, none of them longer than memory should have to hold."""
    for line in iter(partial(file.readline, _MAX_LINE), b""):
        if len(line) == _MAX_LINE:
            raise TableError(f"a line is longer than {_MAX_LINE:,} bytes", code="line-too-long")
        yield line


def _batches(rows: Iterable[tuple[int, _Row]], columns: Sequence[str], first: int) -> Iterator[RowBatch]:
    """Yield rows, which come with their sizes in bytes, several at a time."""
    values: list[list[Any]] = [[] for _ in columns]  # Any: as above
    size = count = 0
    for weight, row in rows:
        for place, column in enumerate(values):
            column.append(row if isinstance(row, UnreadableValue) else row[place])
        size, count = size + weight, count + 1
        if count == BATCH_ROWS or size >= BATCH_BYTES:
            yield RowBatch(first, count, dict(zip(columns, values, strict=True)))
            values, first, size, count = [[] for _ in columns], first + count, 0, 0
    if count:
        yield RowBatch(first, count, dict(zip(columns, values, strict=True)))
