"""The output folder: parts that appear whole or not at all, each with a record of its contents.

    part-00000-000000065536.parquet   rows 65,536… of the first input; a PartRecord in its footer
    part-00000-000000065536.jsonl     the same as JSON lines; a PartRecord in _part-00000-000000065536.json

A name follows from input and row, so that scoring the same rows again replaces the same part. A part is complete once
its record has its name, after its rows are on the disk. The record has the SHA-256 of the rows' bytes: of a whole file
of lines, and of a Parquet file before its footer. A resumed run verifies the parts that it finds, and every run those
that it wrote.
"""

import errno
import hashlib
import io
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.staging import staged_file
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
# The folder is swept when it is opened and closed.
_staged = partial(staged_file, replace=True, durable=True, sweep=False)
_ANOTHER = "Name another folder."
_REDO = "Remove it and run the same command with --resume: its rows are then scored again."


class PartRecord(Struct, frozen=True, kw_only=True):
    """A part's own description."""

    run: RunIdentity
    input: InputIdentity
    first: int  # row of the input
    rows: int
    failed: int  # of them, those without a usable answer
    bytes: int | None = None  # of a part of lines
    sha256: str = ""  # hexadecimal, of the rows' bytes; version 1 has none
    version: int = _VERSION


class HashedFile:
    """A file that hashes the bytes written to it."""

    mode, closed = "wb", False  # pyarrow reads these

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.tell = file.tell

    def write(self, data: bytes) -> int:
        """Write bytes; see `io.RawIOBase`."""
        self.sha256.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Do nothing: the file's owner flushes and closes it."""

    close = flush


class ParquetBody:
    """Writes row groups of bounded size, and the record into the footer."""

    def __init__(self, file: HashedFile, schema: Any) -> None:  # Any: pyarrow's
        self._writer = pq.ParquetWriter(file, schema)
        self._schema = schema
        self._waiting: list[Any] = []  # Any: as above
        self._rows = self._bytes = 0

    def write(self, batch: Any) -> None:  # Any: as above
        """Add a RecordBatch."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the waiting rows as one row group."""
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema), row_group_size=self._rows)
        self._waiting, self._rows, self._bytes = [], 0, 0

    def finish(self, record: PartRecord) -> None:
        """Write the footer."""
        self._writer.add_key_value_metadata({KEY: msgspec.json.encode(record)})
        self._writer.close()

    def abandon(self) -> None:
        """Leave the file as it is."""
        self._writer.is_open = False  # otherwise it writes its footer when it is collected


def _lines_of(batch: Any, json_names: frozenset[str]) -> bytes:  # Any: pyarrow's
    """Return rows as a JSON object a line: bytes as base64, selected JSON unchanged."""
    names, columns = batch.schema.names, []
    for name, column in zip(names, batch.columns, strict=True):
        values = [None if isinstance(value, UnreadableValue) else value for value in python_values(column)]
        if name in json_names:
            values = [None if value is None else msgspec.Raw(value.encode()) for value in values]
        columns.append(values)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return msgspec.json.Encoder().encode_lines(rows)


class PartWriter:
    """One part that is being written; nothing is left of it unless it is finished."""

    def __init__(self, path: Path, plan: ScorePlan, record: PartRecord) -> None:
        """Begin a part, whose `record` has no rows yet; raises OutputError."""
        self.path = path
        self._record = record
        self._json_names = plan.mapping.answers.json_names
        self._errors = partial(
            convert_os_errors, OutputError, "the part cannot be written", where=str(path), code="unwritable-part"
        )
        with self._errors(), ExitStack() as opened:
            self._file = HashedFile(opened.enter_context(_staged(path)))
            self._parquet = ParquetBody(self._file, plan.schema) if plan.format is PartFormat.PARQUET else None
            self._opened = opened.pop_all()

    def write(self, batch: Any, failed: int) -> None:  # Any: pyarrow's
        """Add rows, `failed` of which have no usable response; raises OutputError."""
        with self._errors():
            if self._parquet is not None:
                self._parquet.write(batch)
            else:
                self._file.write(_lines_of(batch, self._json_names))
        so_far = self._record
        self._record = replace(so_far, rows=so_far.rows + batch.num_rows, failed=so_far.failed + failed)

    def finish(self) -> PartRecord:
        """Give the part its name; raises OutputError, with nothing left of it."""
        with self._errors(), self._opened, ExitStack() as on_error:
            if self._parquet is None:
                record = replace(self._record, sha256=self._file.sha256.hexdigest(), bytes=self._file.tell())
            else:
                on_error.callback(self._parquet.abandon)
                self._parquet.flush()
                record = replace(self._record, sha256=self._file.sha256.hexdigest())
                self._parquet.finish(record)
            on_error.pop_all()
        if self._parquet is None:
            with self._errors(), _staged(self.path.with_name(f"_{self.path.stem}.json")) as file:
                file.write(msgspec.json.encode(record))
        return record

    def abandon(self) -> None:
        """Leave nothing of the part."""
        if self._parquet is not None:
            self._parquet.abandon()
        with suppress(_AbandonedError, OSError), self._opened:
            raise _AbandonedError


class _AbandonedError(Exception):
    """A part must not get its name; private to its writer."""


class OutputFolder(AbstractContextManager["OutputFolder"]):
    """A folder of one run's parts, locked until `close` against other runs."""

    def __init__(self, path: Path, plan: ScorePlan, lock: int | None = None) -> None:
        """Take a folder that is locked: by its own lock, or by the process that distributes the run's rows."""
        self.path = path
        self._plan = plan
        self._lock = lock
        self._identity = plan.identity()
        self._done: dict[int, dict[int, PartRecord]] = defaultdict(dict)  # input → first row → an existing part

    @classmethod
    def open(cls, path: str | Path, plan: ScorePlan, *, resume: bool = False) -> Self:
        """Make the folder, or take an empty one, or, to resume, one of the same run.

        Raises UsageError for a folder with other contents, or that another process writes to; OutputError for one that
        cannot be made.
        """
        if plan.format is PartFormat.PARQUET:
            try:
                pq.write_table(plan.schema.empty_table(), io.BytesIO())
            except pa.ArrowException as error:
                what = f"Parquet cannot contain the kept columns: {first_line(error)}"
                raise UsageError(what, hint="Remove them from --keep.", code="unsupported-column") from None
        folder = Path(path)
        failure = "the folder cannot be created"
        with convert_os_errors(OutputError, failure, where=str(path), code="uncreatable-folder"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError as error:
                hint = "Name a folder that does not exist."
                raise UsageError("not a folder", where=str(path), hint=hint, code="not-a-folder") from error
        opened = cls(folder, plan, _lock(folder))
        with ExitStack() as undo:
            undo.callback(opened.close)
            opened._sweep()
            names = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
            if names and not resume:
                what = f"the folder has files already, such as {names[0]}"
                hint = "Resume the run with --resume, or name another folder."
                raise UsageError(what, where=str(folder), hint=hint, code="folder-not-empty")
            for part in (folder / name for name in names if name.endswith((".parquet", ".jsonl"))):
                if (record := _read_record(part)) is not None:
                    if (found := _difference(record, opened._identity, plan)) is not None:
                        what = f"the folder has results of {found}"
                        raise UsageError(what, where=str(part), hint=_ANOTHER, code="resume-mismatch")
                    _verify(part, record)
                    opened._done[record.input.number][record.first] = record
            undo.pop_all()
        return opened

    def _sweep(self) -> None:
        for leftover in self.path.glob(_TEMPORARY):  # of a killed run or actor: no other process writes here now
            with suppress(OSError):
                leftover.unlink(missing_ok=True)

    def verify(self, names: Iterable[str]) -> None:
        """Raise OutputError for a part whose file differs from the bytes written."""
        for name in names:
            path = self.path / name
            try:
                record = _read_record(path)
                if record is None:
                    raise UsageError("this part has no record", where=str(path), hint=_REDO)
                _verify(path, record)
            except UsageError as error:
                raise OutputError(error.what, where=error.where, hint=error.hint) from error

    @property
    def before(self) -> tuple[int, int]:
        """The rows in parts of an earlier run, and how many of them failed."""
        records = [record for parts in self._done.values() for record in parts.values()]
        return sum(record.rows for record in records), sum(record.failed for record in records)

    def done(self, number: int) -> tuple[PartRecord, ...]:
        """Return an input's parts of an earlier run, in its order."""
        return tuple(record for _, record in sorted(self._done[number].items()))

    def gaps(self, number: int, stop: int | None) -> Iterator[tuple[int, int | None]]:
        """Yield the ranges of an input's rows [0, stop) without a part; None: its end is unknown."""
        row = 0
        for record in self.done(number):
            if record.first > row:
                yield row, record.first
            row = record.first + record.rows
        if stop is None or row < stop:
            yield row, stop

    def part(self, number: int, first: int) -> PartWriter:
        """Begin the part of an input's rows from `first` on; raises OutputError."""
        source = self._plan.identity_of(number)
        record = PartRecord(run=self._identity, input=source, first=first, rows=0, failed=0)
        return PartWriter(self.path / _name(number, first, self._plan.format), self._plan, record)

    def close(self) -> None:
        """Remove the leftovers of killed actors, and unlock the folder."""
        self._sweep()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(folder: Path) -> int | None:
    """Hold the folder's lock as long as its descriptor is open; None where the system has none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows, which opens no folders
        return None
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:  # otherwise the file system has no locks
            os.close(descriptor)
            what = "another run is writing to this folder"
            raise UsageError(what, where=str(folder), hint=_ANOTHER, code="folder-in-use") from None
    return descriptor


def _name(number: int, first: int, suffix: str) -> str:
    return f"part-{number:05d}-{first:012d}.{suffix}"


def _read_record(path: Path) -> PartRecord | None:
    """Return a part's record; None for lines whose record never got its name. Raises UsageError for other files."""
    try:
        if path.suffix == ".jsonl":
            data: bytes | None = path.with_name(f"_{path.stem}.json").read_bytes()
        else:
            data = (pq.read_metadata(path).metadata or {}).get(KEY)
        if data is not None:
            return msgspec.json.decode(data, type=PartRecord)
    except FileNotFoundError:
        if _NAME.fullmatch(path.name):
            return None
    except (OSError, pa.ArrowException, msgspec.DecodeError) as error:
        raise UsageError(f"the part cannot be read: {first_line(error)}", where=str(path), hint=_REDO) from error
    raise UsageError("this file is not a part of a run's results", where=str(path), hint=_ANOTHER)


def _verify(path: Path, record: PartRecord) -> None:
    """Raise UsageError for a part without the rows that its record and its name state."""
    sha256 = hashlib.sha256()
    with convert_os_errors(UsageError, "the part cannot be read", where=str(path), hint=_REDO), path.open("rb") as file:
        left = size = os.fstat(file.fileno()).st_size
        if path.suffix == ".parquet":
            file.seek(-_FOOTER_END, os.SEEK_END)
            left = size = size - _FOOTER_END - int.from_bytes(file.read(4), "little")
            file.seek(0)
        while left > 0 and (piece := file.read(min(left, _PIECE))):
            sha256.update(piece)
            left -= len(piece)
    is_same = record.bytes in (None, size) and sha256.hexdigest() == record.sha256
    if not is_same or path.name != _name(record.input.number, record.first, path.suffix[1:]):
        what = "the part was changed or renamed after it was written"
        raise UsageError(what, where=str(path), hint=_REDO, code="changed-part")


def _difference(record: PartRecord, now: RunIdentity, plan: ScorePlan) -> str | None:
    """Return in words how a part's run differs from this one."""
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
