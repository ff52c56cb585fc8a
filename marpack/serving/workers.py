"""A worker process kept alive: loaded, watched by the event loop, given up when it dies or hangs, started again."""

import asyncio
import itertools
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

from marpack.errors import MarpackError
from marpack.protocol.messages import Load, Loaded
from marpack.runner.client import BatchResult, Worker
from marpack.serving.jobs import Batch
from marpack.serving.loading_threads import run_in_loading_thread
from marpack.torchserve.http import ResponseChunk

T = TypeVar("T")

_TICK = 0.05  # seconds between two looks at a busy worker: at its time, and at what it prints
_AHEAD = 16  # batches that a fast worker is sent before its answers: sent together, they wake it once
_FAST = 0.001  # seconds per batch


class WorkerState(StrEnum):
    """What a worker is at."""

    LOADING = "loading"
    READY = "ready"
    WAITING = "waiting"  # to be started again
    GIVEN_UP = "given up"
    STOPPED = "stopped"


class WorkerOwner(Protocol):
    """What a worker asks of the model it works for, and tells it."""

    @property
    def startup_timeout(self) -> float:
        """Seconds that loading may take."""

    @property
    def response_timeout(self) -> float:
        """Seconds that a batch, or the next piece of an answer, may take."""

    @property
    def retry_seconds(self) -> float:
        """Seconds since its last end that starting it is tried again."""

    def spawn(self) -> Worker:
        """Start a process that waits for a model."""

    def load(self, worker: "ServedWorker") -> Load:
        """Return how a worker is to load the model, its folder laid out anew if need be."""

    def loaded(self, worker: "ServedWorker", loaded: Loaded, logs: str) -> None:
        """Take note that a worker can take batches, and of what was printed while it loaded."""

    def failed(self, worker: "ServedWorker", error: MarpackError) -> None:
        """Take note that it could not be loaded, or was given up."""

    def answered(self, worker: "ServedWorker", batch: Batch, outcome: BatchResult) -> None:
        """Take what became of a batch."""

    def put_back(self, batches: list[Batch]) -> None:
        """Take back what a worker was sent and never began with."""

    def dispatch(self) -> None:
        """Hand out what waits, as far as workers are free."""


class ServedWorker:
    """One place for a worker process, whichever process is in it at the moment."""

    def __init__(self, number: int, owner: WorkerOwner) -> None:
        """Take the number that the server would give it (its port), and whom it works for."""
        self.number = number
        self.state = WorkerState.LOADING
        self.started = datetime.now(UTC)
        self.load_ms = 0.0
        self._loop = asyncio.get_running_loop()  # to ask for it takes as long as much else here
        self._owner = owner
        self._worker: Worker | None = None
        self._in_hand: deque[Batch] = deque()
        self._pace = 1.0  # seconds per batch, smoothed
        self._news = asyncio.Event()  # loading has ended, or the worker has
        self._late = False
        self._ticking: asyncio.TimerHandle | None = None
        self._reads_logs = False
        self._flushes = False
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, while there is a process."""
        return self._worker.process.handler_pid if self._worker is not None else None

    @property
    def memory(self) -> int:
        """Bytes that the process has resident."""
        return (self._worker.process.resident_memory() or 0) if self._worker is not None else 0

    @property
    def in_hand(self) -> int:
        """How many batches it was sent and has not answered."""
        return len(self._in_hand)

    def start(self, on_end: Callable[["asyncio.Task[None]"], None]) -> None:
        """Keep a process here from now on; `on_end` is told when that ends."""
        self._task = self._loop.create_task(self._keep(), name=f"worker {self.number}")
        self._task.add_done_callback(on_end)

    async def stop(self, seconds: float = 0.0) -> None:
        """End the process, once it has answered what is in its hands, or so many seconds are over."""
        self.state, end = WorkerState.STOPPED, time.monotonic() + seconds
        while self._in_hand and self.state is WorkerState.STOPPED and time.monotonic() < end:
            await asyncio.sleep(_TICK)
        self.state = WorkerState.STOPPED
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def has_room(self, *, full_batch: bool) -> bool:
        """Say whether it may be sent a batch now; ahead of its answers only if it is fast and the batch is full."""
        if self.state is not WorkerState.READY:
            return False
        return not self._in_hand or (full_batch and self._pace < _FAST and len(self._in_hand) < _AHEAD)

    def send(self, batch: Batch) -> None:
        """Hand it a batch; it must have room."""
        assert self._worker is not None  # noqa: S101 - it is ready
        if not self._in_hand:
            self._begin(batch)
        self._in_hand.append(batch)
        self._worker.post(tuple([job.request for job in batch]))
        if not self._flushes:  # once for all that this turn of the loop has to send: each time wakes the worker
            self._flushes = True
            self._loop.call_soon(self._flush, self._worker)
        if self._ticking is None:
            self._tick()

    def _begin(self, batch: Batch) -> None:
        now = time.monotonic()
        for job in batch:
            job.taken = now

    async def _keep(self) -> None:
        try:
            delays, stopped = _delays(), time.monotonic()
            while True:
                try:
                    await self._load()
                except MarpackError as error:
                    if not await self._waits(error, stopped, next(delays)):
                        return
                    continue
                self._owner.dispatch()
                await self._news.wait()
                delays, stopped = _delays(), time.monotonic()
                await self._clear_away()
        finally:
            await self._abandon()

    async def _waits(self, error: MarpackError, stopped: float, delay: float) -> bool:
        """Wait until it is time to load again; False once that was tried long enough."""
        given_up = time.monotonic() - stopped > self._owner.retry_seconds
        self.state = WorkerState.GIVEN_UP if given_up else WorkerState.WAITING
        self._owner.failed(self, error)
        if not given_up:
            await asyncio.sleep(delay)
        return not given_up

    async def _load(self) -> None:
        """Load the model in a new process; raises LoadError, WorkerError and what laying the folder out raises."""
        self.state, self.started, begun = WorkerState.LOADING, datetime.now(UTC), time.monotonic()
        load = await run_in_loading_thread(partial(self._owner.load, self))
        worker = self._worker = self._owner.spawn()
        worker.on_piece = self._take_piece
        worker.begin(load)
        self._news.clear()
        self._listen(worker)
        self._read_logs(worker, wanted=True)
        try:
            async with asyncio.timeout(self._owner.startup_timeout):
                await self._news.wait()
        except TimeoutError:
            pass  # which `finish` tells
        finally:
            self._unlisten(worker)
        try:
            loaded = await _beside(partial(worker.finish, timeout=0.0))
        except MarpackError:
            self._worker = None  # ended, its descriptors closed
            raise
        self._news.clear()
        self._late = False
        self._listen(worker)
        self._read_logs(worker, wanted=True)
        self.load_ms = (time.monotonic() - begun) * 1000
        self.state = WorkerState.READY
        self._owner.loaded(self, loaded, worker.logs)

    def _listen(self, worker: Worker) -> None:
        loop = self._loop
        for descriptor in worker.interests():
            if descriptor != worker.log_fileno():
                loop.add_reader(descriptor, self._readable, worker, descriptor)

    def _unlisten(self, worker: Worker) -> None:
        loop = self._loop
        self._read_logs(worker, wanted=False)
        for descriptor in worker.interests():
            loop.remove_reader(descriptor)
        loop.remove_writer(worker.fileno())

    def _read_logs(self, worker: Worker, *, wanted: bool) -> None:
        """Read what is printed as it comes, or only with each answer: a fast worker's prints never fill their pipe."""
        if wanted == self._reads_logs:
            return
        self._reads_logs = wanted
        loop, descriptor = self._loop, worker.log_fileno()
        if wanted:
            loop.add_reader(descriptor, self._readable, worker, descriptor)
        else:
            loop.remove_reader(descriptor)

    def _readable(self, worker: Worker, descriptor: int) -> None:
        if descriptor == worker.process.exit and _is_readable(worker.fileno()):
            descriptor = worker.fileno()  # its last words first
        worker.notice({descriptor: select.POLLIN})
        if descriptor == worker.log_fileno():
            if descriptor not in worker.interests():  # closed by the author: it would be ready for ever
                self._loop.remove_reader(descriptor)
            return
        if self.state is WorkerState.LOADING:
            if worker.settled:
                self._news.set()
            return
        self._collect(worker)

    def _flush(self, worker: Worker) -> None:
        self._flushes = False
        if not worker.over and not worker.flush():
            self._loop.add_writer(worker.fileno(), self._writable, worker)

    def _writable(self, worker: Worker) -> None:
        if worker.flush():
            self._loop.remove_writer(worker.fileno())

    def _collect(self, worker: Worker) -> None:
        if worker is not self._worker:
            return
        delivered = False
        try:
            while self._in_hand and (outcome := worker.outcome()) is not None:
                batch = self._in_hand.popleft()
                self._pace = 0.8 * self._pace + 0.2 * outcome.seconds
                if self._in_hand:
                    self._begin(self._in_hand[0])
                self._owner.answered(self, batch, outcome)
            delivered = True
        finally:
            if not delivered:  # a bug of ours, which the event loop tells: it must not hold up what comes after
                self._loop.call_soon(self._collect, worker)
        if worker.over:
            self.state = WorkerState.WAITING
            self._news.set()
        else:
            self._owner.dispatch()

    def _take_piece(self, chunk: ResponseChunk) -> None:
        batch = self._in_hand[0]
        for index, piece in chunk.responses.items():
            if index < len(batch):
                batch[index].take_piece(piece)

    def _tick(self) -> None:
        """Look after a busy worker: at its time, and at what it prints before it answers."""
        self._ticking = None
        worker = self._worker
        if worker is None or self.state is not WorkerState.READY:
            return
        is_slow = not self._in_hand or time.monotonic() - worker.since > _TICK
        self._read_logs(worker, wanted=is_slow)
        if self._in_hand and worker.late(self._owner.response_timeout):
            self._late = True
            self.state = WorkerState.WAITING
            self._news.set()
            return
        if self._in_hand or not is_slow:
            self._ticking = self._loop.call_later(_TICK, self._tick)

    async def _clear_away(self) -> None:
        """Take leave of a worker that died or hung: one batch was in its hands, the others go back."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        self._unlisten(worker)
        if not self._in_hand:
            await _beside(worker.kill)
            return
        batch, *others = self._in_hand
        self._in_hand = deque((batch,))  # until it is answered: who is stopped meanwhile has to give it back
        self._owner.put_back(others)
        self._owner.dispatch()
        outcome = await _beside(partial(worker.give_up, timed_out=self._late))
        self._in_hand.clear()
        self._owner.answered(self, batch, outcome)

    async def _abandon(self) -> None:
        """End what there is without a word; what was in its hands goes back."""
        worker, self._worker = self._worker, None
        if self._ticking is not None:
            self._ticking.cancel()
        if worker is not None:
            self._unlisten(worker)
        self._owner.put_back(list(self._in_hand))
        self._in_hand.clear()
        if worker is not None:
            await _beside(worker.kill)


async def _beside(work: Callable[[], T]) -> T:
    """Return what is done in a thread; it is done even if nobody waits for it any more."""
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, work))


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _delays() -> Iterator[float]:
    """Yield the seconds to wait before each further start, as the server does: 1, 1, 2, 3, 5 … 1597."""
    before, delay = 0, 1
    for _ in itertools.count():
        yield delay
        before, delay = delay, min(before + delay, 1597)
