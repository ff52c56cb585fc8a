"""Bulk scoring on this machine: one bounded pipeline of rows, requests, answers and parts, in the inputs' order.

Rows are read as the pool asks for batches, and answers are written as the rows before them are: what is in memory are
the batches under way and one row group of the part at hand, however large the inputs are.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing

import pyarrow as pa
from msgspec import Struct

from marpack.runner.pool import Batch, Pool
from marpack.runner.results import outcomes_of
from marpack.scoring.mapping import INPUT, AnswerColumns
from marpack.scoring.parts import OutputFolder, PartWriter
from marpack.scoring.plan import ScorePlan
from marpack.scoring.rows import Chunk, RowRequests
from marpack.scoring.summary import ScoredRows, ScoreSettings, ScoreSummary, ScoreTotals
from marpack.scoring.tables import RowBatch

_ROWS = 256  # of a chunk at least: as many answers wait for the rest of theirs
_UNASKED = 64  # chunks that wait, with nothing in them to be asked: no pool's window bounds them


class RowRange(Struct, frozen=True):
    """Rows of one input that no part holds yet."""

    input: int  # its number
    first: int
    stop: int | None  # behind the last one; None: all there are


def ranges_left(plan: ScorePlan, output: OutputFolder, rows_of: Callable[[int, int], int]) -> Iterator[RowRange]:
    """Yield the rows that are to be scored, in order.

    Args:
        plan: Of the run.
        output: Where parts of it may be already.
        rows_of: Returns how many rows an input has, by its number; or any number from the second argument on, if it has
            more. It is asked of one that does not tell itself, once what there is of it was yielded, and only where a
            limit is shared with the next.

    """
    left = plan.limit
    for number, table in enumerate(plan.inputs):
        known = [each for each in (table.rows, left) if each is not None]
        for first, stop in output.gaps(number, min(known, default=None)):
            yield RowRange(number, first, stop)
        if left is not None and number + 1 < len(plan.inputs):
            left -= min(left, rows_of(number, left) if table.rows is None else table.rows)


def score(pool: Pool, plan: ScorePlan, output: OutputFolder, settings: ScoreSettings | None = None) -> ScoreSummary:
    """Ask a pool about all rows that no part of the output holds yet, and write their answers.

    Raises TableError for a table that cannot be read on, OutputError for a part that cannot be written, LoadError and
    WorkerError for a worker that cannot be started again: parts that are whole stay.
    """
    settings = settings or ScoreSettings()
    pipeline = _Pipeline(pool, plan, output, settings)
    started = time.monotonic()
    settings.progress.began(plan.rows, output.before[0])
    try:
        pipeline.run(ranges_left(plan, output, pipeline.rows_seen))
    finally:
        settings.progress.ended()
    seconds = time.monotonic() - started
    output.verify(pipeline.totals.parts)
    exceeded = settings.max_errors.exceeded(pipeline.totals.failed, pipeline.totals.rows, over=not pipeline.stopped)
    return pipeline.totals.summary(output.before, seconds, exceeded=exceeded, complete=not pipeline.stopped)


def score_range(pool: Pool, plan: ScorePlan, output: OutputFolder, rows: RowRange, *, isolate: bool) -> ScoredRows:
    """Ask a pool about some rows, and write their answers as the parts that they belong to; see `score`."""
    pipeline = _Pipeline(pool, plan, output, ScoreSettings(isolate=isolate))
    pipeline.run((rows,))
    return pipeline.totals.scored()


class _Pipeline:
    def __init__(self, pool: Pool, plan: ScorePlan, output: OutputFolder, settings: ScoreSettings) -> None:
        self._pool, self._plan, self._output, self._settings = pool, plan, output, settings
        self._schema = plan.schema
        self._answers = AnswerColumns(plan.mapping.select, encode_binary=plan.mapping.encode_binary)
        self._chunks: deque[Chunk] = deque()  # in order; those at the head are written once they are answered
        self._unasked: set[Chunk] = set()  # those of which nothing was sent
        self._sent: deque[tuple[Chunk, list[int]]] = deque()  # batches, with the places of their rows
        self._part: PartWriter | None = None
        self._part_of = (-1, -1)  # input, and number of the part within it
        self._seen: dict[int, int] = {}  # input → how far it was read
        self._exhausted = False
        self.totals = ScoreTotals([table.shown for table in plan.inputs])
        self.stopped = False  # too many rows have failed

    def run(self, ranges: Iterable[RowRange]) -> None:
        """Score rows, and finish their parts unless there is no going on."""
        try:
            with closing(self._read(ranges)) as source:
                while not (self._exhausted or self.stopped):
                    for outcomes in outcomes_of(self._pool, self._batches(source), isolate=self._settings.isolate):
                        chunk, places = self._sent.popleft()
                        chunk.settle(places, outcomes)
                        self._write_answered()
            if not self.stopped:
                self._finish_part()
        finally:
            self._abandon_part()

    def rows_seen(self, number: int, _: int) -> int:
        """Return how far an input was read, or reaches in parts of an earlier run."""
        done = max((record.first + record.rows for record in self._output.done(number)), default=0)
        return max(done, self._seen.get(number, 0))

    def _read(self, ranges: Iterable[RowRange]) -> Generator[tuple[int, RowBatch], None, None]:
        """Yield the rows that are to be asked, with their input's number, no further than each part's end."""
        for rows in ranges:
            table, columns = self._plan.inputs[rows.input], self._plan.mapping_of(rows.input).needed
            for batch in table.read(columns, rows.first, rows.stop):
                self._seen[rows.input] = batch.first + batch.count
                yield from ((rows.input, piece) for piece in self._pieces(batch))

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
                if self.stopped:
                    return
            self._write_answered()
            if self.stopped or len(self._unasked) > _UNASKED:
                return
        self._exhausted = True

    def _write_answered(self) -> None:
        while self._chunks and not self._chunks[0].left and not self.stopped:
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
        self.totals.add_rows(number, rows.first, rows.count, failures)
        self._settings.progress.scored(rows.count, len(failures))
        self.stopped = self._settings.max_errors.exceeded(self.totals.failed, self.totals.rows)

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
            self.totals.parts.append(part.path.name)

    def _abandon_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.abandon()
