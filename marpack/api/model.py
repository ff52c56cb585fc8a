"""`marpack.load`: a model in a worker process of its own, which answers until it is closed."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Annotated, Any, Self

from msgspec import Struct

from marpack.api.answering import ModelFacts
from marpack.api.declaring import Headers, Option, operation, valid
from marpack.api.options import Above0
from marpack.api.requests import RawRequest, asked, asked_by_client, asked_by_form, request_defaults, several
from marpack.api.results import Answer
from marpack.api.session_options import LoadOptions
from marpack.api.sessions import open_session
from marpack.errors import UsageError
from marpack.runner.inputs import Input, RequestDefaults, request_id
from marpack.runner.results import AnsweredInput, answered_inputs
from marpack.runner.session import Session


@operation(LoadOptions)
def load(options: LoadOptions) -> Model:
    """Load a model in a worker process of its own; close it, or use it in a `with` statement.

    Raises:
        UsageError, ProjectError, ArchiveError: the source.
        LoadError: the handler cannot be imported, constructed or initialised.

    """
    source = None if options.source is None else os.fspath(options.source)
    return Model(open_session(source, options), request_defaults(max_request_size=options.max_request_size))


class _PredictOptions(Struct, frozen=True, kw_only=True):
    """The options of the methods of `Model`, for validation."""

    batch_size: Annotated[Above0, Option("Requests per call of the handler.")] = 1
    isolate: Annotated[bool, Option("Retry the requests of a failed batch one by one.")] = False
    explain: Annotated[bool, Option("Request an explanation instead of a prediction.")] = False


class Model:
    """A loaded model: give it inputs, get what a client of the server would get.

    Several threads may ask it; they share its workers.
    """

    def __init__(self, session: Session, shape: RequestDefaults) -> None:
        self._session = session
        self._facts = ModelFacts.of(session)
        self._plain = shape
        self._numbers = itertools.count(1)  # of requests
        self._turn = threading.RLock()  # of the thread that talks to the workers

    @property
    def handler(self) -> str:
        """The entry point: `module.Class` or `module:function`."""
        return self._session.loaded.handler

    def predict(
        self,
        data: Any = None,  # Any: whatever JSON holds
        *,
        content_type: str | None = None,
        headers: Headers | None = None,
        form: Mapping[str, Any] | None = None,  # Any: as above
        explain: bool = False,
    ) -> Answer:
        """Answer one request.

        Args:
            data: A `Path` is a file, `bytes` a raw body, a `str` text; a PIL image goes as PNG, a numpy array and a
                torch tensor as JSON lists, and so does anything else that JSON holds.
            content_type: Of the body; None: the file's by its name and first bytes, text/plain, image/png,
                application/json, or none for bytes.
            headers: The request's headers.
            form: Form fields instead of `data`, of the same kinds.
            explain: Ask for an explanation instead of a prediction.

        Returns:
            The answer, with `status`, `body`, `json()` and, beside them, `troubles`: why it is what it is.

        Raises UsageError for what cannot be sent: a file that cannot be read, a type or a number that JSON has not.

        """
        valid(_PredictOptions(explain=explain))
        shape = request_defaults(
            content_type=content_type,
            headers=headers,
            explain=explain,
            max_request_size=self._plain.max_request_size,
        )
        if form is None:
            return self._answered([self._asked(data, shape)])[0]
        number = next(self._numbers)
        return self._answered([asked_by_form(shape, request_id(number), number, form)])[0]

    def predict_batch(self, batch: Iterable[Any]) -> list[Answer]:  # Any: as above
        """Answer several requests in one call of the handler, as the server does with `batchSize`."""
        requests = [self._asked(data, self._plain) for data in several(batch)]
        return self._answered(requests, batch_size=max(1, len(requests)))

    def answer(self, requests: Iterable[RawRequest]) -> list[Answer]:
        """Answer requests as a server has them in hand, in one call of the handler: for who puts a model behind HTTP.

        What the frontend refuses, such as a form cut short, costs only itself. So does one that makes the batch fail:
        the requests of such a batch are asked again, one by one.

        Raises UsageError for what is no RawRequest, and LoadError or WorkerError for a worker that died and could not
        be started again.
        """
        batch, limit = request_id(next(self._numbers)), self._plain.max_request_size
        inputs = [asked_by_client(each, next(self._numbers), batch, limit) for each in several(requests)]
        return self._answered(inputs, isolate=True)

    def predict_many(
        self,
        inputs: Iterable[Any],  # Any: as above
        *,
        batch_size: int = 1,
        isolate: bool = False,
    ) -> Iterator[Answer]:
        """Answer any number of requests, shared among the workers: an iterator, in the inputs' order.

        Inputs are taken a few hundred ahead of their answers, so there may be more of them than memory holds. One that
        cannot be sent ends it, once those before it are answered.

        Args:
            inputs: Of the kinds that `predict` takes.
            batch_size: Requests per call of the handler.
            isolate: Ask the requests of a batch that failed again, one by one, so that a bad one costs only itself.
                This is not what the server does: there, all of them fail.

        Raises UsageError: at once for what is not several, and in its turn for what cannot be sent.

        """
        valid(_PredictOptions(batch_size=batch_size, isolate=isolate))
        return self._answers(several(inputs), batch_size, isolate=isolate)

    def _answers(self, inputs: Iterable[Any], batch_size: int, *, isolate: bool) -> Iterator[Answer]:  # Any: as above
        unsent: list[UsageError] = []

        def requests() -> Iterator[Input]:
            for number, data in enumerate(inputs):
                try:
                    yield self._asked(data, self._plain, where=f"inputs[{number}]")
                except UsageError as error:
                    unsent.append(error)
                    return

        answered = answered_inputs(self._session.pool, requests(), batch_size=batch_size, isolate=isolate)
        with closing(answered):
            while (each := self._next_of(answered)) is not None:
                yield self._facts.answer(each)
        if unsent:
            raise unsent[0]

    def _next_of(self, answered: Iterator[AnsweredInput]) -> AnsweredInput | None:
        with self._turn:
            return next(answered, None)

    def _asked(self, data: Any, shape: RequestDefaults, *, where: str = "data") -> Input:  # Any: as above
        number = next(self._numbers)
        return asked(shape, request_id(number), number, data, where=where)

    def _answered(self, requests: list[Input], *, batch_size: int = 1, isolate: bool = False) -> list[Answer]:
        with self._turn:
            answered = list(answered_inputs(self._session.pool, requests, batch_size=batch_size, isolate=isolate))
        return [self._facts.answer(each) for each in answered]

    def close(self) -> None:
        """End the worker and close the archive."""
        self._session.__exit__(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
