"""Parquet and Arrow: rows read in batches of bounded size, however large a row group is."""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from marpack.errors import UsageError, first_line
from marpack.scoring.batches import BATCH_BYTES, BATCH_ROWS, RowBatch, TableHead

# What reading one may raise: of the file, of what is in it.
ARROW_ERRORS: tuple[type[Exception], ...] = (OSError, pa.ArrowException)
_LOOKED_AT = 100  # row groups whose sizes are asked for, of however many
_BUFFER = 1 << 20  # bytes of a column chunk that are read at once


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
    for number in range(0, metadata.num_row_groups, 1 + metadata.num_row_groups // _LOOKED_AT):
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
