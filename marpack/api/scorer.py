"""`marpack.Scorer`: a model archive as a callable over tables, for whoever ships functions to where the rows are."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, Self

from marpack.api.declaring import Name, Option, initializer
from marpack.api.session_options import BatchSize, WorkerOptions
from marpack.api.sessions import open_session
from marpack.runner.pool import Batch, Pool
from marpack.runner.results import outcomes_of
from marpack.runner.session import Session
from marpack.scoring.mapping import RowMapping
from marpack.scoring.rows import Chunk, RowRequests
from marpack.scoring.tables import batch_of, with_columns


class _ScorerArguments(WorkerOptions, frozen=True):
    archive: Annotated[Name, Option("A .mar, .tar.gz or model folder, by its name where the scorer is called.")]
    mapping: Annotated[RowMapping, Option("How a row becomes a request, and its response columns.")]


class ScorerOptions(_ScorerArguments, frozen=True, kw_only=True):
    """The arguments of `marpack.Scorer`."""

    batch_size: BatchSize = 1
    isolate: Annotated[bool, Option("Retry the rows of a failed batch one by one.")] = False


class Scorer:
    """A callable that answers the rows of a table with a model of its own.

    It pickles as its arguments and loads the archive on the first call, where it is called. Give it to a library that
    maps functions over tables, such as `ray.data.Dataset.map_batches` (the class, with these arguments) or Spark's
    `mapInArrow` and `mapInPandas` (an instance).
    """

    @initializer(ScorerOptions)
    def __init__(self, options: ScorerOptions) -> None:
        """Check the arguments; raises UsageError for a wrong one."""
        self._begin(options)

    def _begin(self, options: ScorerOptions) -> None:
        self._options = options
        self._mapping = options.mapping
        self._session: Session | None = None
        self._turn = threading.Lock()  # of the thread that talks to the workers
        self._answers = self._mapping.answers

    def __getstate__(self) -> ScorerOptions:
        return self._options

    def __setstate__(self, options: ScorerOptions) -> None:
        self._begin(options)

    def __call__(self, rows: Any) -> Any:  # Any: of whichever library; what comes back is of the same
        """Return the answers' columns, after those that the mapping keeps: what is selected, `status` and `error`.

        Args:
            rows: A dict of columns, an Arrow table or record batch, a pandas DataFrame; or an iterator of these.

        Returns:
            The same kind, with a row for each row: `status` is 0 where it was not asked, `error` why it has no answer.

        Raises UsageError for columns that are not there; ArchiveError and LoadError on the first call.

        """
        if isinstance(rows, Iterator):
            return map(self, rows)
        chunk = Chunk(0, batch_of(rows, self._mapping))
        with self._turn:
            self._ask(chunk)
        arrays, _ = self._answers.columns(chunk.responses, chunk.failures)
        names = (field.name for field in self._answers.fields)
        return with_columns(rows, self._mapping.keep, dict(zip(names, arrays, strict=True)))

    def _ask(self, chunk: Chunk) -> None:
        asked: deque[list[int]] = deque()  # the places of each batch's rows
        maker = RowRequests(self._mapping)

        def batches() -> Iterator[Batch]:
            for batch, places in chunk.batches(maker, self._options.batch_size or 1):
                asked.append(places)
                yield batch

        for outcomes in outcomes_of(self._pool(), batches(), isolate=self._options.isolate):
            chunk.settle(asked.popleft(), outcomes)

    def _pool(self) -> Pool:
        if self._session is None:
            self._session = open_session(os.fspath(self._options.archive), self._options)
            weakref.finalize(self, self._session.pool.kill)  # at the latest when this process ends
        return self._session.pool

    def close(self) -> None:
        """End the model's processes; the next call loads it again."""
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
