"""`marpack.Scorer`: a model archive as a callable over tables, for libraries that send functions to the rows."""

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
from marpack.runner.pool import Batch
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
    """A callable that scores the rows of a table with a model of its own.

    Its pickle holds only its arguments: the archive is loaded on the first call. Give it to a library that
    maps functions over tables, such as `ray.data.Dataset.map_batches` (the class, with these arguments) or Spark's
    `mapInArrow` and `mapInPandas` (an instance).
    """

    @initializer(ScorerOptions)
    def __init__(self, options: ScorerOptions) -> None:
        """Check the arguments; raises UsageError for a wrong one."""
        self.__setstate__(options)

    def __getstate__(self) -> ScorerOptions:
        return self._options

    def __setstate__(self, options: ScorerOptions) -> None:
        self._options, self._mapping = options, options.mapping
        self._session: Session | None = None
        self._lock = threading.Lock()  # of the thread that talks to the workers

    def __call__(self, rows: Any) -> Any:  # Any: rows of any library, and a result of the same one
        """Return the columns that the mapping keeps, and those of the responses: selected ones, `status` and `error`.

        Args:
            rows: A dict of columns, an Arrow table or record batch, a pandas DataFrame; or an iterator of these.

        Returns:
            The same type, with a row for each row: `status` is 0 for a request that was not sent, `error` the reason
            of a failed row.

        Raises UsageError for missing columns; ArchiveError and LoadError on the first call.

        """
        if isinstance(rows, Iterator):
            return map(self, rows)
        chunk = Chunk(0, batch_of(rows, self._mapping))
        maker, sent = RowRequests(self._mapping), deque[list[int]]()  # the places of each batch's rows

        def batches() -> Iterator[Batch]:
            for batch, places in chunk.batches(maker, self._options.batch_size or 1):
                sent.append(places)
                yield batch

        with self._lock:
            if self._session is None:
                self._session = open_session(os.fspath(self._options.archive), self._options)
                weakref.finalize(self, self._session.pool.kill)  # at the latest when this process ends
            for outcomes in outcomes_of(self._session.pool, batches(), isolate=self._options.isolate):
                chunk.settle(sent.popleft(), outcomes)
        answers = self._mapping.answers
        arrays, _ = answers.columns(chunk.responses, chunk.failures)
        names = (field.name for field in answers.fields)
        return with_columns(rows, self._mapping.keep, dict(zip(names, arrays, strict=True)))

    def close(self) -> None:
        """End the model's processes; the next call loads it again."""
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
