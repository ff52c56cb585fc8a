"""The parent's conversation with one worker: load a model, send batches ahead, say what became of each."""

import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Self

from msgspec import UNSET, Struct
from msgspec.structs import replace

from marpack.errors import DeviceUnavailableError, HandlerError, MarpackError, WorkerError
from marpack.json_text import legible
from marpack.protocol.messages import (
    MAX_MESSAGE,
    UNAVAILABLE,
    UNSEEN,
    Answered,
    Dying,
    ForeignBytesError,
    FromWorker,
    Load,
    Loaded,
    LoadFailed,
    ModelOutput,
    Pipe,
    Predict,
    Touched,
    Trouble,
)
from marpack.runner.process import LogPipe, WorkerProcess, Zygote
from marpack.torchserve.http import Request, Response, ResponseChunk, death_response
from marpack.torchserve.response import assemble

_NO_SCRIBBLING = "let the handler, and the libraries it uses, write to no descriptor that they did not open"


class BatchResult(Struct, frozen=True, kw_only=True, gc=False):
    """What became of one batch."""

    responses: tuple[Response, ...]
    stages: dict[str, float] = {}  # ms: preprocess, inference, postprocess, handle
    troubles: tuple[Trouble, ...] = ()
    logs: str = ""
    metrics: tuple[str, ...] = ()  # lines as in `logs`, sent with the message
    seconds: float = 0.0  # from the worker's turning to the batch to its answer
    died: bool = False  # the worker is gone; start another before the next batch
    outputs: frozenset[ModelOutput] = frozenset()  # of the model, as far as they were seen
    touched: tuple[Touched, ...] = ()  # for the first time


class LoadError(HandlerError):
    """The handler could not be loaded: `trouble` holds its own traceback, `status` is what clients get."""

    code = "load"

    def __init__(self, failure: LoadFailed, logs: str, *, where: str) -> None:
        trouble = failure.trouble
        super().__init__(
            f"the handler failed in {trouble.stage}: {trouble.kind}: {trouble.message}", where=where, hint=trouble.hint
        )
        self.trouble = trouble
        self.status, self.touched = failure.status, failure.touched
        self.logs = logs


def load_error(failure: LoadFailed, logs: str, load: Load) -> MarpackError:
    """Return the error for a model that a worker could not load, or for a device that it does not have."""
    trouble = failure.trouble
    if trouble.kind == UNAVAILABLE:
        return DeviceUnavailableError(trouble.message, where=f"--device {load.device}", hint=trouble.hint)
    return LoadError(failure, logs, where=load.model_dir)


class Worker:
    """One child process with one model, initialised once; answers come in the order of the batches."""

    def __init__(self, process: WorkerProcess) -> None:
        process.socket.setblocking(False)
        self.process = process
        self.loaded: Loaded | None = None
        self.logs = ""  # printed while loading
        self.over = False  # nothing more will come from it
        self._load = Load(model_dir="")
        self._pipe = Pipe(process.socket, FromWorker, MAX_MESSAGE)
        self._max_response_size, self._is_traced = 0, False  # as the model is loaded
        self._logs = LogPipe(process.logs, process.marker)
        self._waiting: deque[tuple[Request, ...]] = deque()
        self.since = 0.0  # when the worker turned to the batch it works on, by the monotonic clock
        self.on_piece: Callable[[ResponseChunk], None] = lambda _: None  # is called with each piece
        self._heard = 0.0  # when a piece of that batch came last
        self._pieces: list[ResponseChunk] = []
        self._said: FromWorker | None = None  # about loading
        self._dying: Dying | None = None
        self._foreign: ForeignBytesError | None = None  # somebody else wrote into the socket
        self._watched = {self._pipe.fileno(), self._logs.fileno()} | ({process.exit} if process.exit else set())

    @classmethod
    def spawn(
        cls,
        *,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        max_memory: int | None = None,
        zygote: Zygote | None = None,
        **how: bool,
    ) -> Self:
        """Start the child, as `WorkerProcess.start` does; it then waits for a model: its imports overlap with ours."""
        return cls(WorkerProcess.start(python, environment=environment, max_memory=max_memory, zygote=zygote, **how))

    def load(self, load: Load, *, timeout: float | None = None) -> Loaded:
        """Load a model, once; a worker that fails to is ended.

        Args:
            load: What to load.
            timeout: Seconds that loading may take; None: no bound.

        Raises:
            LoadError: the handler could not be imported, constructed or initialised.
            DeviceUnavailableError: torch cannot use the device that was requested.
            WorkerError: the process died or timed out before it could say so.

        """
        self.begin(load)
        return self.finish(timeout=timeout)

    def begin(self, load: Load) -> None:
        """Ask for a model to be loaded, which `finish` waits for.

        Raises WorkerError for a folder that no message can name.
        """
        if legible(load.model_dir) != load.model_dir:
            hint = "rename it, or set MARPACK_CACHE_DIR to one whose name is"
            raise WorkerError("the model's folder has a name that is not UTF-8", where=load.model_dir, hint=hint)
        self.since = time.monotonic()
        self._load = load
        self._max_response_size, self._is_traced = load.max_response_size, load.trace
        self._pipe.post(load)
        self._pipe.flush()

    def finish(self, *, timeout: float | None = None) -> Loaded:
        """Wait for what `begin` asked for; raises as `load` does, with WorkerError once its time is up."""
        while not self.settled and wait((self,), timeout):
            pass
        message, self._said = self._said, None
        with ExitStack() as undo:
            undo.callback(self.kill)
            self._logs.drain()
            self.logs = self._logs.take()
            if isinstance(message, LoadFailed):
                raise load_error(message, self.logs, self._load)
            if not isinstance(message, Loaded):
                hint = _NO_SCRIBBLING if self._foreign else _last_words(self.logs)
                raise WorkerError(
                    f"the worker {self._ended()} while loading the model", where=self._load.model_dir, hint=hint
                )
            undo.pop_all()
        if message.pid is not UNSET:
            self.process.handler_pid = message.pid
        self.loaded = message = replace(message, pid=UNSET)
        return message

    @property
    def settled(self) -> bool:
        """Whether loading has come to an end, which `finish` tells without waiting."""
        self._said = self._said or self._arrived()
        return self.over or self._said is not None

    def _arrived(self) -> FromWorker | None:
        """Return the next message; other bytes, and a message that fits no batch, end the worker."""
        if self._foreign is not None:
            return None
        try:
            message: FromWorker | None = self._pipe.arrived()
            if isinstance(message, Answered | Dying):
                self._check_count(message)
        except ForeignBytesError as error:
            self._foreign, self.over = error, True
            return None
        return message

    def _check_count(self, message: Answered | Dying) -> None:
        most = len(self._waiting[0]) if self._waiting else 0
        fits = len(message.responses) == most if isinstance(message, Answered) else len(message.responses) <= most
        if not fits:
            raise ForeignBytesError(f"{len(message.responses)} answers were written, {most} were asked for")

    def late(self, timeout: float) -> bool:
        """Return whether the worker has spent more than `timeout` seconds on the batch at hand, or its latest piece."""
        return self.seconds_left(timeout) <= 0.0

    def seconds_left(self, timeout: float) -> float:
        """Return how many of `timeout` seconds the worker still has for its next answer, or the next piece of it."""
        return max(self.since, self._heard) + timeout - time.monotonic()

    def submit(self, requests: tuple[Request, ...]) -> None:
        """Send one batch, ahead of the answers to those before it."""
        is_idle = not self._waiting
        self.post(requests)
        if is_idle:  # it begins at once, for a busy one several are sent together
            self._pipe.flush()

    def post(self, requests: tuple[Request, ...]) -> None:
        """Queue one batch, to be sent by `flush` ahead of the answers to those before it."""
        self._pipe.limit = max(self._pipe.limit or 0, MAX_MESSAGE + len(requests) * self._max_response_size)
        self._pipe.post(Predict(requests))
        if not self._waiting:
            self.since = time.monotonic()
        self._waiting.append(requests)

    def flush(self) -> bool:
        """Send what waits to be sent, as far as it can be without waiting; True once all of it is."""
        return self._pipe.flush()

    def fileno(self) -> int:
        """Return the descriptor that messages come and go by."""
        return self._pipe.fileno()

    def log_fileno(self) -> int:
        """Return the descriptor that prints come by."""
        return self._logs.fileno()

    def interests(self) -> dict[int, int]:
        """Return the descriptors to poll, each with the events to poll for."""
        interests = dict.fromkeys(self._watched, select.POLLIN)
        if not self._pipe.flush():
            interests[self._pipe.fileno()] |= select.POLLOUT
        return interests

    def notice(self, ready: Mapping[int, int]) -> None:
        """Handle the result of polling: read messages and prints, and send queued messages."""
        if self._logs.fileno() in ready and not self._logs.drain():
            self._watched.discard(self._logs.fileno())  # closed by the author: it would be ready for ever
        if self._pipe.fileno() in ready:
            readable = ready[self._pipe.fileno()] & ~select.POLLOUT
            self.over = bool(readable) and not self._pipe.fill()
        elif self.process.exit in ready:
            self.over = True

    def outcome(self) -> BatchResult | None:
        """Return what became of the oldest batch sent, if its answer has arrived."""
        while (message := self._arrived()) is not None:
            if isinstance(message, Answered):
                return self._answered(message)
            if isinstance(message, ResponseChunk):
                self._pieces.append(message)
                self._heard = time.monotonic()
                self.on_piece(message)
            if isinstance(message, Dying):
                self._dying = message
        return None

    def _answered(self, message: Answered) -> BatchResult:
        self._waiting.popleft()
        if not self._logs.complete:
            self._logs.drain()
        self._pieces.clear()
        now = time.monotonic()
        seconds, self.since = now - self.since, now
        return BatchResult(
            responses=message.responses,
            stages=message.stages,
            troubles=message.troubles,
            logs=self._logs.take(),
            metrics=message.metrics,
            seconds=seconds,
            outputs=message.outputs,
            touched=message.touched,
        )

    def give_up(self, *, timed_out: bool = False) -> BatchResult:
        """End a worker that died or took too long; return what its batch's clients get. Later batches are lost."""
        requests = self._waiting.popleft()
        # Only a signal from outside counts: one that we had to kill did not run out of memory.
        by_itself = not timed_out and self.process.ended(within=0.5) and self._dying is None
        lost = self.loaded is not None and self.loaded.loses_answers
        last = death_response(self.process.signal if by_itself else None, lost=lost)
        trouble = self._dying.trouble if self._dying else self._why(timed_out=timed_out, lost=lost)
        answered = self._dying.responses if self._dying else ()
        self._logs.drain()
        logs = self._logs.take()
        self.kill()
        return BatchResult(
            responses=(
                *answered,
                *(assemble(self._pieces, index, last) for index in range(len(answered), len(requests))),
            ),
            troubles=(trouble,),
            logs=logs,
            seconds=time.monotonic() - self.since,
            died=True,
            touched=self._dying.touched if self._dying else (UNSEEN,) * self._is_traced,
        )

    def _why(self, *, timed_out: bool, lost: bool) -> Trouble:
        if timed_out:
            hint = "give it more time with --timeout, or look where it hangs with --in-process"
            if lost:
                hint = (
                    "under asyncCommunication the server itself would wait for ever: give it more time with --timeout"
                )
            message = "the handler did not answer in time and its worker was killed"
            return Trouble(kind="timeout", message=message, stage="handle", hint=hint)
        if self._foreign is not None:
            message = f"the worker {self._ended()}"
            return Trouble(kind="foreign-bytes", message=message, stage="handle", hint=_NO_SCRIBBLING)
        memory = " (the system may be out of memory)" if self.process.signal == signal.SIGKILL else ""
        message = f"the worker {self._ended()}{memory}"
        return Trouble(kind="worker-died", message=message, stage="handle")

    def _ended(self) -> str:
        """Return the end of a sentence that begins with "the worker"."""
        if self._foreign is not None:
            return f"was ended, its socket is of no more use: {self._foreign}"
        return self.process.how_it_ended()

    def close(self) -> None:
        """End the worker: politely, then not."""
        self.over = True
        self.process.close()
        self._logs.close()

    def kill(self) -> None:
        """End the worker and everything it started, at once."""
        self.over = True
        self.process.kill()
        self._logs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait(workers: tuple[Worker, ...], timeout: float | None) -> bool:
    """Wait until one of some workers has something to tell, and take it in; False when a worker's time is up.

    Args:
        workers: Those to listen to.
        timeout: Seconds that a worker may spend on one batch; None: no bound.
    """
    if any(worker.over for worker in workers):
        return True
    poll = select.poll()
    for worker in workers:
        for descriptor, events in worker.interests().items():
            poll.register(descriptor, events)
    left = None
    if timeout is not None:
        left = max(0.0, min((worker.seconds_left(timeout) for worker in workers), default=0.0)) * 1000
    ready = dict(poll.poll(left))
    for worker in workers:
        worker.notice(ready)
    return bool(ready)


def _last_words(logs: str) -> str | None:
    lines = logs.strip().splitlines()
    return f"its last words: {lines[-1]}" if lines else None
