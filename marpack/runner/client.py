"""The parent's conversation with one worker: load a model, send batches ahead, receive results and prints."""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, Self

from msgspec import UNSET, Struct
from msgspec.structs import replace

from marpack.errors import DeviceUnavailableError, HandlerError, MarpackError, WorkerError, shortened
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
from marpack.runner.process import WorkerProcess
from marpack.torchserve.http import Request, Response, ResponseChunk, death_response
from marpack.torchserve.response import assemble

_FOREIGN_HINT = "Write only to file descriptors that the handler, or a library that it uses, has opened."
_PIECE = 1 << 16  # bytes read at once
_MAX_BYTES = 1 << 20  # bytes kept per batch: its beginning and its end


class BatchResult(Struct, frozen=True, kw_only=True, gc=False):
    """The result of one batch."""

    responses: tuple[Response, ...]
    stages: dict[str, float] = {}  # ms: preprocess, inference, postprocess, handle
    troubles: tuple[Trouble, ...] = ()
    logs: str = ""
    metrics: tuple[str, ...] = ()  # lines as in `logs`, sent with the message
    seconds: float = 0.0  # that the worker spent on the batch
    died: bool = False  # the worker ended; start another before the next batch
    outputs: frozenset[ModelOutput] = frozenset()  # of the model, reported for the first time
    touched: tuple[Touched, ...] = ()  # for the first time


class LoadError(HandlerError):
    """The handler could not be loaded: `trouble` has its own traceback, `status` is what clients get."""

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


class LogPipe:
    """The reading end of a worker's stdout and stderr; a marker ends the prints of loading and of each batch."""

    def __init__(self, descriptor: int, marker: bytes) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._marker = marker
        self._open = True
        self._kept = bytearray()
        self._dropped = 0

    def drain(self) -> bool:
        """Read all prints so far; False if nothing more can follow.

        The prints before a response are in the pipe when the response arrives: a write returns only after its bytes are
        in the pipe.
        """
        while self._open:
            try:
                piece = os.read(self.descriptor, _PIECE)
            except BlockingIOError:
                return True
            except OSError:
                piece = b""
            if not piece:
                return False
            self._kept += piece
            if len(self._kept) > 2 * _MAX_BYTES:
                # Only the current batch can have printed too much: the prints of those before it were taken.
                found = self._kept.rfind(self._marker)
                first = (found + len(self._marker) if found >= 0 else 0) + _MAX_BYTES // 2
                last = len(self._kept) - _MAX_BYTES // 2
                self._dropped += max(0, last - first)
                del self._kept[first : max(first, last)]
            if len(piece) < _PIECE:  # there is no more
                return True
        return False

    @property
    def complete(self) -> bool:
        """Whether all of the oldest batch's prints have been read."""
        return self._marker in self._kept

    def take(self) -> str:
        """Return the prints up to the next marker (all without a marker) as text."""
        if self._kept.startswith(self._marker):  # nothing was printed, as nearly always
            del self._kept[: len(self._marker)]
            return ""
        end = self._kept.find(self._marker)
        piece = bytes(self._kept[:end]) if end >= 0 else bytes(self._kept)
        del self._kept[: len(piece) + (len(self._marker) if end >= 0 else 0)]
        if not self._dropped or len(piece) < _MAX_BYTES:
            return piece.decode("utf-8", "replace")
        first, last = (half.decode("utf-8", "replace") for half in (piece[: _MAX_BYTES // 2], piece[_MAX_BYTES // 2 :]))
        dropped, self._dropped = self._dropped, 0
        return f"{first}\n… {dropped} bytes of output left out …\n{last}"

    def close(self) -> None:
        """Close this end."""
        if self._open:
            self._open = False
            with suppress(OSError):
                os.close(self.descriptor)


class Worker(AbstractContextManager["Worker"]):
    """One child process with one model, initialized once; results come in the order of the batches."""

    def __init__(self, process: WorkerProcess) -> None:
        process.socket.setblocking(False)
        self.process = process
        self.loaded: Loaded | None = None
        self.logs = ""  # printed while loading
        self.over = False  # nothing more will come from it
        self.since = 0.0  # when the worker began with its current batch, by the monotonic clock
        self.on_piece: Callable[[ResponseChunk], None] = lambda _: None  # is called with each piece
        self._load = Load(model_dir="")
        self._pipe = Pipe(process.socket, FromWorker, MAX_MESSAGE)
        self._logs = LogPipe(process.logs, process.marker)
        self._waiting: deque[tuple[Request, ...]] = deque()
        self._last_piece = 0.0  # when a piece of the current batch came last
        self._pieces: list[ResponseChunk] = []
        self._load_message: FromWorker | None = None
        self._dying: Dying | None = None
        self._foreign: ForeignBytesError | None = None  # other code has written into the socket
        self._watched = {self.fileno(), self.log_fileno()} | ({process.exit} if process.exit else set())

    @classmethod
    def spawn(cls, **how: Any) -> Self:  # Any: the arguments of WorkerProcess.start
        """Start a child, which waits for a model while it imports; see `WorkerProcess.start`."""
        return cls(WorkerProcess.start(**how))

    def load(self, load: Load, *, timeout: float | None = None) -> Loaded:
        """Load a model, once, within `timeout` seconds; a worker that fails to is ended.

        Raises:
            LoadError: the handler could not be imported, constructed or initialized.
            DeviceUnavailableError: torch cannot use the device that was requested.
            WorkerError: the process died or timed out first.

        """
        self.begin(load)
        return self.finish(timeout=timeout)

    def begin(self, load: Load) -> None:
        """Begin to load a model; `finish` waits for it. Raises WorkerError for a folder that no message can name."""
        if legible(load.model_dir) != load.model_dir:
            hint = "Rename it, or set MARPACK_CACHE_DIR to a folder whose name is UTF-8."
            raise WorkerError("the model's folder has a name that is not UTF-8", where=load.model_dir, hint=hint)
        self.since = time.monotonic()
        self._load = load
        self._pipe.post(load)
        self._pipe.flush()

    def finish(self, *, timeout: float | None = None) -> Loaded:
        """Wait until the model is loaded; raises as `load` does."""
        while not self.settled and wait((self,), timeout):
            pass
        message, self._load_message = self._load_message, None
        with ExitStack() as undo:
            undo.callback(self.kill)
            self._logs.drain()
            self.logs = self._logs.take()
            if isinstance(message, LoadFailed):
                raise load_error(message, self.logs, self._load)
            if not isinstance(message, Loaded):
                last = self.logs.strip().rpartition("\n")[2]
                hint = _FOREIGN_HINT if self._foreign else None
                what = f"the worker {self._describe_end()} while loading the model"
                what += f": {shortened(last)}" if last and not self._foreign else ""
                raise WorkerError(what, where=self._load.model_dir, hint=hint)
            undo.pop_all()
        if message.pid is not UNSET:
            self.process.handler_pid = message.pid
        self.loaded = message = replace(message, pid=UNSET)
        return message

    @property
    def settled(self) -> bool:
        """Whether loading has ended, so that `finish` does not wait."""
        self._load_message = self._load_message or self._arrived()
        return self.over or self._load_message is not None

    def _arrived(self) -> FromWorker | None:
        """Return the next message; other bytes, and a message that fits no batch, end the worker."""
        if self._foreign is not None:
            return None
        try:
            message: FromWorker | None = self._pipe.arrived()
            if isinstance(message, Answered | Dying):
                count, most = len(message.responses), len(self._waiting[0]) if self._waiting else 0
                if count > most or (count < most and isinstance(message, Answered)):
                    raise ForeignBytesError(f"{count} responses were written to a batch of {most}")
        except ForeignBytesError as error:
            self._foreign, self.over = error, True
            return None
        return message

    def seconds_left(self, timeout: float) -> float:
        """Return how many of `timeout` seconds the worker still has for its next response, or the next piece of it."""
        return max(self.since, self._last_piece) + timeout - time.monotonic()

    def submit(self, requests: tuple[Request, ...]) -> None:
        """Send one batch, before the results of earlier ones have arrived."""
        is_idle = not self._waiting
        self.post(requests)
        if is_idle:  # it begins at once; a busy worker gets several batches together
            self._pipe.flush()

    def post(self, requests: tuple[Request, ...]) -> None:
        """Queue one batch, to be sent by `flush`."""
        self._pipe.limit = max(self._pipe.limit or 0, MAX_MESSAGE + len(requests) * self._load.max_response_size)
        self._pipe.post(Predict(requests))
        if not self._waiting:
            self.since = time.monotonic()
        self._waiting.append(requests)

    def flush(self) -> bool:
        """Send queued messages, as far as possible without waiting; True once all of it is sent."""
        return self._pipe.flush()

    def fileno(self) -> int:
        """Return the descriptor of messages."""
        return self._pipe.fileno()

    def log_fileno(self) -> int:
        """Return the descriptor of prints."""
        return self._logs.descriptor

    def interests(self) -> dict[int, int]:
        """Return the descriptors to poll, each with the events to poll for."""
        interests = dict.fromkeys(self._watched, select.POLLIN)
        if not self._pipe.flush():
            interests[self._pipe.fileno()] |= select.POLLOUT
        return interests

    def notice(self, ready: Mapping[int, int]) -> None:
        """Handle the result of polling: read messages and prints, and send queued messages."""
        if self._logs.descriptor in ready and not self._logs.drain():
            self._watched.discard(self._logs.descriptor)  # closed by the author: it would always be ready
        if self._pipe.fileno() in ready:
            readable = ready[self._pipe.fileno()] & ~select.POLLOUT
            self.over = bool(readable) and not self._pipe.fill()
        elif self.process.exit in ready:
            self.over = True

    def outcome(self) -> BatchResult | None:
        """Return the result of the oldest batch, if it has arrived."""
        while (message := self._arrived()) is not None:
            if isinstance(message, ResponseChunk):
                self._pieces.append(message)
                self._last_piece = time.monotonic()
                self.on_piece(message)
            elif isinstance(message, Dying):
                self._dying = message
            elif isinstance(message, Answered):
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
        return None

    def abort_batch(self, *, timed_out: bool = False) -> BatchResult:
        """End a worker that died or took too long; return the result of its batch. Later batches are lost."""
        requests, dying = self._waiting.popleft(), self._dying
        # Only a signal from outside counts: a worker that marpack kills did not run out of memory.
        by_itself = not timed_out and self.process.ended(within=0.5) and dying is None
        loses_answers = self.loaded is not None and self.loaded.loses_answers
        last = death_response(self.process.signal if by_itself else None, lost=loses_answers)
        if dying is not None:
            trouble = dying.trouble
        elif timed_out:
            hint = "Give it more time with --timeout, or find the line where it hangs with --in-process."
            if loses_answers:
                hint = "Give it more time with --timeout. Under asyncCommunication the server waits without end."
            message = "the handler did not respond in time and its worker was killed"
            trouble = Trouble(kind="timeout", message=message, stage="handle", hint=hint)
        else:
            message = f"the worker {self._describe_end()}"
            if self._foreign is not None:
                trouble = Trouble(kind="foreign-bytes", message=message, stage="handle", hint=_FOREIGN_HINT)
            else:
                memory = " (the system may be out of memory)" if self.process.signal == signal.SIGKILL else ""
                trouble = Trouble(kind="worker-died", message=f"{message}{memory}", stage="handle")
        answered = dying.responses if dying is not None else ()
        self._logs.drain()
        logs = self._logs.take()
        self.kill()
        rest = [assemble(self._pieces, index, last) for index in range(len(answered), len(requests))]
        return BatchResult(
            responses=(*answered, *rest),
            troubles=(trouble,),
            logs=logs,
            seconds=time.monotonic() - self.since,
            died=True,
            touched=dying.touched if dying is not None else (UNSEEN,) * self._load.trace,
        )

    def _describe_end(self) -> str:
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

    def __exit__(self, *_: object) -> None:
        self.close()


def wait(workers: tuple[Worker, ...], timeout: float | None) -> bool:
    """Wait until a worker sends something or ends, and read it.

    Returns False when a worker has spent `timeout` seconds on one batch; None: no bound.
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
