"""Responses to batches: the server's `predict`, failure by failure (contract §2 and §5)."""

import asyncio
import copy
import inspect
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from marpack.protocol.messages import Answered, Trouble
from marpack.torchserve import MAX_BODY
from marpack.torchserve import response as encoding
from marpack.torchserve.context import Context, Handle, Row, processor_of, row_of
from marpack.torchserve.entry_point import HandlerEntry, loses_requests
from marpack.torchserve.http import Request, Response, ResponseChunk, error_response, no_answer
from marpack.torchserve.model_config import Sequences
from marpack.worker.notes import drain_notes, drain_outputs, drain_timings, milliseconds_since
from marpack.worker.stages import StageClock
from marpack.worker.trouble import flatten, last_words, note_labels_gap

_NO_IDLE_TIME = Trouble(
    kind="no-idle-time",
    stage="handle",
    message="sequenceBatching is set without sequenceMaxIdleMSec, so the server does not answer",
    hint="Set sequenceMaxIdleMSec in the model config, such as 60000 (ms).",
)
Responses = tuple[Response, ...]  # of a batch, in its order
_FORGOTTEN = "with asyncCommunication, the server drops this request, and its client waits until its own timeout"


class RowsTaken(encoding.WorkerDeath):
    """The handler removed rows from its data, and returned too few items."""

    kind = "rows-taken"
    hint = "Do not change `data`, and return one item per row."


class ServiceMode(Struct, frozen=True, kw_only=True):
    """The settings of the model config that change how requests get responses."""

    asynchronous: bool = False  # what the handler returns is awaited
    loses_answers: bool = False  # a request is forgotten, as by the server, where a worker that awaits would die
    continuous: bool = False  # requests whose responses are not finished come again
    sequences: Sequences | None = None  # under sequenceBatching, requests without a sequence are refused


class InferenceService:
    """Responds to batches through one initialized handler."""

    def __init__(
        self, entry: HandlerEntry, context: Context, handle: Handle, mode: ServiceMode, limit: int = MAX_BODY
    ) -> None:
        """Take the entry point, bare and in its envelope, and the size of a response (bytes) that ends the worker."""
        self._context = context
        self._handle = handle
        self.mode = mode
        self._limit = limit
        self._model_dir = str(context.system_properties["model_dir"])
        self._clock = StageClock()
        self._clock.watch(entry.instance)
        self._instance = entry.instance
        self._decode = os.environ.get("TS_DECODE_INPUT_REQUEST", "true") == "true"
        self._troubles: list[Trouble] = []
        self._out_of_step = False  # the frontend takes the last response for that to the next request
        self.on_failure: Callable[[BaseException], None] | None = None  # gets the handler's exception, first
        self.take_lines: Callable[[], tuple[str, ...]] = tuple  # returns the batch's metrics that are not yet written

    def predict(self, requests: tuple[Request, ...], send: Callable[[ResponseChunk], None]) -> Answered:
        """Respond to one batch; raises WorkerDeath, and the handler's own SystemExit and KeyboardInterrupt."""
        sequences = self.mode.sequences
        if sequences is not None and sequences.stuck:
            response = error_response(500, "sequenceBatching requires sequenceMaxIdleMSec")
            return Answered(responses=(response,) * len(requests), stages={}, troubles=(_NO_IDLE_TIME,))
        if self._out_of_step:
            raise encoding.AnsweredTwice("the frontend had its answer to the request before, and then got another")
        socket = encoding.ChunkSocket(send, limit=self._limit)
        start = time.perf_counter()
        answers = self._turns(requests, socket) if self.mode.continuous else self._turn(requests, socket)
        socket.over = True
        if socket.sent or any(answer.headers for answer in answers):
            answers = tuple([encoding.assemble(socket.sent, index, answer) for index, answer in enumerate(answers)])
            sent = [answer for piece in socket.sent for answer in piece.responses.values()]
            self._out_of_step = any(map(encoding.is_final, sent))
        troubles, self._troubles = self._troubles, []
        stages = self._clock.take() | drain_timings() | {"handle": milliseconds_since(start)}
        return Answered(
            responses=answers,
            stages=stages,
            troubles=(*troubles, *drain_notes()),
            outputs=drain_outputs(),
            metrics=self.take_lines(),
        )

    def _turn(self, requests: tuple[Request, ...], socket: encoding.ChunkSocket) -> Responses:
        """Call the handler once.

        Under asyncCommunication each batch is a task of its own, with a copy of the context: where the worker would
        die of a response, only the task does, and the frontend is not notified.
        """
        if not self.mode.asynchronous:
            return self._answers(requests, self._context, socket)
        try:
            return self._answers(requests, copy.deepcopy(self._context), socket)
        except (encoding.FrontendRefusal, SystemExit, KeyboardInterrupt):  # these do end the worker
            raise
        except BaseException as error:  # the requests of a task that fails are forgotten
            if not self.mode.loses_answers:
                raise
            if self.on_failure is not None:
                self.on_failure(error)
            trouble = last_words(error, self._model_dir, stage=self._clock.failed or "handle")
            self._troubles.append(replace(trouble, notes=(*trouble.notes, _FORGOTTEN)))
            return tuple(no_answer("asyncCommunication forgets a request whose task fails") for _ in requests)

    def _turns(self, requests: tuple[Request, ...], socket: encoding.ChunkSocket) -> Responses:
        """Call the handler again for the requests it has not finished: each response but the last is one piece.

        From its second turn on a request has its id and headers, and no content: `{}`.
        """
        last: dict[int, Response] = {}
        waiting = dict(enumerate(requests))
        while waiting:
            socket.places = tuple(waiting)
            answers = dict(zip(waiting, self._turn(tuple(waiting.values()), socket), strict=True))
            unfinished = {
                place: each for place, each in answers.items() if dict(each.headers).get(encoding.NEXT) == "true"
            }
            last |= {place: answer for place, answer in answers.items() if place not in unfinished}
            if unfinished:
                socket.pass_on(ResponseChunk(unfinished))
            waiting = {place: replace(waiting[place], parts=()) for place in unfinished}
        return tuple(last[place] for place in range(len(requests)))

    def _answers(self, requests: tuple[Request, ...], context: Context, socket: encoding.ChunkSocket) -> Responses:
        context.request_ids = {index: request.id for index, request in enumerate(requests)}
        context.request_processor = [processor_of(request) for request in requests]
        if self.mode.sequences is not None:
            for processor in context.request_processor:
                self.mode.sequences.enter(processor, context)
        context.cl_socket = socket
        if context.metrics is not None:
            context.metrics.request_ids = context.request_ids
        rows = [row_of(request, decode=self._decode) for request in requests]
        count = len(rows)  # of requests: the handler may remove rows, or add some
        # Awaited, a value that cannot be fails the prediction, as on the server.
        call = partial(_await, self._handle) if self.mode.asynchronous else self._handle
        start = time.perf_counter()
        try:
            returned = call(rows, context)
        except MemoryError as error:
            return self._failed(error, count, rows, 507, "Out of resources")
        except encoding.PredictionException as error:
            return self._failed(error, count, rows, *encoding.checked_error(error.error_code, error.message))
        except Exception as error:  # noqa: BLE001 - the worker's loop
            if "CUDA" in str(error):  # an exception whose text raises kills the real worker, and ours
                return self._failed(error, count, rows, 507, "Out of resources")
            return self._failed(error, count, rows, 503, "Prediction failed")
        return self._judge(returned, rows, count, start, context)

    def _judge(self, returned: object, rows: list[Row], count: int, start: float, context: Context) -> Responses:
        """Make responses of the handler's return value, or of the server's refusal of it."""
        if not isinstance(returned, list):
            what, hint = f"a {type(returned).__name__}", "Return a list, such as [result]."
            if inspect.iscoroutine(returned):
                returned.close()
                what, hint = "a coroutine", "Set asyncCommunication: true in the model config."
            message = f"handle returned {what}, not a list with one item per request"
            return self._refused(count, "Invalid model predict output", "invalid-output", message, hint)
        if len(returned) != len(rows):
            message = f"handle returned {len(returned)} items for a batch of {len(rows)}"
            hint = "Return exactly one item per row of `data`, in its order."
            envelope = loses_requests(self._handle) if len(returned) == 1 else None  # or the handler's own doing
            if envelope is not None:
                message = f"the envelope {envelope} passes on only the first of {len(rows)} requests"
                hint = "Remove batchSize from the model config, and omit --batch-size."
            return self._refused(count, "number of batch response mismatched", "batch-mismatch", message, hint)
        if context.metrics is not None:
            context.metrics.add_time("PredictionTime", round(milliseconds_since(start), 2))
        try:
            return self._encode(returned, count, context)
        except encoding.Unserialisable as error:
            hint = "Convert arrays and tensors with .tolist(), numpy scalars with .item() and sets with list()."
            if _holds_bytes(returned):
                hint = "Return bytes as a row's whole response, or encode them: base64.b64encode(value).decode()"
            notes = (f"returned: {[type(item).__name__ for item in returned[:8]]}",)
            message = f"the response cannot be written as JSON: {error}"
            return self._refused(count, encoding.UNSERIALISABLE, "unserialisable-output", message, hint, notes)

    def _encode(self, returned: list[Any], count: int, context: Context) -> Responses:
        """Encode every row, as the worker does before the frontend reads the first.

        Raises the refusal that breaks the message, otherwise the first that the frontend comes to.
        """
        answered: list[Response] = []
        refusals: list[encoding.FrontendRefusal] = []
        for index in range(count):
            try:
                item = returned[index]
            except IndexError:
                what = (
                    f"handle removed rows from `data` and returned {len(returned)} items, none for request {index + 1}"
                )
                raise RowsTaken(what) from None
            try:
                response = encoding.response_of(index, item, context)
            except encoding.FrontendRefusal as refusal:
                refusals.append(refusal)
            else:
                if not refusals:
                    answered.append(response)
        if refusals:
            broken = next((refusal for refusal in refusals if isinstance(refusal, encoding.BrokenFrame)), None)
            if broken is None:
                refusals[0].answered = tuple(answered)
            raise broken or refusals[0]
        encoding.check_sizes(answered, self._limit)
        return tuple(answered)

    def _failed(self, error: Exception, count: int, rows: list[Row], status: int, message: str) -> Responses:
        if self.on_failure is not None:
            self.on_failure(error)
        note_labels_gap(error, self._instance)
        stage = self._clock.failed or "handle"
        trouble = flatten(error, stage=stage, model_dir=self._model_dir, rows=rows, handler=self._instance)
        self._troubles.append(trouble)
        return tuple(error_response(status, message) for _ in range(count))

    def _refused(
        self, count: int, answer: str, kind: str, message: str, hint: str, notes: tuple[str, ...] = ()
    ) -> Responses:
        self._troubles.append(Trouble(kind=kind, stage="respond", message=message, hint=hint, notes=notes))
        return tuple(error_response(503, answer) for _ in range(count))


def _await(handle: Handle, rows: list[Row], context: Context) -> Any:  # Any: as returned
    """Await a call in this thread's event loop: the one that a handler created in its initialize, or the first."""

    async def call() -> Any:  # Any: as above
        return await handle(rows, context)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the server creates one by getting it
            loop = asyncio.get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop.run_until_complete(call())


def _holds_bytes(value: object, depth: int = 3) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, bytes | bytearray) or (depth > 0 and any(_holds_bytes(item, depth - 1) for item in inner))
