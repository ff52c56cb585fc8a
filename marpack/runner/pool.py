"""Workers that share a stream of batches: results in order, a dead worker replaced, its other batches not lost.

Another kind of pool takes an iterator of batches, and yields their results in order.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import ClosedError
from marpack.protocol.messages import Load, Loaded, ModelOutput, Touched
from marpack.runner.client import BatchResult, Worker, wait
from marpack.runner.process import Zygote, uses_torch
from marpack.torchserve.http import Request
from marpack.torchserve.model_config import seconds_of

Batch = tuple[Request, ...]

_AHEAD_SLOW = 2  # batches sent to a worker before their results: the next one waits when the worker is done
_AHEAD_FAST = 128  # for handlers that respond sooner than the parent can read
_FAST = 0.002  # seconds per batch
_PAUSE = 0.002  # seconds after which several results are read together, which leaves the cores to the model
_AHEAD_BYTES = 32 << 20  # sent ahead to one worker at most


class Pool(Protocol):
    """Computes the results of batches."""

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Yield the result of each batch, in order."""


class ModelPool(Pool, Protocol):
    """A pool that loads one model and keeps the run's figures."""

    restarts: int
    peak_memory: int  # bytes, the most that any worker has had resident; known when the pool is closed
    load_logs: str  # printed while loading
    touched: set[Touched]  # by any worker, if that is traced
    on_pause: Callable[[], None]  # called before waiting for results

    def start(self) -> Loaded:
        """Load the model; raises LoadError and WorkerError."""

    def resident_memory(self) -> int | None:
        """Return the bytes that the first worker has resident now, if they are known."""

    def close(self) -> None:
        """End the workers, giving them time."""

    def kill(self) -> None:
        """End the workers at once."""


class PoolSettings(Struct, frozen=True, kw_only=True):
    """How a pool's workers are kept."""

    workers: int = 1
    timeout: float | None = None  # seconds a batch may take; None: no bound
    startup_timeout: float | None = None  # seconds that loading may take; None: no bound
    max_memory: int | None = None  # bytes of data a worker may have
    environment: Mapping[str, str] | None = None  # of the workers; None: this process's
    python: str = sys.executable  # the workers' interpreter, which must have marpack
    launch: Callable[[], Worker] | None = None  # returns a worker that waits for a model, in place of a new one
    offline: bool = False  # each leaves the network, if this user may do that

    def as_served(self, config: Mapping[str, Any]) -> Self:
        """Return the same with the server's bounds where there are none: the model config's, otherwise its own."""
        return replace(
            self,
            timeout=self.timeout or seconds_of(config, "responseTimeout"),
            startup_timeout=self.startup_timeout or seconds_of(config, "startupTimeout"),
        )

    def spawn(self, zygote: Zygote | None = None) -> Worker:
        """Start a worker, which then waits for a model; a zygote forks it, if it can."""
        if self.launch is not None:
            return self.launch()
        memory, offline = self.max_memory, self.offline
        return Worker.spawn(
            environment=self.environment, python=self.python, max_memory=memory, offline=offline, zygote=zygote
        )

    def zygote(self, folder: str) -> Zygote | None:
        """Return what can fork workers for a model in a folder, not started yet; None if new processes load faster."""
        is_ours = self.launch is None and self.python == sys.executable
        return Zygote(self.environment) if is_ours and uses_torch(folder) else None


@contextmanager
def keep_spare_workers(spawn: Callable[[], Worker], count: int) -> Iterator[Callable[[], Worker]]:
    """Keep workers that import torch before they have a model; yield a function that takes one and starts another."""
    spares = deque(spawn() for _ in range(count))

    def take() -> Worker:
        spares.append(spawn())
        return spares.popleft()

    try:
        yield take
    finally:
        for spare in spares:
            spare.kill()


class LocalPool(AbstractContextManager["LocalPool"]):
    """Worker processes on this machine."""

    def __init__(
        self,
        load: Load,
        settings: PoolSettings,
        *,
        first: Worker | None = None,  # spawned already, without a model
        folder: Callable[[], Path] | None = None,  # returns the model's folder, with the files that handlers removed
        zygote: Zygote | None = None,  # forks the workers, started already; the pool closes it
    ) -> None:
        self._load = load
        self._settings = settings
        self._first = first
        self._folder = folder
        self._zygote = zygote
        self._workers: list[_WorkerSlot] = []
        self._number = 0  # of the batch sent last
        self._done: dict[int, BatchResult] = {}  # by number, not yet yielded
        self._unwanted: set[int] = set()  # batches that were sent for a stream that is closed now
        self._closed = False
        self.restarts = 0
        self.peak_memory = 0  # bytes, of any worker that this pool ended
        self.loads: list[Loaded] = []  # one for each start of a worker
        self.on_pause: Callable[[], None] = lambda: None
        self.load_logs = ""  # of the first worker
        self.outputs: frozenset[ModelOutput] = frozenset()  # of the model, seen so far
        self.touched: set[Touched] = set()  # by any worker, if that is traced

    def start(self) -> Loaded:
        """Load the model in every worker; return the first one's message.

        Raises LoadError and WorkerError, with every worker ended.
        """
        with ExitStack() as undo:
            undo.callback(self.kill)
            for number in range(self._settings.workers):
                if number == 1:  # the first one loads meanwhile
                    self._start_zygote()
                self._workers.append(_WorkerSlot(self._spawn()))
                self._workers[-1].worker.begin(self._load)
            for slot in self._workers:
                self._note_load(slot.worker.finish(timeout=self._settings.startup_timeout))
            undo.pop_all()
        self.load_logs = self._workers[0].worker.logs
        return self.loads[0]

    def _note_load(self, loaded: Loaded) -> None:
        self.loads.append(loaded)
        self.touched.update(loaded.touched)

    def _spawn(self) -> Worker:
        first, self._first = self._first, None
        if first is None and self._zygote is not None:
            self._zygote.wait()
        return first or self._settings.spawn(self._zygote)

    def _start_zygote(self) -> None:
        """Fork further workers, where they then load faster than new processes."""
        self._zygote = self._zygote or self._settings.zygote(self._load.model_dir)
        if self._zygote is not None:
            self._zygote.start()

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Yield the result of each batch, in order; a batch is read from the iterator only if a worker is free.

        Several such streams may be open at once, and be closed before their end: each yields its own results.

        Raises LoadError and WorkerError when a worker cannot be restarted (the next stream tries it again), and
        ClosedError if the pool is closed.
        """
        source = iter(batches)
        awaited: deque[int] = deque()
        try:
            is_over = False
            while True:
                self._restart_lost()
                # Results wait for earlier ones: the window bounds their number.
                while not is_over and len(awaited) < _AHEAD_FAST * 2 * len(self._workers):
                    # Each batch goes to the worker with the fewest batches.
                    slots = self._workers
                    least = slots[0] if len(slots) == 1 else min(slots, key=lambda slot: len(slot.sent))
                    if not least.has_room():
                        break
                    batch = next(source, None)
                    if batch is None:
                        is_over = True
                    else:
                        self._number += 1
                        awaited.append(self._number)
                        least.send(self._number, batch)
                while awaited and (outcome := self._done.pop(awaited[0], None)) is not None:
                    awaited.popleft()
                    yield outcome
                self.on_pause()
                self._collect()
                if is_over and not awaited:
                    return
                if not (awaited and awaited[0] in self._done) and any(slot.sent for slot in self._workers):
                    self._listen()
        finally:
            self._unwanted.update(number for number in awaited if self._done.pop(number, None) is None)

    def _listen(self) -> None:
        """Wait for the workers; replace those that ended or exceeded their time."""
        # If every worker has enough to do meanwhile, leave the cores to them.
        queued = ((len(slot.sent), slot.pace) for slot in self._workers)
        # A worker that is slow, or will soon be idle, has 0 seconds of work queued.
        work = min(count * pace if pace < _FAST and count > _AHEAD_SLOW else 0.0 for count, pace in queued)
        if work > 0.0:
            for slot in self._workers:
                slot.worker.flush()
            time.sleep(min(_PAUSE, work / 2))
        timeout = self._settings.timeout
        in_time = wait(tuple(slot.worker for slot in self._workers if slot.sent), timeout)
        self._collect()
        # Found together: a restart takes time that must not be counted against the other workers.
        fallen = [
            slot
            for slot in self._workers
            if slot.sent
            and (slot.worker.over or (not in_time and timeout is not None and slot.worker.seconds_left(timeout) <= 0))
        ]
        for slot in fallen:
            # Its oldest batch has failed; a new worker gets the others.
            self.peak_memory = max(self.peak_memory, slot.worker.process.peak_memory() or 0)
            self._settle(slot.forget_oldest(), slot.worker.abort_batch(timed_out=not slot.worker.over))
            self.restarts += 1
            slot.lost = True
            self._restart_lost()

    def _collect(self) -> None:
        for slot in self._workers:
            while slot.sent and (outcome := slot.worker.outcome()) is not None:
                self.outputs |= outcome.outputs
                slot.pace = 0.8 * slot.pace + 0.2 * outcome.seconds
                self._settle(slot.forget_oldest(), outcome)

    def _settle(self, number: int, outcome: BatchResult) -> None:
        self.touched.update(outcome.touched)
        if number in self._unwanted:
            self._unwanted.remove(number)
        else:
            self._done[number] = outcome

    def _restart_lost(self) -> None:
        """Start a worker in place of each that ended."""
        for slot in self._workers:
            if slot.lost and not self._closed:
                self._restart(slot)
        if self._closed:
            raise ClosedError("the model is closed", hint="Load it again, and close it after its last use.")

    def _restart(self, slot: "_WorkerSlot") -> None:
        """Start a new worker, and send it the batches that have no result."""
        if self._folder is not None:
            self._load = replace(self._load, model_dir=str(self._folder()))
        if self.restarts > 1:  # more may follow: a zygote is worth its start
            self._start_zygote()
        slot.worker = self._spawn()
        self._note_load(slot.worker.load(self._load, timeout=self._settings.startup_timeout))
        if self._closed:  # by another thread meanwhile
            slot.worker.kill()
            return
        slot.lost = False
        unanswered = list(slot.sent)
        slot.sent.clear()
        slot.weight = 0
        for number, batch, _ in unanswered:
            if number in self._unwanted:
                self._unwanted.remove(number)
            else:
                slot.send(number, batch)

    @property
    def is_offline(self) -> bool:
        """Whether the first worker has a network namespace of its own."""
        return self._workers[0].worker.process.is_offline()

    def resident_memory(self) -> int | None:
        """Return the bytes that the first worker has resident now, if the system tells."""
        return self._workers[0].worker.process.resident_memory()

    def close(self) -> None:
        """End every worker."""
        self._end(Worker.close)

    def kill(self) -> None:
        """End every worker at once."""
        self._end(Worker.kill)

    def _end(self, how: Callable[[Worker], None]) -> None:
        self._closed = True
        for slot in self._workers:
            self.peak_memory = max(self.peak_memory, slot.worker.process.peak_memory() or 0)
            how(slot.worker)
        if self._first is not None:
            self._first.kill()
        if self._zygote is not None:
            self._zygote.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()


class _WorkerSlot:
    """One worker and the batches that were sent to it."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.lost = False  # the worker has ended, and no other one was started yet
        self.sent: deque[tuple[int, Batch, int]] = deque()  # number, requests, bytes
        self.weight = 0  # bytes of the batches in `sent`
        self.pace = 1.0  # seconds per batch, smoothed

    def has_room(self) -> bool:
        ahead = _AHEAD_FAST if self.pace < _FAST else _AHEAD_SLOW
        return len(self.sent) < ahead and (not self.sent or self.weight < _AHEAD_BYTES)

    def send(self, number: int, batch: Batch) -> None:
        weight = sum([len(part.value) for request in batch for part in request.parts])
        self.sent.append((number, batch, weight))
        self.weight += weight
        self.worker.submit(batch)

    def forget_oldest(self) -> int:
        """Forget the oldest batch, and return its number."""
        number, _, weight = self.sent.popleft()
        self.weight -= weight
        return number
