"""`--input` words → tables in a defined order, each looked at before anything starts; and their rows, in batches."""

import hashlib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple, Protocol

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import MarpackError, TableError, UsageError, first_line
from marpack.json_text import legible
from marpack.scoring.batches import BATCH_ROWS, RowBatch, TableHead
from marpack.scoring.formats import ARROW_ERRORS, TEXT_ERRORS, ArrowFormat, CsvFormat, JsonlFormat, ParquetFormat
from marpack.scoring.mapping import RowMapping
from marpack.scoring.storage import FileState, FoundFiles, find, open_file, shown, state_of

PATH, BODY = "path", "body"  # columns of a folder of files that are no tables


class TableKind(StrEnum):
    """What a table is kept in."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    JSONL = "jsonl"
    FILES = "files"  # a row each


class TableFormat(Protocol):
    """How one kind is read."""

    def look(self, file: BinaryIO, name: str) -> TableHead:
        """Return what the table tells of itself; raises UsageError for a file that is none."""

    def read(
        self, file: BinaryIO, name: str, columns: Sequence[str], start: int, stop: int | None
    ) -> Iterator[RowBatch]:
        """Yield the columns of the rows [start, stop), None being the end, in batches of bounded size."""


_FORMATS: dict[TableKind, TableFormat] = {
    TableKind.PARQUET: ParquetFormat(),
    TableKind.ARROW: ArrowFormat(),
    TableKind.CSV: CsvFormat(),
    TableKind.JSONL: JsonlFormat(),
}
_SUFFIXES = {
    ".parquet": TableKind.PARQUET,
    ".pq": TableKind.PARQUET,
    ".arrow": TableKind.ARROW,
    ".feather": TableKind.ARROW,
    ".csv": TableKind.CSV,
    ".csv.gz": TableKind.CSV,
    ".jsonl": TableKind.JSONL,
    ".jsonl.gz": TableKind.JSONL,
    ".ndjson": TableKind.JSONL,
    ".ndjson.gz": TableKind.JSONL,
}
_ERRORS: tuple[type[Exception], ...] = (*ARROW_ERRORS, *TEXT_ERRORS)


class TableInput(Struct, frozen=True, kw_only=True):
    """One table, as it was when the run was planned: what `--resume` knows it by."""

    name: str  # a path or an address; of files, of the folder that they lie in
    kind: TableKind
    state: FileState
    rows: int | None = None  # None: known when it was read
    files: tuple[str, ...] = ()  # below `name`

    @property
    def shown(self) -> str:
        """What it is called in messages and parts: without what may be secret in an address."""
        return shown(self.name)

    def mapping(self, mapping: RowMapping) -> RowMapping:
        """Return how this table's rows become requests: of a folder of files, each is one."""
        if self.kind is not TableKind.FILES:
            return mapping
        return replace(mapping, body=None, path=PATH, root=self.name)

    def read(self, columns: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[RowBatch]:
        """Yield the columns of the rows [start, stop), None being the end, in batches of bounded size.

        Raises TableError, with the row, for a table that is damaged, or not what it was any more.
        """
        row = start
        try:
            self._check_state()
            for batch in self._batches(columns, start, stop):
                yield batch
                row = batch.first + batch.count
                if "://" not in self.name:
                    self._check_state()
        except _ERRORS as error:
            what = f"the table cannot be read on from row {row:,}: {first_line(error)}"
            raise TableError(what, where=self.shown, code="unreadable-table") from error
        except (UsageError, TableError) as error:
            raise TableError(
                f"{error.what}, at row {row:,}", where=self.shown, hint=error.hint, code=vars(error).get("code")
            ) from error

    def _batches(self, columns: Sequence[str], start: int, stop: int | None) -> Iterator[RowBatch]:
        if self.kind is TableKind.FILES:
            for first in range(start, len(self.files) if stop is None else min(stop, len(self.files)), BATCH_ROWS):
                names = self.files[first : min(first + BATCH_ROWS, stop or len(self.files))]
                yield RowBatch(first, len(names), pa.RecordBatch.from_pydict({PATH: pa.array(names, pa.string())}))
            return
        with open_file(self.name) as file:
            yield from _FORMATS[self.kind].read(file, self.name, columns, start, stop)

    def _check_state(self) -> None:
        if self.kind is not TableKind.FILES and state_of(self.name) != self.state:
            raise TableError("the table was changed since the run began", code="changed-table")


class Tables(NamedTuple):
    """What a run reads."""

    inputs: tuple[TableInput, ...]
    kept: tuple[Any, ...]  # Any: pyarrow's fields; of the columns that are copied


def plan_tables(words: Sequence[str], mapping: RowMapping) -> Tables:
    """Return the tables that words stand for, in the words' order, and by name within each.

    Raises UsageError for what is no table, lacks a column, or has a kept one of another type than the table before.
    """
    kept: dict[str, Any] = {}  # Any: as above
    inputs: dict[str, TableInput] = {}
    for table, head in (each for word in words for each in _tables(find(word))):
        if table.name in inputs:
            raise UsageError("the same table is named twice", where=table.shown, code="duplicate-table")
        inputs[table.name] = table
        _check(table, head, mapping)
        for name in mapping.keep:
            field = pa.field(name, pa.string() if head.schema is None else head.schema.field(name).type)
            if kept.setdefault(name, field).type != field.type:
                what = f"the column {name} is of type {field.type}, and {kept[name].type} in the tables before"
                raise UsageError(
                    what,
                    where=table.shown,
                    hint="leave it out of --keep, or score them apart",
                    code="column-type-mismatch",
                )
    return Tables(tuple(inputs.values()), tuple(kept[name] for name in mapping.keep))


def _check(table: TableInput, head: TableHead, mapping: RowMapping) -> None:
    if table.kind is TableKind.FILES:
        if (mapping.source, *mapping.asked) not in {("body", BODY), ("path", PATH)}:
            what = "these files are no tables: each is a row with the columns path and body"
            raise UsageError(what, where=table.shown, hint="send them by --body body", code="not-a-table")
        mapping = table.mapping(mapping)
    if head.schema is None:
        mapping.check_names(head.names, table.shown)
    else:
        mapping.check(head.schema, table.shown)


def _tables(found: FoundFiles) -> Iterator[tuple[TableInput, TableHead]]:
    kinds = {name: _kind(found, name) for name in found.names}
    others = tuple(name for name in found.names if kinds[name] is TableKind.FILES)
    if len(others) == len(kinds):
        yield _files(found)
        return
    if others:
        what = f"tables lie here beside other files, such as {others[0]}"
        raise UsageError(
            what,
            where=found.root,
            hint="name what is meant by a pattern, such as 'folder/*.parquet'",
            code="mixed-folder",
        )
    for name in found.names:
        path = found.path(name)
        state = state_of(path)
        with open_file(path) as file:
            head = _looked_at(kinds[name], file, path)
        yield TableInput(name=path, kind=kinds[name], state=state, rows=head.rows), head


def _looked_at(kind: TableKind, file: BinaryIO, path: str) -> TableHead:
    try:
        return _FORMATS[kind].look(file, path)
    except _ERRORS as error:
        raise UsageError(
            f"the file cannot be read as {kind}: {first_line(error)}",
            where=shown(path),
        ) from None
    except MarpackError as error:
        raise UsageError(error.what, where=shown(path), hint=error.hint, code=vars(error).get("code")) from None


def _kind(found: FoundFiles, name: str) -> TableKind:
    """Return what a file is: by its suffix, or, without any, by its first bytes."""
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


def _files(found: FoundFiles) -> tuple[TableInput, TableHead]:
    digest, size = hashlib.blake2b(digest_size=16), 0
    for name in found.names:
        state = state_of(found.path(name))
        size += state.size
        if legible(name) != name:
            raise UsageError(
                "a file's name is not UTF-8, and no column can hold it", where=f"{found.root}/{legible(name)}"
            )
        digest.update(f"{name}\0{state.size}\0{state.version}\0".encode())
    state = FileState(size, digest.hexdigest())
    count = len(found.names)
    table = TableInput(name=found.root, kind=TableKind.FILES, state=state, rows=count, files=found.names)
    return table, TableHead(names=(PATH,), rows=count, schema=pa.schema([(PATH, pa.string())]))
