"""`marpack.load` and `marpack.run`: a model in worker processes of its own, and its responses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from marpack.api.declaring import Headers, operation, valid
from marpack.api.operations import text_of
from marpack.api.requests import (
    NotedInput,
    PredictOptions,
    RawRequest,
    defaults_of,
    expect_several,
    request_for,
    request_from_form,
    request_from_http,
    requests_from,
)
from marpack.api.results import Answer, RunReport
from marpack.api.session_options import LoadOptions, RunOptions
from marpack.api.sessions import SessionExtras, SessionNotes, open_session
from marpack.errors import UsageError
from marpack.inspection.members import labels_of
from marpack.render.failure import Failure
from marpack.render.run import Trace, head_of
from marpack.runner.client import LoadError
from marpack.runner.inputs import Input, RequestDefaults, request_id
from marpack.runner.results import AnsweredInput, Result, RunStatistics, answered_inputs
from marpack.runner.session import Session

if TYPE_CHECKING:
    from marpack.findings import Finding


@operation(LoadOptions)
def load(options: LoadOptions) -> Model:
    """Load a model in a separate worker process. Close it, or use it in a `with` statement.

    Raises UsageError, ProjectError and ArchiveError for the source, LoadError if the handler cannot be imported,
    constructed or initialized.
    """
    return Model(open_session(text_of(options.source), options), options.max_request_size)


def run_inputs(options: RunOptions) -> RunReport:
    """Run inputs through an archive; a failure to load the model again is in the report. See `marpack.run`."""
    requests = iter(requests_from(options.inputs, defaults_of(options)))
    first = next(requests, None)
    if first is None:
        raise UsageError("no inputs", where="inputs", hint="Name inputs: marpack.run(source, [x]).")
    findings: list[Finding] = []
    notes = SessionNotes(findings.extend, env=options.env)
    with open_session(text_of(options.source), options, notes, SessionExtras(trace=options.trace)) as session:
        head, pool, statistics, results, failure = head_of(session, findings), session.pool, RunStatistics(), [], None
        every = itertools.chain([first], requests)
        try:
            for answered in answered_inputs(pool, every, batch_size=options.batch_size or 1):
                results.append(Answer.of(_with_note(answered)))  # without its input, which may need much memory
                statistics.add(answered.result)
                if options.fail_fast and not answered.result.ok:
                    pool.kill()  # without waiting for requests that were sent ahead
                    break
            pool.close()
        except LoadError as error:  # a worker that died could not be started again
            failure = Failure.of(error, head.archive)
        summary = statistics.summary(restarts=pool.restarts, peak_memory=pool.peak_memory, loaded=session.loaded)
        trace = asdict(Trace.of(session, summary.answered))
        return RunReport(**asdict(head), **trace, results=tuple(results), summary=summary, failure=failure)


def _with_note(answered: AnsweredInput) -> Result:
    """Return a result with the note on its request."""
    result = answered.result
    note = answered.input.note if isinstance(answered.input, NotedInput) else None
    return result if note is None else replace(result, troubles=(*result.troubles, note))


class Model(AbstractContextManager["Model"]):
    """A loaded model, which returns the responses that a client of the server would get.

    Several threads may use it; they share its workers.
    """

    def __init__(self, session: Session, max_request_size: int) -> None:
        self._session = session
        self._labels, self._entry_point = labels_of(session.archive), session.archive.manifest.model.handler
        self._max_request_size = max_request_size
        self._plain = RequestDefaults(max_request_size=max_request_size)
        self._numbers = itertools.count(1)  # of requests
        self._lock = threading.RLock()  # of the thread that talks to the workers

    @property
    def handler(self) -> str:
        """The entry point: `module.Class` or `module:function`."""
        return self._session.loaded.handler

    def predict(
        self,
        data: Any = None,  # Any: JSON
        *,
        content_type: str | None = None,
        headers: Headers | None = None,
        form: Mapping[str, Any] | None = None,  # Any: as above
        explain: bool = False,
    ) -> Answer:
        """Return the response to one request.

        Args:
            data: A `Path` to a file, `bytes` for a raw body, or a `str` for text. A PIL image is sent as PNG, and a
                NumPy array, torch tensor or other value as JSON.
            content_type: The content type of the body. By default, it depends on the type of `data`; for a file, on
                its name and first bytes.
            headers: The request's headers.
            form: Form fields instead of `data`, with the same types of values.
            explain: Request an explanation instead of a prediction.

        The response has `status`, `body`, `json()`, and `troubles` with the reasons for a failure. Raises UsageError
        for a file that cannot be read, and for a value that JSON cannot express.

        """
        size = self._max_request_size
        options = PredictOptions(content_type=content_type, headers=headers, explain=explain, max_request_size=size)
        shape = defaults_of(valid(options))
        if form is None:
            return self._answer([self._request(data, shape)])[0]
        number = next(self._numbers)
        return self._answer([request_from_form(shape, request_id(number), number, form)])[0]

    def predict_batch(self, batch: Iterable[Any]) -> list[Answer]:  # Any: as above
        """Return the responses to several requests in one call of the handler, as the server does with `batchSize`."""
        requests = [self._request(data, self._plain) for data in expect_several(batch)]
        return self._answer(requests, batch_size=max(1, len(requests)))

    def answer(self, requests: Iterable[RawRequest]) -> list[Answer]:
        """Return the responses to requests as a server receives them, in one call of the handler.

        A request that the frontend refuses, such as a truncated form, does not affect the others. The requests of a
        failed batch are retried one by one. Raises UsageError for an object that is not a RawRequest, and LoadError or
        WorkerError if a worker died and cannot be started again.
        """
        batch, limit = request_id(next(self._numbers)), self._max_request_size
        inputs = [request_from_http(each, next(self._numbers), batch, limit) for each in expect_several(requests)]
        return self._answer(inputs, isolate=True)

    def predict_many(
        self,
        inputs: Iterable[Any],  # Any: as above
        *,
        batch_size: int = 1,
        isolate: bool = False,
    ) -> Iterator[Answer]:
        """Yield the responses to any number of inputs, in their order. All workers handle requests.

        At most a few hundred inputs are read ahead, so they need not fit into memory. An input that cannot be sent
        ends the iteration after the responses to the inputs before it.

        Args:
            inputs: Values of the kinds that `predict` takes.
            batch_size: Requests per call of the handler.
            isolate: Retry the requests of a failed batch one by one, so that one bad request does not affect the
                others. On the server, all requests of the batch fail.

        Raises UsageError if `inputs` is a single value, and after the previous responses for a value that cannot be
        sent.

        """
        valid(PredictOptions(batch_size=batch_size, isolate=isolate))
        return self._answer_many(expect_several(inputs), batch_size, isolate=isolate)

    def _answer_many(self, inputs: Iterable[Any], batch_size: int, *, isolate: bool) -> Iterator[Answer]:  # Any: JSON
        unsent: list[UsageError] = []

        def requests() -> Iterator[Input]:
            for number, data in enumerate(inputs):
                try:
                    yield self._request(data, self._plain, where=f"inputs[{number}]")
                except UsageError as error:
                    unsent.append(error)
                    return

        def following() -> AnsweredInput | None:
            with self._lock:
                return next(answered, None)

        answered = answered_inputs(self._session.pool, requests(), batch_size=batch_size, isolate=isolate)
        with closing(answered):
            yield from map(self._show, iter(following, None))
        if unsent:
            raise unsent[0]

    def _request(self, data: Any, shape: RequestDefaults, *, where: str = "data") -> Input:  # Any: JSON
        number = next(self._numbers)
        return request_for(shape, request_id(number), number, data, where=where)

    def _answer(self, requests: list[Input], *, batch_size: int = 1, isolate: bool = False) -> list[Answer]:
        with self._lock:
            answered = list(answered_inputs(self._session.pool, requests, batch_size=batch_size, isolate=isolate))
        return [self._show(each) for each in answered]

    def _show(self, answered: AnsweredInput) -> Answer:
        """Return a response that shows itself together with its input."""
        return Answer.to(AnsweredInput(answered.input, _with_note(answered)), self._labels, self._entry_point)

    def close(self) -> None:
        """End the worker and close the archive."""
        self._session.__exit__(None)

    def __exit__(self, *_: object) -> None:
        self.close()
