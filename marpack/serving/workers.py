"""A worker process kept alive by the event loop: loaded, watched, killed when it hangs, and started again."""

from __future__ import annotations

import asyncio
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

from marpack.errors import MarpackError
from marpack.protocol.messages import Load, Loaded
from marpack.runner.client import BatchResult, Worker
from marpack.serving.jobs import Batch
from marpack.serving.loading import run_in_loading_thread
from marpack.serving.settings import ModelSettings
from marpack.torchserve.http import ResponseChunk

T = TypeVar("T")

_TICK = 0.05  # seconds between two checks of a busy worker
_MAX_IN_FLIGHT = 16  # batches that a fast worker gets before it answers: sent together, they wake it once
_FAST = 0.001  # seconds per batch


class WorkerState(StrEnum):
    """The states of a worker."""

    LOADING = "loading"
    READY = "ready"
    WAITING = "waiting"  # to be started again
    GIVEN_UP = "given up"
    STOPPED = "stopped"


class SlotOwner(Protocol):
    """A model that gives work to its slots."""

    settings: ModelSettings

    def spawn(self) -> Worker:
        """Start a process that waits for a model."""

    def load(self, worker: WorkerSlot) -> Load:
        """Return how a slot's process loads the model; called in a thread."""

    def loaded(self, worker: WorkerSlot, loaded: Loaded, logs: str) -> None:
        """Take note of a slot that is ready."""

    def failed(self, worker: WorkerSlot, error: MarpackError) -> None:
        """Take note of a slot that is not started again."""

    def answered(self, worker: WorkerSlot, batch: Batch, outcome: BatchResult) -> None:
        """Complete the jobs of a batch."""

    def put_back(self, batches: list[Batch]) -> None:
        """Queue batches again that a slot did not start."""

    def dispatch(self) -> None:
        """Send waiting batches to slots with room."""


class WorkerSlot:
    """A place for a worker process, which replaces a process that ends."""

    def __init__(self, number: int, owner: SlotOwner) -> None:
        self.number = number  # TorchServe's would be its port
        self.state = WorkerState.LOADING
        self.started = datetime.now(UTC)
        self.load_ms = 0.0
        self._loop = asyncio.get_running_loop()  # kept: a look-up would cost as much as the rest of `send`
        self._owner = owner
        self._worker: Worker | None = None
        self.in_flight: deque[Batch] = deque()  # sent and not answered
        self._pace = 1.0  # seconds per batch, smoothed
        self._changed = asyncio.Event()  # loading has ended, or the worker has
        self._late = False
        self._ticking: asyncio.TimerHandle | None = None
        self._reads_logs = False
        self._will_flush = False
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, while there is a process."""
        return self._worker.process.handler_pid if self._worker is not None else None

    @property
    def memory(self) -> int:
        """Resident bytes of the process."""
        return (self._worker.process.resident_memory() or 0) if self._worker is not None else 0

    def start(self, on_end: Callable[[asyncio.Task[None]], None]) -> None:
        """Keep a process running from now on; call `on_end` when that ends."""
        self._task = self._loop.create_task(self._keep(), name=f"worker {self.number}")
        self._task.add_done_callback(on_end)

    async def stop(self, seconds: float = 0.0) -> None:
        """End the process once it has answered its batches, at the latest after some seconds."""
        self.state, end = WorkerState.STOPPED, time.monotonic() + seconds
        while self.in_flight and self.state is WorkerState.STOPPED and time.monotonic() < end:
            await asyncio.sleep(_TICK)
        self.state = WorkerState.STOPPED
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def has_room(self, *, full_batch: bool) -> bool:
        """Return whether it can get a batch now: a busy one only if it is fast and the batch is full."""
        if self.state is not WorkerState.READY:
            return False
        return not self.in_flight or (full_batch and self._pace < _FAST and len(self.in_flight) < _MAX_IN_FLIGHT)

    def send(self, batch: Batch) -> None:
        """Send it a batch; it must have room."""
        assert self._worker is not None  # noqa: S101 - it is ready
        if not self.in_flight:
            _mark_taken(batch)
        self.in_flight.append(batch)
        self._worker.post(tuple([job.request for job in batch]))
        if not self._will_flush:  # once for all batches of this turn of the loop: each flush wakes the worker
            self._will_flush = True
            self._loop.call_soon(self._flush, self._worker)
        if self._ticking is None:
            self._tick()

    async def _keep(self) -> None:
        try:
            delays, stopped = _restart_delays(), time.monotonic()
            while True:
                try:
                    await self._load()
                except MarpackError as error:
                    gives_up = time.monotonic() - stopped > self._owner.settings.retry_seconds
                    self.state = WorkerState.GIVEN_UP if gives_up else WorkerState.WAITING
                    self._owner.failed(self, error)
                    if gives_up:
                        return
                    await asyncio.sleep(next(delays))
                    continue
                self._owner.dispatch()
                await self._changed.wait()
                delays, stopped = _restart_delays(), time.monotonic()
                await self._reap_worker()
        finally:
            await self._kill_worker()

    async def _load(self) -> None:
        """Load the model in a new process; raises LoadError, WorkerError and the errors of extracting the folder."""
        self.state, self.started, begun = WorkerState.LOADING, datetime.now(UTC), time.monotonic()
        load = await run_in_loading_thread(partial(self._owner.load, self))
        worker = self._worker = self._owner.spawn()
        worker.on_piece = self._take_piece
        worker.begin(load)
        self._changed.clear()
        self._watch(worker)
        try:
            with suppress(TimeoutError):  # `finish` reports it
                async with asyncio.timeout(self._owner.settings.startup_timeout):
                    await self._changed.wait()
        finally:
            self._unwatch(worker)
        try:
            loaded = await _run_in_thread(partial(worker.finish, timeout=0.0))
        except MarpackError:
            self._worker = None  # it has ended, and its descriptors are closed
            raise
        self._changed.clear()
        self._late = False
        self._watch(worker)
        self.load_ms = (time.monotonic() - begun) * 1000
        self.state = WorkerState.READY
        self._owner.loaded(self, loaded, worker.logs)

    async def _reap_worker(self) -> None:
        """Remove a worker that died or hung: answer the batch that it had begun, and put the others back."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        self._unwatch(worker)
        if not self.in_flight:
            await _run_in_thread(worker.kill)
            return
        batch, *others = self.in_flight
        self.in_flight = deque((batch,))  # until it is answered: `_kill_worker` puts it back if it comes first
        self._owner.put_back(others)
        self._owner.dispatch()
        outcome = await _run_in_thread(partial(worker.give_up, timed_out=self._late))
        self.in_flight.clear()
        self._owner.answered(self, batch, outcome)

    async def _kill_worker(self) -> None:
        """Kill the process, if there is one, and put its batches back."""
        worker, self._worker = self._worker, None
        if self._ticking is not None:
            self._ticking.cancel()
        if worker is not None:
            self._unwatch(worker)
        self._owner.put_back(list(self.in_flight))
        self.in_flight.clear()
        if worker is not None:
            await _run_in_thread(worker.kill)

    def _watch(self, worker: Worker) -> None:
        for descriptor in worker.interests():
            if descriptor != worker.log_fileno():
                self._loop.add_reader(descriptor, self._read, worker, descriptor)
        self._watch_logs(worker, wanted=True)

    def _unwatch(self, worker: Worker) -> None:
        self._watch_logs(worker, wanted=False)
        for descriptor in worker.interests():
            self._loop.remove_reader(descriptor)
        self._loop.remove_writer(worker.fileno())

    def _watch_logs(self, worker: Worker, *, wanted: bool) -> None:
        """Read output as it comes, or only with each response: a fast worker's output never fills its pipe."""
        if wanted == self._reads_logs:
            return
        self._reads_logs = wanted
        if wanted:
            self._loop.add_reader(worker.log_fileno(), self._read, worker, worker.log_fileno())
        else:
            self._loop.remove_reader(worker.log_fileno())

    def _read(self, worker: Worker, descriptor: int) -> None:
        if descriptor == worker.process.exit:
            poll = select.poll()
            poll.register(worker.fileno(), select.POLLIN)
            descriptor = worker.fileno() if poll.poll(0) else descriptor  # its last messages first
        worker.notice({descriptor: select.POLLIN})
        if descriptor == worker.log_fileno():
            if descriptor not in worker.interests():  # the handler closed it: it would be readable forever
                self._loop.remove_reader(descriptor)
        elif self.state is not WorkerState.LOADING:
            self._collect(worker)
        elif worker.settled:
            self._changed.set()

    def _flush(self, worker: Worker) -> None:
        self._will_flush = False
        if not worker.over and not worker.flush():
            self._loop.add_writer(worker.fileno(), self._flush_rest, worker)

    def _flush_rest(self, worker: Worker) -> None:
        if worker.flush():
            self._loop.remove_writer(worker.fileno())

    def _collect(self, worker: Worker) -> None:
        if worker is not self._worker:
            return
        try:
            while self.in_flight and (outcome := worker.outcome()) is not None:
                batch = self.in_flight.popleft()
                self._pace = 0.8 * self._pace + 0.2 * outcome.seconds
                if self.in_flight:
                    _mark_taken(self.in_flight[0])
                self._owner.answered(self, batch, outcome)
        except BaseException:  # a bug, which the event loop reports: it must not delay the next responses
            self._loop.call_soon(self._collect, worker)
            raise
        if worker.over:
            self.state = WorkerState.WAITING
            self._changed.set()
        else:
            self._owner.dispatch()

    def _take_piece(self, chunk: ResponseChunk) -> None:
        batch = self.in_flight[0]
        for index, piece in chunk.responses.items():
            if index < len(batch):
                batch[index].take_piece(piece)

    def _tick(self) -> None:
        """Check a busy worker's timeout, and read its output before it answers."""
        self._ticking = None
        worker = self._worker
        if worker is None or self.state is not WorkerState.READY:
            return
        is_slow = not self.in_flight or time.monotonic() - worker.since > _TICK
        self._watch_logs(worker, wanted=is_slow)
        if self.in_flight and worker.seconds_left(self._owner.settings.response_timeout) <= 0:
            self._late = True
            self.state = WorkerState.WAITING
            self._changed.set()
            return
        if self.in_flight or not is_slow:
            self._ticking = self._loop.call_later(_TICK, self._tick)


def _mark_taken(batch: Batch) -> None:
    now = time.monotonic()
    for job in batch:
        job.taken = now


async def _run_in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, which a thread finishes also if the caller is cancelled."""
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, work))


def _restart_delays() -> Iterator[float]:
    """Yield the seconds to wait before each restart, as TorchServe does: 1, 1, 2, 3, 5 … 1597."""
    before, delay = 0, 1
    while True:
        yield delay
        before, delay = delay, min(before + delay, 1597)
