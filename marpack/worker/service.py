"""The model, loaded once, and the answers it gives: the server's `predict`, failure by failure (contract §2 and §5)."""

import asyncio
import copy
import inspect
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from marpack.protocol import diagnostics
from marpack.protocol.diagnostics import drain_timings, milliseconds_since
from marpack.protocol.messages import Answered, Trouble
from marpack.torchserve.context import Context, Handle, Row, processor_of, row_of
from marpack.torchserve.envelopes import loses_requests
from marpack.torchserve.frontend.http_response import Sequences, error_response, no_answer
from marpack.torchserve.http import MAX_BODY, Request, Response, ResponseChunk
from marpack.torchserve.response import (
    NEXT,
    UNSERIALISABLE,
    AnsweredTwice,
    BrokenFrame,
    FrontendRefusal,
    Unserialisable,
    WorkerDeath,
    check_sizes,
    checked_error,
    response_of,
)
from marpack.torchserve.streaming import ChunkSocket, assemble, is_final
from marpack.torchserve.ts.entry_point import HandlerEntry
from marpack.torchserve.ts_util import PredictionException
from marpack.worker.remedies import hint_in_request, note_gap
from marpack.worker.stages import StageClock
from marpack.worker.trouble import flatten, last_words


class RowsTaken(WorkerDeath):
    """The handler took rows from its data, and what it returned has no answer for them."""

    kind = "rows-taken"
    hint = "leave `data` as it is, and return one item per row that it had"


class ServiceMode(Struct, frozen=True, kw_only=True):
    """How the model config wants requests answered."""

    asynchronous: bool = False  # what the handler returns is awaited
    loses_answers: bool = False  # a request is forgotten, as by the server, where a worker that awaits would die
    continuous: bool = False  # requests whose answers are not finished come again
    sequences: Sequences | None = None  # what is done about requests of no sequence, under sequenceBatching


class InferenceService:
    """Answers batches through one initialised handler."""

    def __init__(
        self,
        entry: HandlerEntry,
        context: Context,
        handle: Handle,
        mode: ServiceMode,
        *,
        max_response_size: int = MAX_BODY,
    ) -> None:
        """Take what answers, and how.

        Args:
            entry: What the handler's file offers.
            context: Of the worker.
            handle: The entry point, in its envelope if there is one.
            mode: What the model config says of it.
            max_response_size: Bytes of one answer; what has more ends the worker, as on the server.

        """
        self._context = context
        self._handle = handle
        self.mode = mode
        self._limit = max_response_size
        self._model_dir = str(context.system_properties["model_dir"])
        self._clock = StageClock()
        self._clock.watch(entry.instance)
        self._instance = entry.instance
        self._decode = os.environ.get("TS_DECODE_INPUT_REQUEST", "true") == "true"
        self._troubles: list[Trouble] = []
        self._out_of_step = False  # the frontend takes what was returned last for the answer to the next request
        self.on_failure: Callable[[BaseException], None] | None = None  # sees what the handler raised, first
        self.take_lines: Callable[[], tuple[str, ...]] = tuple  # returns the metrics of the batch that nobody wrote

    def predict(self, requests: tuple[Request, ...], send: Callable[[ResponseChunk], None]) -> Answered:
        """Answer one batch; never raises an `Exception` of the handler's.

        Raises:
            WorkerDeath: where the real worker would die, its exception flattened to `trouble`.
            SystemExit, KeyboardInterrupt: the handler's own.

        """
        sequences = self.mode.sequences
        if sequences is not None and sequences.stuck:
            return Answered(responses=sequences.refusals(len(requests)), stages={}, troubles=(_NO_IDLE_TIME,))
        if self._out_of_step:
            raise AnsweredTwice("the frontend had its answer to the request before, and then got another")
        socket = ChunkSocket(send, limit=self._limit)
        start = time.perf_counter()
        answers = self._turns(requests, socket) if self.mode.continuous else self._turn(requests, socket)
        socket.over = True
        if socket.sent or any(answer.headers for answer in answers):
            answers = tuple([assemble(socket.sent, index, answer) for index, answer in enumerate(answers)])
            self._out_of_step = any(is_final(answer) for piece in socket.sent for answer in piece.responses.values())
        stages = self._clock.take() | drain_timings() | {"handle": milliseconds_since(start)}
        return Answered(
            responses=answers,
            stages=stages,
            troubles=(*self._taken(), *diagnostics.drain_notes()),
            outputs=diagnostics.drain_outputs(),
            metrics=self.take_lines(),
        )

    def _turn(self, requests: tuple[Request, ...], socket: ChunkSocket) -> tuple[Response, ...]:
        if self.mode.asynchronous:
            return self._turn_apart(requests, socket)
        return self._answers(self._receive(requests, self._context, socket), self._context)

    def _turn_apart(self, requests: tuple[Request, ...], socket: ChunkSocket) -> tuple[Response, ...]:
        """Answer under asyncCommunication: each batch is a task of its own, with a copy of the context.

        Where the worker would die of an answer, only the task does, and nothing tells the frontend.
        """
        try:
            context = copy.deepcopy(self._context)
            return self._answers(self._receive(requests, context, socket), context)
        except (FrontendRefusal, SystemExit, KeyboardInterrupt):  # these do end the worker
            raise
        except BaseException as error:  # whatever ends a task, its requests are forgotten
            if not self.mode.loses_answers:
                raise
            return self._lost(error, len(requests))

    def _turns(self, requests: tuple[Request, ...], socket: ChunkSocket) -> tuple[Response, ...]:
        """Call the handler again for the requests it has not finished: each answer but the last is one piece.

        From its second turn on a request has its id and headers, and no content: `{}`.
        """
        last: dict[int, Response] = {}
        waiting = dict(enumerate(requests))
        while waiting:
            socket.places = tuple(waiting)
            answers = dict(zip(waiting, self._turn(tuple(waiting.values()), socket), strict=True))
            unfinished = {
                place: answer for place, answer in answers.items() if dict(answer.headers).get(NEXT) == "true"
            }
            last |= {place: answer for place, answer in answers.items() if place not in unfinished}
            if unfinished:
                socket.pass_on(ResponseChunk(unfinished))
            waiting = {place: replace(waiting[place], parts=()) for place in unfinished}
        return tuple(last[place] for place in range(len(requests)))

    def _taken(self) -> list[Trouble]:
        taken, self._troubles = self._troubles, []
        return taken

    def _receive(self, requests: tuple[Request, ...], context: Context, socket: ChunkSocket) -> list[Row]:
        context.request_ids = {index: request.id for index, request in enumerate(requests)}
        context.request_processor = [processor_of(request) for request in requests]
        if self.mode.sequences is not None:
            for processor in context.request_processor:
                self.mode.sequences.enter(processor, context)
        context.cl_socket = socket
        if context.metrics is not None:
            context.metrics.request_ids = context.request_ids
        return [row_of(request, decode=self._decode) for request in requests]

    def _answers(self, rows: list[Row], context: Context) -> tuple[Response, ...]:
        count = len(rows)  # of requests: the handler may take from its rows, or add
        start = time.perf_counter()
        try:
            returned = self._call(rows, context)
        except MemoryError as error:
            return self._failed(error, count, rows, 507, "Out of resources")
        except PredictionException as error:
            return self._failed(error, count, rows, *checked_error(error.error_code, error.message))
        except Exception as error:  # noqa: BLE001 - the worker's loop
            if "CUDA" in str(error):  # an exception whose text raises kills the real worker, and ours
                return self._failed(error, count, rows, 507, "Out of resources")
            return self._failed(error, count, rows, 503, "Prediction failed")
        if not isinstance(returned, list):
            return self._refused(count, "Invalid model predict output", _not_a_list(returned))
        if len(returned) != len(rows):
            envelope = loses_requests(self._handle) if len(returned) == 1 else None  # or the handler's own doing
            trouble = _lost_by(envelope, len(rows)) if envelope else _wrong_length(len(returned), len(rows))
            return self._refused(count, "number of batch response mismatched", trouble)
        return self._encoded(returned, count, start, context)

    def _call(self, rows: list[Row], context: Context) -> Any:  # Any: the author's return value, judged afterwards
        if self.mode.asynchronous:  # what cannot be awaited fails the prediction, as on the server
            return _event_loop().run_until_complete(_awaited(self._handle, rows, context))
        return self._handle(rows, context)

    def _encoded(self, returned: list[Any], count: int, start: float, context: Context) -> tuple[Response, ...]:
        if context.metrics is not None:
            context.metrics.add_time("PredictionTime", round(milliseconds_since(start), 2))
        try:
            return self._responses(returned, count, context)
        except Unserialisable as error:
            return self._refused(count, UNSERIALISABLE, _not_json(returned, error))

    def _responses(self, returned: list[Any], count: int, context: Context) -> tuple[Response, ...]:
        answered: list[Response] = []
        refusals: list[FrontendRefusal] = []
        for index in range(count):  # the worker encodes every row before the frontend reads the first
            try:
                response = response_of(index, _item(returned, index), context)
            except FrontendRefusal as refusal:
                refusals.append(refusal)
            else:
                if not refusals:
                    answered.append(response)
        if refusals:
            raise _decisive(refusals, tuple(answered))
        check_sizes(answered, self._limit)
        return tuple(answered)

    def _failed(
        self, error: BaseException, count: int, rows: list[Row], status: int, message: str
    ) -> tuple[Response, ...]:
        if self.on_failure is not None:
            self.on_failure(error)
        stage = self._clock.failed or "handle"
        hint = hint_in_request(error, rows, self._instance)
        note_gap(error, self._instance)
        self._troubles.append(flatten(error, stage=stage, model_dir=self._model_dir, hint=hint))
        return tuple(error_response(status, message) for _ in range(count))

    def _lost(self, error: BaseException, count: int) -> tuple[Response, ...]:
        if self.on_failure is not None:
            self.on_failure(error)
        trouble = last_words(error, self._model_dir, stage=self._clock.failed or "handle")
        self._troubles.append(replace(trouble, notes=(*trouble.notes, _FORGOTTEN)))
        why = "asyncCommunication forgets a request whose task fails"
        return tuple(no_answer(why) for _ in range(count))

    def _refused(self, count: int, message: str, trouble: Trouble) -> tuple[Response, ...]:
        self._troubles.append(trouble)
        return tuple(error_response(503, message) for _ in range(count))


_NO_IDLE_TIME = Trouble(
    kind="no-idle-time",
    stage="handle",
    message="with sequenceBatching the server needs to know how long a sequence may be idle",
    hint="set sequenceMaxIdleMSec: 60000 (or another time in ms) in the model config",
)
_FORGOTTEN = "under asyncCommunication the server forgets this request: its client waits until it gives up"


def _item(returned: list[Any], index: int) -> Any:  # Any: as returned
    try:
        return returned[index]
    except IndexError:
        why = f"handle took rows from `data`, and returned {len(returned)} items: there is none for request {index + 1}"
        raise RowsTaken(why) from None


def _decisive(refusals: list[FrontendRefusal], before: tuple[Response, ...]) -> FrontendRefusal:
    """Return the refusal that a batch ends with: one that breaks the message, else the first the frontend comes to."""
    broken = next((refusal for refusal in refusals if isinstance(refusal, BrokenFrame)), None)
    if broken is not None:
        return broken
    refusals[0].answered = before
    return refusals[0]


async def _awaited(handle: Handle, rows: list[Row], context: Context) -> Any:  # Any: as returned
    return await handle(rows, context)


def _event_loop() -> asyncio.AbstractEventLoop:
    """Return this thread's event loop: the one that a handler asked for in its initialize, and the same every time."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # to make one by asking for it is what the server does
            return asyncio.get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        return loop


def _not_a_list(returned: object) -> Trouble:
    what, hint = f"a {type(returned).__name__}", "return a list, e.g. [result]"
    if inspect.iscoroutine(returned):
        returned.close()
        what, hint = "a coroutine", "an async handle needs asyncCommunication: true in the model config"
    return Trouble(
        kind="invalid-output",
        stage="respond",
        message=f"handle returned {what}; the server takes a list with one item per request",
        hint=hint,
    )


def _wrong_length(got: int, count: int) -> Trouble:
    return Trouble(
        kind="batch-mismatch",
        stage="respond",
        message=f"handle returned {got} items for a batch of {count}",
        hint="return exactly one item per row of `data`, in its order",
    )


def _lost_by(envelope: str, count: int) -> Trouble:
    return Trouble(
        kind="batch-mismatch",
        stage="respond",
        message=f"the envelope {envelope} hands on the first request of a batch alone: 1 answer for a batch of {count}",
        hint="under it a model takes one request per call: leave batchSize out of its config, and --batch-size here",
    )


def _not_json(returned: list[Any], error: Exception) -> Trouble:
    hint = "convert numpy arrays and tensors with .tolist(), numpy scalars with .item(), sets with list()"
    if _holds_bytes(returned):
        hint = "return bytes as a row's whole answer, or as text inside of one: base64.b64encode(value).decode()"
    return Trouble(
        kind="unserialisable-output",
        stage="respond",
        message=f"the answer cannot become JSON: {error}",
        hint=hint,
        notes=(f"returned: {[type(item).__name__ for item in returned[:8]]}",),
    )


def _holds_bytes(value: object, depth: int = 3) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, bytes | bytearray) or (depth > 0 and any(_holds_bytes(item, depth - 1) for item in inner))
