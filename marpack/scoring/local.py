"""Bulk scoring on this machine: one bounded pipeline of rows, requests, answers and parts, in the inputs' order.

Rows are read as the pool asks for batches, and answers are written as the rows before them are: what is in memory are
the batches under way and one row group of the part at hand, however large the inputs are.
"""

import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing

import pyarrow as pa
from msgspec import Struct

from marpack.errors import UsageError
from marpack.runner.pool import Batch, Pool
from marpack.runner.results import outcomes_of
from marpack.scoring.answers import AnswerColumns, Failure
from marpack.scoring.batches import RowBatch
from marpack.scoring.chunks import Chunk
from marpack.scoring.mapping import INPUT
from marpack.scoring.parts import OutputFolder, PartWriter
from marpack.scoring.plan import ScorePlan
from marpack.scoring.rows import RowRequests

_ROWS = 256  # of a chunk at least: as many answers wait for the rest of theirs
_UNASKED = 64  # chunks that wait, with nothing in them to be asked: no pool's window bounds them
_CAUSES = 100  # that are told apart
_EXAMPLES = 3
_JUDGED = 100  # rows before a share of failures means anything


class ErrorBound(Struct, frozen=True):
    """How many rows may fail before a run stops."""

    rows: int | None = None
    percent: float | None = None  # of the rows so far, from 100 of them on and at the end

    @classmethod
    def parse(cls, text: str) -> "ErrorBound":
        """Return the bound that `N` or `P%` means; raises UsageError."""
        number, percent, rest = text.strip().partition("%")
        try:
            bound = cls(percent=float(number)) if percent else cls(rows=int(number))
        except ValueError:
            bound = cls(rows=-1)
        if rest or (bound.rows or 0) < 0 or not 0 <= (bound.percent or 0) <= 100:
            hint = "100 stops at the 101st row that fails, 5% once more than a twentieth of them do"
            raise UsageError(f"{text!r} is no number of rows and no share of them", where="--max-errors", hint=hint)
        return bound

    def exceeded(self, failed: int, rows: int, *, over: bool = False) -> bool:
        """Say whether so many failures are too many; `over`: no rows are to come."""
        if self.rows is not None and failed > self.rows:
            return True
        judged = self.percent is not None and (over or rows >= _JUDGED)
        return judged and failed * 100 > (self.percent or 0) * rows


class FailureExample(Struct, frozen=True):
    """One row that failed."""

    input: str
    row: int
    message: str


class FailureCause(Struct, frozen=True):
    """Rows that failed alike."""

    kind: str
    rows: int
    examples: tuple[FailureExample, ...]  # the first ones


class ScoreSummary(Struct, frozen=True, kw_only=True):
    """What a run adds up to."""

    inputs: tuple[str, ...]  # by the numbers of the column `input`
    rows: int  # of this run; those before are in no other figure
    answered: int  # with a status of 2xx, and as the columns that were asked for
    failed: int
    rows_before: int  # that parts of an earlier run hold
    failed_before: int  # of them
    parts: int  # that this run wrote
    seconds: float
    throughput: float  # rows per second
    causes: tuple[FailureCause, ...]  # the most frequent first
    exceeded: bool = False  # more rows failed than `max_errors` allows
    complete: bool = True  # False: it stopped at that; answers that no whole part holds are not in the output


class ScoreProgress:
    """Is told how far a run is, as it goes."""

    def began(self, rows: int | None, before: int) -> None:
        """Take note of the rows of all inputs, where they are known, and of those that are in parts already."""

    def scored(self, rows: int, failed: int) -> None:
        """Take note of further rows that were answered, and of how many of them failed."""

    def ended(self) -> None:
        """Take note that nothing more follows, whatever the reason."""


class ScoreSettings(Struct, frozen=True, kw_only=True):
    """How a plan is carried out."""

    max_errors: ErrorBound = ErrorBound()
    isolate: bool = False  # ask the rows of a batch that failed again, one by one
    progress: ScoreProgress = ScoreProgress()


def score(pool: Pool, plan: ScorePlan, output: OutputFolder, settings: ScoreSettings | None = None) -> ScoreSummary:
    """Ask a pool about all rows that no part of the output holds yet, and write their answers.

    Raises TableError for a table that cannot be read on, OutputError for a part that cannot be written, LoadError and
    WorkerError for a worker that cannot be started again: parts that are whole stay.
    """
    pipeline = _Pipeline(pool, plan, output, settings or ScoreSettings())
    try:
        pipeline.run()
    finally:
        pipeline.abandon()
        pipeline.progress.ended()
    return pipeline.summary()


class _Causes:
    """Failures by what they have in common, with the first few of each."""

    def __init__(self, inputs: tuple[str, ...]) -> None:
        self._inputs = inputs
        self._rows: dict[str, int] = {}
        self._examples: dict[str, list[FailureExample]] = {}

    def add(self, number: int, row: int, failure: Failure) -> None:
        kind = failure.kind if failure.kind in self._rows or len(self._rows) < _CAUSES else "other"
        self._rows[kind] = self._rows.get(kind, 0) + 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(FailureExample(self._inputs[number], row, failure.message))

    def causes(self) -> tuple[FailureCause, ...]:
        ordered = sorted(self._rows.items(), key=lambda item: -item[1])
        return tuple(FailureCause(kind, rows, tuple(self._examples[kind])) for kind, rows in ordered)


class _Pipeline:
    def __init__(self, pool: Pool, plan: ScorePlan, output: OutputFolder, settings: ScoreSettings) -> None:
        self._pool, self._plan, self._output, self._settings = pool, plan, output, settings
        self.progress = settings.progress
        self._schema = plan.schema
        self._answers = AnswerColumns(plan.mapping.select, encode_binary=plan.mapping.encode_binary)
        self._causes = _Causes(tuple(table.shown for table in plan.inputs))
        self._chunks: deque[Chunk] = deque()  # in order; those at the head are written once they are answered
        self._unasked: set[Chunk] = set()  # those of which nothing was sent
        self._sent: deque[tuple[Chunk, list[int]]] = deque()  # batches, with the places of their rows
        self._part: PartWriter | None = None
        self._part_of = (-1, -1)  # input, and number of the part within it
        self._rows = self._failed = self._parts = 0
        self._seconds = 0.0
        self._stopped = self._exhausted = self._exceeded = False

    def run(self) -> None:
        started = time.monotonic()
        before = [record for number in range(len(self._plan.inputs)) for record in self._output.done(number)]
        self._before = sum(record.rows for record in before), sum(record.failed for record in before)
        self.progress.began(self._plan.rows, self._before[0])
        with closing(self._read()) as source:
            while not (self._exhausted or self._stopped):
                for outcomes in outcomes_of(self._pool, self._batches(source), isolate=self._settings.isolate):
                    chunk, places = self._sent.popleft()
                    chunk.settle(places, outcomes)
                    self._write_answered()
        if not self._stopped:
            self._finish_part()
            self._exceeded = self._settings.max_errors.exceeded(self._failed, self._rows, over=True)
        self._seconds = time.monotonic() - started

    def _read(self) -> Generator[tuple[int, RowBatch], None, None]:
        """Yield the rows that are to be asked, with their input's number, no further than each part's end."""
        left = self._plan.limit
        for number, table in enumerate(self._plan.inputs):
            known = [each for each in (table.rows, left) if each is not None]
            seen = max((record.first + record.rows for record in self._output.done(number)), default=0)
            for start, stop in self._output.gaps(number, min(known, default=None)):
                for batch in table.read(self._plan.mapping_of(number).needed, start, stop):
                    seen = max(seen, batch.first + batch.count)
                    yield from ((number, piece) for piece in self._pieces(batch))
            left = None if left is None else max(0, left - seen)

    def _pieces(self, batch: RowBatch) -> Iterator[RowBatch]:
        size = self._plan.batch_size
        most = -(-_ROWS // size) * size
        start, end = batch.first, batch.first + batch.count
        while start < end:
            stop = min(end, start + most, (start // self._plan.part_rows + 1) * self._plan.part_rows)
            yield batch.part(start, stop)
            start = stop

    def _batches(self, source: Iterator[tuple[int, RowBatch]]) -> Iterator[Batch]:
        """Yield what the handler is asked, until too many rows wait for an answer before them."""
        makers: dict[int, RowRequests] = {}
        for number, rows in source:
            if number not in makers:
                makers = {number: RowRequests(self._plan.mapping_of(number))}
            chunk = Chunk(number, rows)
            self._chunks.append(chunk)
            self._unasked.add(chunk)
            for batch, places in chunk.batches(makers[number], self._plan.batch_size):
                self._unasked.discard(chunk)
                self._sent.append((chunk, places))
                yield batch
                if self._stopped:
                    return
            self._write_answered()
            if self._stopped or len(self._unasked) > _UNASKED:
                return
        self._exhausted = True

    def _write_answered(self) -> None:
        while self._chunks and not self._chunks[0].left and not self._stopped:
            chunk = self._chunks.popleft()
            self._unasked.discard(chunk)
            self._write(chunk)

    def _write(self, chunk: Chunk) -> None:
        columns, failures = self._answers.columns(chunk.responses, chunk.failures)
        rows, number = chunk.rows, chunk.number
        first = [pa.array([number] * rows.count, pa.int32())] if self._schema.names[0] == INPUT else []
        numbers = pa.array(range(rows.first, rows.first + rows.count), pa.int64())
        kept = [rows.kept(field.name) for field in self._plan.kept]
        batch = pa.RecordBatch.from_arrays([*first, numbers, *kept, *columns], schema=self._schema)
        self._part_at(number, rows.first).write(batch, len(failures))
        if (rows.first + rows.count) % self._plan.part_rows == 0:
            self._finish_part()
        for place, failure in failures.items():
            self._causes.add(number, rows.first + place, failure)
        self._rows += rows.count
        self._failed += len(failures)
        self.progress.scored(rows.count, len(failures))
        self._stopped = self._exceeded = self._settings.max_errors.exceeded(self._failed, self._rows)

    def _part_at(self, number: int, row: int) -> PartWriter:
        """Return the part that a row belongs to, begun at that row if it is the first of it to come."""
        place = number, row // self._plan.part_rows
        if self._part is None or self._part_of != place:
            self._finish_part()
            self._part, self._part_of = self._output.part(number, row), place
        return self._part

    def _finish_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.finish()
            self._parts += 1

    def abandon(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.abandon()

    def summary(self) -> ScoreSummary:
        return ScoreSummary(
            inputs=tuple(table.shown for table in self._plan.inputs),
            rows=self._rows,
            answered=self._rows - self._failed,
            failed=self._failed,
            rows_before=self._before[0],
            failed_before=self._before[1],
            parts=self._parts,
            seconds=round(self._seconds, 6),
            throughput=round(self._rows / self._seconds, 2) if self._seconds else 0.0,
            causes=self._causes.causes(),
            exceeded=self._exceeded,
            complete=not self._stopped,
        )
