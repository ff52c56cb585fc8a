"""`marpack.Scorer`: a model archive as a callable over tables, for whoever ships functions to where the rows are."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, Self

from marpack.api.arguments import Name, valid
from marpack.api.settings import session_of
from marpack.errors import UsageError
from marpack.runner.pool import Batch, Pool
from marpack.runner.results import outcomes_of
from marpack.runner.session import Session
from marpack.scoring.batches import batch_of, with_columns
from marpack.scoring.chunks import Chunk
from marpack.scoring.mapping import RowMapping
from marpack.scoring.rows import RowRequests
from marpack.torchserve.http import MAX_BODY


class Scorer:
    """A callable that answers the rows of a table by a model of its own.

    It pickles as its arguments, and loads the archive on the first call, where it is called: hand it to what maps
    functions over tables, such as `ray.data.Dataset.map_batches` (the class, with these arguments) and Spark's
    `mapInArrow` and `mapInPandas` (an instance).

    Args:
        archive: A .mar, a .tar.gz or a model folder, under the name that it has where the scorer is called.
        mapping: How a row becomes a request, and its answer columns.
        batch_size: Requests per call of the handler.
        isolate: Ask the rows of a batch that failed again, one by one, so that a bad one costs only itself.
        workers: Processes that share the rows of a call.
        target: "torchserve" or "marpack", whose behaviour counts; None: the archive's.
        device: "auto", "cpu", "cuda", "cuda:1", "xpu", "xpu:1", "mps" or "xla".
        envelope: The server's setting service_envelope.
        timeout: Seconds that a batch may take; None: as on the server, the config's responseTimeout or else 120.
        startup_timeout: Seconds for loading; None: the config's startupTimeout, or 120.
        max_response_size: Bytes of an answer; beyond, its worker dies.

    Raises UsageError for arguments that cannot be.
    """

    def __init__(
        self,
        archive: Name,
        mapping: RowMapping,
        *,
        batch_size: int = 1,
        isolate: bool = False,
        workers: int = 1,
        target: Literal["torchserve", "marpack"] | None = None,
        device: str = "auto",
        envelope: Literal["body", "json", "kserve", "kservev2"] | None = None,
        timeout: float | None = None,
        startup_timeout: float | None = None,
        max_response_size: int = MAX_BODY,
    ) -> None:
        given = locals()
        options = valid({("source" if name == "archive" else name): given[name] for name in given if name != "self"})
        if options["source"] is None:
            raise UsageError("a scorer needs an archive", where="archive", hint="name a .mar")
        _expect_mapping(options["mapping"])
        self._options = options
        self._begin()

    def _begin(self) -> None:
        self._mapping: RowMapping = self._options["mapping"]
        self._session: Session | None = None
        self._turn = threading.Lock()  # of the thread that talks to the workers
        self._answers = self._mapping.answers

    def __getstate__(self) -> dict[str, Any]:  # Any: each argument has its own type
        return self._options

    def __setstate__(self, options: dict[str, Any]) -> None:  # Any: as above
        self._options = options
        self._begin()

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
            for batch, places in chunk.batches(maker, self._options["batch_size"]):
                asked.append(places)
                yield batch

        for outcomes in outcomes_of(self._pool(), batches(), isolate=self._options["isolate"]):
            chunk.settle(asked.popleft(), outcomes)

    def _pool(self) -> Pool:
        if self._session is None:
            self._session = session_of(self._options, lambda _: None)
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


def _expect_mapping(mapping: object) -> None:
    if not isinstance(mapping, RowMapping):
        hint = "such as marpack.RowMapping(text='review', select={'label': 'label'})"
        raise UsageError("what is asked of a row is told by a RowMapping", where="mapping", hint=hint)
