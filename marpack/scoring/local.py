"""Bulk scoring on this machine: one bounded pipeline of rows, requests, responses and parts, in the inputs' order.

Rows are read when the pool takes batches, and responses are written in order: the batches in flight and one row group
of the current part are in memory, whatever the size of the inputs.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing

import pyarrow as pa
from msgspec import Struct

from marpack.runner.pool import Batch, Pool
from marpack.runner.results import outcomes_of
from marpack.scoring.mapping import INPUT
from marpack.scoring.parts import OutputFolder, PartWriter
from marpack.scoring.plan import ScoredRows, ScorePlan, ScoreSettings, ScoreSummary, ScoreTotals
from marpack.scoring.rows import Chunk, RowRequests
from marpack.scoring.tables import RowBatch

_ROWS = 256  # of a chunk at least: as many responses wait for the rest
_UNSENT = 64  # waiting chunks without a request, which no pool's window bounds


class RowRange(Struct, frozen=True):
    """Rows of one input that are in no part yet."""

    input: int  # its number
    first: int
    stop: int | None  # after the last one; None: to the end


def ranges_left(plan: ScorePlan, output: OutputFolder, rows_of: Callable[[int, int], int]) -> Iterator[RowRange]:
    """Yield the rows that are in no part of the output, in order.

    `rows_of` returns the number of rows of an input, by its number, or its second argument if there are more. It is
    called for an input that does not state its own, after its rows were yielded, if a limit is shared with the next.
    """
    left = plan.limit
    for number, table in enumerate(plan.inputs):
        known = [each for each in (table.rows, left) if each is not None]
        for first, stop in output.gaps(number, min(known, default=None)):
            yield RowRange(number, first, stop)
        if left is not None and number + 1 < len(plan.inputs):
            left -= min(left, rows_of(number, left) if table.rows is None else table.rows)


def score(pool: Pool, plan: ScorePlan, output: OutputFolder, settings: ScoreSettings | None = None) -> ScoreSummary:
    """Score all rows that are in no part of the output yet.

    Raises TableError for a table that cannot be read, OutputError for a part that cannot be written, LoadError and
    WorkerError for a worker that cannot be restarted; whole parts stay.
    """
    settings = settings or ScoreSettings()
    pipeline = _Pipeline(pool, plan, output, settings)
    started = time.monotonic()
    settings.progress.began(plan.rows, output.before[0])
    try:
        pipeline.run(ranges_left(plan, output, pipeline.count_rows))
    finally:
        settings.progress.ended()
    seconds = time.monotonic() - started
    output.verify(pipeline.totals.parts)
    exceeded = settings.max_errors.exceeded(pipeline.totals.failed, pipeline.totals.rows, over=not pipeline.stopped)
    return pipeline.totals.summary(output.before, seconds, exceeded=exceeded, complete=not pipeline.stopped)


def score_range(pool: Pool, plan: ScorePlan, output: OutputFolder, rows: RowRange, *, isolate: bool) -> ScoredRows:
    """Score some rows, and write the parts that they belong to; see `score`."""
    pipeline = _Pipeline(pool, plan, output, ScoreSettings(isolate=isolate))
    pipeline.run((rows,))
    return pipeline.totals.scored()


class _Pipeline:
    def __init__(self, pool: Pool, plan: ScorePlan, output: OutputFolder, settings: ScoreSettings) -> None:
        self._pool, self._plan, self._output, self._settings = pool, plan, output, settings
        self._schema, self._answers = plan.schema, plan.mapping.answers
        self._chunks: deque[Chunk] = deque()  # in order; those at the head are written once they have all responses
        self._unsent: set[Chunk] = set()  # those of which no request was sent
        self._sent: deque[tuple[Chunk, list[int]]] = deque()  # batches, with the places of their rows
        self._part: PartWriter | None = None
        self._part_of = (-1, -1)  # input, and number of the part within it
        self._seen: dict[int, int] = {}  # input → the rows read
        self._exhausted = False
        self.totals = ScoreTotals([table.shown for table in plan.inputs])
        self.stopped = False  # too many rows failed

    def run(self, ranges: Iterable[RowRange]) -> None:
        """Score rows, and finish their parts unless too many rows fail."""
        try:
            with closing(self._read(ranges)) as source:
                while not (self._exhausted or self.stopped):
                    for outcomes in outcomes_of(self._pool, self._batches(source), isolate=self._settings.isolate):
                        chunk, places = self._sent.popleft()
                        chunk.settle(places, outcomes)
                        self._write_complete()
            if not self.stopped:
                self._finish_part()
        finally:
            if self._part is not None:
                self._part.abandon()

    def count_rows(self, number: int, _: int) -> int:
        """Return how far an input was read, or reaches in parts of an earlier run."""
        done = max((record.first + record.rows for record in self._output.done(number)), default=0)
        return max(done, self._seen.get(number, 0))

    def _read(self, ranges: Iterable[RowRange]) -> Generator[tuple[int, RowBatch], None, None]:
        """Yield the rows to score in pieces that end where a part ends, with their input's number."""
        size = self._plan.batch_size
        most = -(-_ROWS // size) * size
        for rows in ranges:
            table, columns = self._plan.inputs[rows.input], self._plan.mapping_of(rows.input).needed
            for batch in table.read(columns, rows.first, rows.stop):
                start, end = batch.first, batch.first + batch.count
                self._seen[rows.input] = end
                while start < end:
                    stop = min(end, start + most, (start // self._plan.part_rows + 1) * self._plan.part_rows)
                    yield rows.input, batch.part(start, stop)
                    start = stop

    def _batches(self, source: Iterator[tuple[int, RowBatch]]) -> Iterator[Batch]:
        """Yield the requests, until too many rows wait for responses of rows before them."""
        makers: dict[int, RowRequests] = {}
        for number, rows in source:
            if number not in makers:
                makers = {number: RowRequests(self._plan.mapping_of(number))}
            chunk = Chunk(number, rows)
            self._chunks.append(chunk)
            self._unsent.add(chunk)
            for batch, places in chunk.batches(makers[number], self._plan.batch_size):
                self._unsent.discard(chunk)
                self._sent.append((chunk, places))
                yield batch
                if self.stopped:
                    return
            self._write_complete()
            if self.stopped or len(self._unsent) > _UNSENT:
                return
        self._exhausted = True

    def _write_complete(self) -> None:
        """Write the chunks at the head that have all their responses."""
        plan = self._plan
        while self._chunks and not self._chunks[0].left and not self.stopped:
            chunk = self._chunks.popleft()
            self._unsent.discard(chunk)
            columns, failures = self._answers.columns(chunk.responses, chunk.failures)
            rows, number = chunk.rows, chunk.number
            first = [pa.array([number] * rows.count, pa.int32())] if self._schema.names[0] == INPUT else []
            numbers = pa.array(range(rows.first, rows.first + rows.count), pa.int64())
            kept = [rows.kept(field.name) for field in plan.kept]
            batch = pa.RecordBatch.from_arrays([*first, numbers, *kept, *columns], schema=self._schema)
            place = number, rows.first // plan.part_rows
            if self._part is None or self._part_of != place:
                self._finish_part()
                self._part, self._part_of = self._output.part(number, rows.first), place
            self._part.write(batch, len(failures))
            if (rows.first + rows.count) % plan.part_rows == 0:
                self._finish_part()
            self.totals.add_rows(number, rows.first, rows.count, failures)
            self._settings.progress.scored(rows.count, len(failures))
            self.stopped = self._settings.max_errors.exceeded(self.totals.failed, self.totals.rows)

    def _finish_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.finish()
            self.totals.parts.append(part.path.name)
