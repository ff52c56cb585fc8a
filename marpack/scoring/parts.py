"""The output folder: parts that appear whole or not at all, each of which says what it holds.

    part-00000-000000065536.parquet   rows 65,536… of the first input; a PartRecord in its footer
    part-00000-000000065536.jsonl     the same as JSON lines; a PartRecord in _part-00000-000000065536.json

A name follows from input and row, so that whoever scores the same rows again replaces the same part. A part counts from
the moment its record has its name, which is after its rows are on the disk. The record holds the SHA-256 of the rows'
bytes: the whole file of lines, and all of a Parquet file before its footer. A resumed run verifies the parts that it
finds, and a run that ends those that it wrote.
"""

import errno
import hashlib
import io
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.staging import LOCK_EX, LOCK_NB, flock, staged_file
from marpack.errors import OutputError, UsageError, convert_os_errors, first_line
from marpack.scoring.plan import InputIdentity, PartFormat, RunIdentity, ScorePlan
from marpack.scoring.tables import UnreadableValue, python_values

KEY = b"marpack.score"  # of a footer's metadata
_VERSION = 2
_PIECE = 1 << 20  # bytes that are hashed at once
_FOOTER_END = 8  # bytes of a Parquet file: the footer's length and the magic
_GROUP_ROWS, _GROUP_BYTES = 16_384, 16 << 20  # of a row group at most, about
_NAME = re.compile(r"part-\d{5,}-\d{12,}\.(parquet|jsonl)")
_TEMPORARY = ".*part-*.marpack-tmp"  # of parts and of records
_staged = partial(staged_file, replace=True, durable=True, sweep=False)  # the folder is, when it is opened and closed
_ANOTHER = "name another folder"
_REDO = "Remove it and run the same command with --resume: its rows are then scored again."


class PartRecord(Struct, frozen=True, kw_only=True):
    """What a part says of itself."""

    run: RunIdentity
    input: InputIdentity
    first: int  # row of the input
    rows: int
    failed: int  # of them, those without an answer that counts
    bytes: int | None = None  # of a part of lines
    sha256: str = ""  # hexadecimal, of the rows' bytes; version 1 has none
    version: int = _VERSION


class PartBody(Protocol):
    """How rows are written to a part's file; two bodies: Parquet and lines."""

    def write(self, batch: Any) -> None:  # Any: pyarrow's
        """Add a RecordBatch."""

    def flush(self) -> None:
        """Write the rows that are still in memory."""

    def finish(self, record: PartRecord) -> None:
        """Write the record where it has a place."""

    def abandon(self) -> None:
        """Write nothing more."""


class HashedFile:
    """A file that hashes the bytes written to it."""

    mode, closed = "wb", False  # pyarrow reads these

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write bytes; see `io.RawIOBase`."""
        self._sha256.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: the file's owner flushes it."""

    def close(self) -> None:
        """Do nothing: the file's owner closes it."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes so far, in hexadecimal."""
        return self._sha256.hexdigest()


class ParquetBody:
    """Row groups of bounded size, and the record in the footer."""

    def __init__(self, file: HashedFile, schema: Any) -> None:  # Any: pyarrow's
        self._writer = pq.ParquetWriter(file, schema)
        self._schema = schema
        self._waiting: list[Any] = []  # Any: as above
        self._rows = self._bytes = 0

    def write(self, batch: Any) -> None:  # Any: as above
        """Add a RecordBatch; see `PartBody`."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as one row group; see `PartBody`."""
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema), row_group_size=self._rows)
        self._waiting, self._rows, self._bytes = [], 0, 0

    def finish(self, record: PartRecord) -> None:
        """Write the footer; see `PartBody`."""
        self._writer.add_key_value_metadata({KEY: msgspec.json.encode(record)})
        self._writer.close()

    def abandon(self) -> None:
        """Leave the file as it is; see `PartBody`."""
        self._writer.is_open = False  # else it writes its footer when it is collected


class LinesBody:
    """A JSON object a line: bytes as base64, what is selected as JSON as it is."""

    def __init__(self, file: HashedFile, json_names: frozenset[str]) -> None:
        self._file = file
        self._json_names = json_names

    def write(self, batch: Any) -> None:  # Any: pyarrow's
        """Add a RecordBatch; see `PartBody`."""
        names = batch.schema.names
        columns = [self._values(name, column) for name, column in zip(names, batch.columns, strict=True)]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        self._file.write(msgspec.json.Encoder().encode_lines(rows))

    def _values(self, name: str, column: Any) -> list[object]:  # Any: as above
        values = python_values(column)
        if name in self._json_names:
            return [None if value is None else msgspec.Raw(value.encode()) for value in values]
        return [None if isinstance(value, UnreadableValue) else value for value in values]

    def flush(self) -> None:
        """Do nothing: no rows wait; see `PartBody`."""

    def finish(self, record: PartRecord) -> None:
        """Do nothing: the record goes beside the lines; see `PartBody`."""

    def abandon(self) -> None:
        """Do nothing; see `PartBody`."""


class PartWriter:
    """One part that is being written; it is gone unless it is finished."""

    def __init__(self, path: Path, plan: ScorePlan, record: PartRecord) -> None:
        """Begin a part, whose `record` tells of no rows yet; raises OutputError."""
        self.path = path
        self._record = record
        with self._written(), ExitStack() as opened:
            self._file = opened.enter_context(_staged(path))
            self._hashed = HashedFile(self._file)
            self._body: PartBody = (
                ParquetBody(self._hashed, plan.schema)
                if plan.format is PartFormat.PARQUET
                else LinesBody(self._hashed, plan.mapping.answers.json_names)
            )
            self._opened = opened.pop_all()

    @contextmanager
    def _written(self) -> Iterator[None]:
        failure = "the part cannot be written"
        with convert_os_errors(OutputError, failure, where=str(self.path), code="unwritable-part"):
            yield

    def write(self, batch: Any, failed: int) -> None:  # Any: pyarrow's
        """Add rows, `failed` of which have no answer that counts; raises OutputError."""
        with self._written():
            self._body.write(batch)
        so_far = self._record
        self._record = replace(so_far, rows=so_far.rows + batch.num_rows, failed=so_far.failed + failed)

    def finish(self) -> PartRecord:
        """Give the part its name; raises OutputError, with nothing left of it."""
        with self._written(), ExitStack() as on_error, self._opened:
            on_error.callback(self._body.abandon)
            self._body.flush()
            record = replace(self._record, sha256=self._hashed.sha256)
            self._body.finish(record)
            size = self._file.tell()
            on_error.pop_all()
        if isinstance(self._body, LinesBody):
            record = replace(record, bytes=size)
            with self._written(), _staged(_sidecar(self.path)) as file:
                file.write(msgspec.json.encode(record))
        return record

    def abandon(self) -> None:
        """Leave nothing of the part."""
        self._body.abandon()
        with suppress(_AbandonedError, OSError), self._opened:
            raise _AbandonedError


class _AbandonedError(Exception):
    """A part is not to get its name; private to its writer."""


def _sidecar(path: Path) -> Path:
    return path.with_name(f"_{path.stem}.json")


class OutputFolder:
    """A folder of one run's parts, which nobody else writes to until `close`, others of the same run aside."""

    def __init__(self, path: Path, plan: ScorePlan, lock: int | None = None) -> None:
        """Take a folder that is held: by its lock, or by the process that shares the run's rows out."""
        self.path = path
        self._plan = plan
        self._lock = lock
        self._identity = plan.identity()
        self._done: dict[int, dict[int, PartRecord]] = defaultdict(dict)  # input → first row → what is there

    @classmethod
    def open(cls, path: str | Path, plan: ScorePlan, *, resume: bool = False) -> Self:
        """Make the folder, or take one that is empty, or, to go on with it, one of the same run.

        Raises UsageError for a folder with anything else in it, or that another process writes to; OutputError for
        one that cannot be made.
        """
        if plan.format is PartFormat.PARQUET:
            _check_schema(plan)
        folder = Path(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UsageError(
                "this is no folder", where=str(path), hint="name a folder that is not there yet", code="not-a-folder"
            ) from error
        except OSError as error:
            raise OutputError(
                f"the folder cannot be made: {error.strerror}", where=str(path), code="uncreatable-folder"
            ) from error
        opened = cls(folder, plan, _locked(folder))
        with ExitStack() as undo:
            undo.callback(opened.close)
            opened._take(resume=resume)
            undo.pop_all()
        return opened

    def _take(self, *, resume: bool) -> None:
        self._sweep()
        names = sorted(each.name for each in self.path.iterdir() if not each.name.startswith("."))
        if names and not resume:
            hint = f"--resume goes on with results that are of the same run; or {_ANOTHER}"
            raise UsageError(
                f"the folder holds files already, such as {names[0]}",
                where=str(self.path),
                hint=hint,
                code="folder-not-empty",
            )
        for name in names:
            if name.endswith((".parquet", ".jsonl")) and (record := _record(self.path / name)) is not None:
                self._check(record, name)
                _verify(self.path / name, record)
                self._done[record.input.number][record.first] = record

    def _sweep(self) -> None:
        for leftover in self.path.glob(_TEMPORARY):  # of a run or an actor that was killed: nobody writes here now
            with suppress(OSError):
                leftover.unlink(missing_ok=True)

    def _check(self, record: PartRecord, name: str) -> None:
        """Raise UsageError, in words, for a part of another run."""
        if (found := _difference(record, self._identity, self._plan)) is not None:
            raise UsageError(
                f"the folder holds results of {found}",
                where=str(self.path / name),
                hint=_ANOTHER,
                code="resume-mismatch",
            )

    def verify(self, names: Iterable[str]) -> None:
        """Raise OutputError for a part whose file differs from the bytes written."""
        for name in names:
            path = self.path / name
            try:
                record = _record(path)
                if record is None:
                    raise UsageError("this part has no record", where=str(path), hint=_REDO)
                _verify(path, record)
            except UsageError as error:
                raise OutputError(error.what, where=error.where, hint=error.hint) from error

    @property
    def before(self) -> tuple[int, int]:
        """The rows that parts of an earlier run hold, and how many of them failed."""
        records = [record for parts in self._done.values() for record in parts.values()]
        return sum(record.rows for record in records), sum(record.failed for record in records)

    def done(self, number: int) -> tuple[PartRecord, ...]:
        """Return the parts of an input that an earlier run has written, in its order."""
        return tuple(record for _, record in sorted(self._done[number].items()))

    def gaps(self, number: int, stop: int | None) -> Iterator[tuple[int, int | None]]:
        """Yield the ranges of an input's rows [0, stop) that no part holds yet; None: its end is not known."""
        row = 0
        for record in self.done(number):
            if record.first > row:
                yield row, record.first
            row = record.first + record.rows
        if stop is None or row < stop:
            yield row, stop

    def part(self, number: int, first: int) -> PartWriter:
        """Begin the part of an input's rows from `first` on; raises OutputError."""
        name = _name(number, first, self._plan.format)
        source = self._plan.identity_of(number)
        record = PartRecord(run=self._identity, input=source, first=first, rows=0, failed=0)
        return PartWriter(self.path / name, self._plan, record)

    def close(self) -> None:
        """Remove what killed actors have left, and let others write to the folder."""
        self._sweep()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_schema(plan: ScorePlan) -> None:
    try:
        pq.write_table(plan.schema.empty_table(), io.BytesIO())
    except pa.ArrowException as error:
        hint = "leave them out of --keep"
        raise UsageError(
            f"Parquet cannot hold the columns that are kept: {first_line(error)}", hint=hint, code="unsupported-column"
        ) from None


def _locked(folder: Path) -> int | None:
    """Hold the folder's lock as long as its descriptor is open; None where the system has none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows, which opens no folders
        return None
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
            return descriptor  # no locks on this file system
        os.close(descriptor)
        raise UsageError(
            "another run is writing to this folder now", where=str(folder), hint=_ANOTHER, code="folder-in-use"
        ) from None
    return descriptor


def _record(path: Path) -> PartRecord | None:
    """Return what a part says of itself; None for lines whose record never got its name.

    Raises UsageError for a file that is no part.
    """
    try:
        if path.suffix == ".jsonl":
            data: bytes | None = _sidecar(path).read_bytes()
        else:
            data = (pq.read_metadata(path).metadata or {}).get(KEY)
        record = None if data is None else msgspec.json.decode(data, type=PartRecord)
    except FileNotFoundError:
        if _NAME.fullmatch(path.name):
            return None
        record = None
    except (OSError, pa.ArrowException, msgspec.DecodeError) as error:
        raise UsageError(f"this part cannot be read: {first_line(error)}", where=str(path), hint=_REDO) from error
    if record is None:
        raise UsageError("this file is no part of a run's results", where=str(path), hint=_ANOTHER)
    return record


def _name(number: int, first: int, suffix: str) -> str:
    return f"part-{number:05d}-{first:012d}.{suffix}"


def _verify(path: Path, record: PartRecord) -> None:
    """Raise UsageError for a part that does not hold the rows that its record and its name say."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if path.suffix == ".parquet":
                file.seek(-_FOOTER_END, os.SEEK_END)
                size -= _FOOTER_END + int.from_bytes(file.read(4), "little")
                file.seek(0)
            same = record.bytes in (None, size) and _sha256(file, size) == record.sha256
    except OSError as error:
        what = f"this part cannot be read: {error.strerror}"
        raise UsageError(what, where=str(path), hint=_REDO) from error
    if not same or path.name != _name(record.input.number, record.first, path.suffix[1:]):
        raise UsageError(
            "this part was changed or renamed after it was written", where=str(path), hint=_REDO, code="changed-part"
        )


def _sha256(file: BinaryIO, size: int) -> str:
    sha256 = hashlib.sha256()
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        sha256.update(piece)
        size -= len(piece)
    return sha256.hexdigest()


def _difference(record: PartRecord, now: RunIdentity, plan: ScorePlan) -> str | None:
    """Return in words what a part is of, where that is not this run."""
    then = record.run
    if record.version != _VERSION:
        return f"another version of marpack (its parts are of version {record.version}, {_VERSION} now)"
    if then.archive != now.archive:
        return f"another archive ({then.archive} then, {now.archive} now)"
    for name in sorted(then.options.keys() | now.options.keys()):
        before, after = then.options.get(name, "not given"), now.options.get(name, "not given")
        if before != after:
            return f"other options ({name}: {before} then, {after} now)"
    if then.input_count != now.input_count:
        return f"other inputs ({then.input_count} then, {now.input_count} now)"
    if record.input != plan.identity_of(record.input.number):
        return f"another input, or one that was changed since ({record.input.name})"
    return "other inputs" if then.inputs != now.inputs else None
