"""The parent's side of a worker: spawn it, load a model, feed it batches, and say what became of each."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Self

from msgspec import Struct

from marpack.errors import HandlerError, WorkerError
from marpack.runtime.frontend import death_response
from marpack.runtime.messages import (
    Answered,
    Dying,
    FromWorker,
    Load,
    Loaded,
    LoadFailed,
    Piece,
    Predict,
    Request,
    Response,
    Trouble,
)
from marpack.runtime.streaming import joined
from marpack.worker.logs import LogPipe
from marpack.worker.pipe import Pipe

_GRACE = 2.0  # seconds a worker is given to end by itself


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of one batch."""

    responses: tuple[Response, ...]
    stages: dict[str, float] = {}  # ms: preprocess, inference, postprocess, handle
    troubles: tuple[Trouble, ...] = ()
    logs: str = ""
    seconds: float = 0.0  # from sending the batch to having its answer
    died: bool = False  # the worker is gone; start another before the next batch


class LoadError(HandlerError):
    """The handler could not be loaded: `trouble` holds its own traceback, `status` is what clients get."""

    def __init__(self, failure: LoadFailed, logs: str, *, where: str) -> None:
        trouble = failure.trouble
        super().__init__(
            f"the handler failed in {trouble.stage}: {trouble.kind}: {trouble.message}", where=where, hint=trouble.hint
        )
        self.trouble = trouble
        self.status = failure.status
        self.logs = logs


class Worker:
    """One child process with one model, initialised once."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: Pipe, logs: LogPipe) -> None:
        self._process = process
        self._pipe = pipe
        self._logs = logs
        self._exit = _exit_descriptor(process)
        self._poll = select.poll()
        for descriptor in (pipe.fileno(), logs.fileno(), self._exit):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)
        self.loaded: Loaded | None = None
        self.logs = ""

    @classmethod
    def start(
        cls,
        load: Load,
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float | None = None,
        python: str = sys.executable,
    ) -> Self:
        """Spawn a worker and load a model in it.

        Args:
            load: What to load.
            environment: The child's environment; None: this process's.
            timeout: Seconds that loading may take; None: no bound.
            python: The interpreter, which must have marpack installed.

        Raises:
            LoadError: the handler could not be imported, constructed or initialised.
            WorkerError: the process died or timed out before it could say so.

        """
        worker = cls.spawn(environment=environment, python=python)
        try:
            worker.load(load, timeout=timeout)
        except BaseException:
            worker.kill()
            raise
        return worker

    @classmethod
    def spawn(cls, *, environment: Mapping[str, str] | None = None, python: str = sys.executable) -> Self:
        """Start the child, which then waits for a model: its imports overlap with the caller's own work."""
        ours, theirs = socket.socketpair()
        logs, log_end = os.pipe()
        # -P: the folder we are in must not shadow our own imports; the model folder comes onto the path later.
        command = [python, "-P", "-m", "marpack.worker", str(theirs.fileno())]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=log_end,
                stderr=log_end,
                pass_fds=(theirs.fileno(),),
                env=None if environment is None else dict(environment),
                start_new_session=True,  # Ctrl-C is the parent's to handle; stray children end with the group
            )
        except OSError as error:
            ours.close()
            os.close(logs)
            raise WorkerError(f"the worker process could not be started: {error}", where=python) from error
        finally:
            theirs.close()
            os.close(log_end)
        return cls(process, Pipe(ours, FromWorker), LogPipe(logs))

    def load(self, load: Load, *, timeout: float | None = None) -> Loaded:
        """Load a model, once.

        Raises LoadError and WorkerError, as `start`.
        """
        self._send(load)
        message = self._next(_deadline(timeout))
        self.logs = self._logs.take()
        if isinstance(message, Loaded):
            self.loaded = message
            return message
        if isinstance(message, LoadFailed):
            raise LoadError(message, self.logs, where=load.model_dir)
        raise WorkerError(
            f"the worker {self._how_it_ended()} while loading the model",
            where=load.model_dir,
            hint=_tail(self.logs),
        )

    def predict(self, requests: tuple[Request, ...], *, timeout: float | None = None) -> Outcome:
        """Have one batch handled; a worker that dies or exceeds `timeout` seconds costs this batch only."""
        start = time.perf_counter()
        deadline = _deadline(timeout)
        self._send(Predict(requests))
        pieces: list[Piece] = []
        dying: Dying | None = None
        while (message := self._next(deadline)) is not None:
            if isinstance(message, Answered):
                return self._answered(message, start)
            if isinstance(message, Piece):
                pieces.append(message)
            if isinstance(message, Dying):
                dying = message
        return self._dead(requests, pieces, dying, start)

    def _answered(self, message: Answered, start: float) -> Outcome:
        return Outcome(
            responses=message.responses,
            stages=message.stages,
            troubles=message.troubles,
            logs=self._logs.take(),
            seconds=time.perf_counter() - start,
        )

    def _dead(self, requests: tuple[Request, ...], pieces: list[Piece], dying: Dying | None, start: float) -> Outcome:
        timed_out = self._process.poll() is None and dying is None and not self._ended_by_itself()
        # Only a signal from outside counts: one that had to be killed by us did not run out of memory.
        last = death_response(None if timed_out or dying else self._signal())
        self.kill()
        trouble = dying.trouble if dying else self._why_it_ended(timed_out=timed_out)
        return Outcome(
            responses=tuple(joined(pieces, index, last) for index in range(len(requests))),
            troubles=(trouble,),
            logs=self._logs.take(),
            seconds=time.perf_counter() - start,
            died=True,
        )

    def _send(self, message: object) -> None:
        # A worker that is gone is noticed, with its reason, by the read that follows.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send(message)

    def _next(self, deadline: float | None) -> FromWorker | None:
        """Wait for a message, keeping the log pipe drained; None when the worker ended or time is up."""
        while True:
            message: FromWorker | None = self._pipe.buffered()
            if message is not None:
                self._logs.drain()
                return message
            ready = dict(self._poll.poll(_milliseconds(deadline)))
            if self._logs.fileno() in ready and not self._logs.drain():
                self._poll.unregister(self._logs.fileno())  # closed by the author: it would be ready for ever
            if self._pipe.fileno() in ready:
                if not self._filled():
                    return None
            elif self._exit in ready or not ready:
                return None

    def _filled(self) -> bool:
        try:
            return self._pipe.fill()
        except ConnectionResetError:
            return False

    def _ended_by_itself(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.05)
        return self._process.returncode is not None

    def _signal(self) -> int | None:
        code = self._process.returncode
        return -code if code is not None and code < 0 else None

    def _how_it_ended(self) -> str:
        if not self._ended_by_itself():
            return "did not answer in time"
        number = self._signal()
        if number is None:
            return f"ended with exit code {self._process.returncode}"
        return f"was killed by {signal.Signals(number).name}"

    def _why_it_ended(self, *, timed_out: bool) -> Trouble:
        if timed_out:
            return Trouble(
                kind="timeout",
                message="the handler did not answer in time and its worker was killed",
                stage="handle",
                hint="give it more time with --timeout, or look where it hangs with --in-process",
            )
        memory = " (the system may be out of memory)" if self._signal() == signal.SIGKILL else ""
        return Trouble(kind="worker-died", message=f"the worker {self._how_it_ended()}{memory}", stage="handle")

    def close(self) -> None:
        """End the worker: politely, then not."""
        self._pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        self.kill()

    def kill(self) -> None:
        """End the worker and everything it started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._logs.drain()
        self._release()

    def _release(self) -> None:
        self._pipe.close()
        if self._exit is not None:
            os.close(self._exit)
            self._exit = None
        self._logs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _exit_descriptor(process: subprocess.Popen[bytes]) -> int | None:
    """Return a descriptor that becomes readable when the process ends, where the system has them."""
    # A child of the handler's may hold the socket open after the worker is gone: its closing is no proof of life.
    try:
        return os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return None


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _milliseconds(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000


def _tail(logs: str) -> str | None:
    lines = logs.strip().splitlines()
    return f"its last words: {lines[-1]}" if lines else None
