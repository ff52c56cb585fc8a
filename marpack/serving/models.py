"""The models that are served: each version with its queue and its workers, processes kept alive by the event loop."""

import asyncio
import itertools
import logging
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import MarpackError
from marpack.protocol.messages import METRICS, Load, Loaded, Trouble
from marpack.runner.client import BatchResult, LoadError, Worker
from marpack.runner.process import Zygote, uses_torch
from marpack.serving.jobs import Batch, Job, JobQueue, StreamedResponse
from marpack.serving.loading import ModelPlan, run_in_loading_thread
from marpack.serving.metrics import ModelMetrics, ServerMetrics
from marpack.torchserve.http import Request, RequestError, Response, ResponseChunk

T = TypeVar("T")
OnEnd = Callable[["asyncio.Task[Any]"], None]  # Any: tasks of all kinds

_LOG = logging.getLogger(__name__)
_TICK = 0.05  # seconds between two checks of a busy worker
_MAX_IN_FLIGHT = 16  # batches that a fast worker gets before it answers: sent together, they wake it once
_FAST = 0.001  # seconds per batch
_KEPT_LATENCIES = 50  # for the page
_NO_DESCRIBER = 'Model "{}" has no worker to serve describe request. Please use scale workers API to add workers.'
# As on TorchServe, the version has a closing quotation mark only.
_NO_WORKER = (
    'Model "{}" {}has no worker to serve inference request. Please use scale workers API to add workers. '
    "If this is a sequence inference, please check if it is closed, or expired; or exceeds maxSequenceJobQueueSize"
)


class WorkerLoaded(Struct, frozen=True, tag_field="event", tag="loaded"):
    """A worker is ready."""

    model: str
    worker: int
    handler: str
    device: str | None
    milliseconds: float


class ModelFailed(Struct, frozen=True, tag_field="event", tag="failed"):
    """A model, or a worker of it, could not be loaded. The record has the error as its `exc_info`."""

    model: str
    worker: int | None
    message: str
    hint: str | None
    given_up: bool
    trouble: Trouble | None


class HandlerPrinted(Struct, frozen=True, tag_field="event", tag="printed"):
    """A handler printed a line."""

    model: str
    worker: int
    line: str


class HandlerFailed(Struct, frozen=True, tag_field="event", tag="trouble"):
    """A handler raised an error, or returned a wrong result."""

    model: str
    worker: int
    trouble: Trouble


def log_failure(model: str, error: MarpackError, *, worker: int | None = None, given_up: bool = True) -> None:
    """Log that a model, or a worker of it, could not be loaded."""
    trouble = error.trouble if isinstance(error, LoadError) else None
    _LOG.error(ModelFailed(model, worker, str(error), error.hint, given_up, trouble), exc_info=error)


class WorkerState(StrEnum):
    """The states of a worker."""

    LOADING = "loading"
    READY = "ready"
    WAITING = "waiting"  # to be started again
    GIVEN_UP = "given up"
    STOPPED = "stopped"


class WorkerSlot:
    """A place for a worker process, which replaces a process that ends."""

    def __init__(self, number: int, owner: "ServedModel") -> None:
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

    def start(self, on_end: OnEnd) -> None:
        """Keep a process running from now on; call `on_end` when that ends."""
        self._task = self._loop.create_task(self._keep(), name=f"worker {self.number}")
        self._task.add_done_callback(on_end)

    async def stop(self, seconds: float = 0.0) -> None:
        """End the process once it has answered its batches, at the latest after some seconds."""
        self.state, end = WorkerState.STOPPED, time.monotonic() + seconds
        while self.in_flight and self.state is WorkerState.STOPPED and self._owner.may_wait(end):
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
        self._owner.queue.put_back(itertools.chain.from_iterable(others))
        self._owner.dispatch()
        outcome = await _run_in_thread(partial(worker.abort_batch, timed_out=self._late))
        self.in_flight.clear()
        self._owner.answered(self, batch, outcome)

    async def _kill_worker(self) -> None:
        """Kill the process, if there is one, and put its batches back."""
        worker, self._worker = self._worker, None
        if self._ticking is not None:
            self._ticking.cancel()
        if worker is not None:
            self._unwatch(worker)
        self._owner.queue.put_back(itertools.chain.from_iterable(self.in_flight))
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
        if worker is None or self.state not in {WorkerState.READY, WorkerState.STOPPED}:
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


class ModelState(StrEnum):
    """The states of a model version."""

    LOADING = "loading"
    READY = "ready"  # a worker is ready
    FAILED = "failed"  # no worker is ready, and the latest one could not be loaded
    EMPTY = "no workers"  # none is wanted


class ServedModel:
    """A model version with its workers, which report to it."""

    def __init__(
        self,
        plan: ModelPlan,
        *,
        numbers: Iterator[int],
        metrics: ServerMetrics,
        on_end: OnEnd,
        drained: asyncio.Event,
        is_silent: bool = False,
    ) -> None:
        """Take a plan, the numbers of the server's workers, its metrics, a function, and whether it logs no events.

        `on_end` gets the task of each worker when it ends. Once `drained` is set, no worker finishes its requests.
        """
        self.name = plan.name
        self.version = plan.version
        self.label = f"{plan.name} {plan.version}"  # for messages
        self.prepared = plan.prepared
        self.url = plan.url or plan.prepared.resolved.path.name  # a file's name hides its path
        self.settings = settings = plan.settings
        self.spawn = plan.spawn
        self.is_silent = is_silent
        self.loaded_at_start = False
        self.workers: list[WorkerSlot] = []
        self.queue = JobQueue(
            capacity=settings.queue_size, batch_size=settings.batch_size, delay=settings.max_batch_delay / 1000
        )
        self.latencies: deque[float] = deque(maxlen=_KEPT_LATENCIES)  # ms of the latest responses
        self.failure: MarpackError | None = None  # of the latest attempt to load a worker
        self.metrics = ModelMetrics(metrics, self.name, self.version)
        self._server_metrics = metrics
        self._zygote = plan.zygote
        self._forker: Zygote | None = None  # the zygote, if forking loads this model faster
        self._gpus = plan.gpus
        self._numbers = numbers
        self._loads = itertools.count()  # used by several threads
        self._loop = asyncio.get_running_loop()  # kept: a look-up would cost as much as the rest of `submit`
        self._due: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()  # a worker was loaded, failed, or is no longer wanted
        self._on_end = on_end
        self._drained = drained

    @property
    def state(self) -> ModelState:
        """The state, from those of its workers."""
        states = {worker.state for worker in self.workers}
        if WorkerState.READY in states:
            return ModelState.READY
        if not states:
            return ModelState.EMPTY
        if self.failure is not None or states == {WorkerState.GIVEN_UP}:
            return ModelState.FAILED
        return ModelState.LOADING

    @property
    def is_dead(self) -> bool:
        """Whether no worker will become ready any more."""
        for worker in self.workers:  # noqa: SIM110 - checked for each request, and a generator takes five times as long
            if worker.state is not WorkerState.GIVEN_UP:
                return False
        return True

    def submit(self, request: Request, *, named_version: str = "", describes: bool = False) -> Job:
        """Queue a request; raise RequestError if it gets no worker or the queue is full.

        `named_version` is the version that the client named. A request that `describes` the model shares no batch.
        """
        job = Job(request, self._loop.create_future(), is_alone=describes)
        if self.is_dead or not self.queue.put(job):
            raise _no_worker(self.name, named_version, _NO_DESCRIBER if describes else _NO_WORKER)
        self.dispatch()
        return job

    async def response(self, job: Job) -> Response | StreamedResponse:
        """Wait for a job's response; drop the job if the client goes away."""
        try:
            return await job.response
        finally:
            if job.response.cancelled():
                self.queue.drop(job)

    def dispatch(self) -> None:
        """Send waiting jobs to free workers."""
        while worker := self._least_loaded():
            now = time.monotonic()
            batch = self.queue.take(now)
            if batch is not None:
                worker.send(batch)
                continue
            if self._due is not None:
                self._due.cancel()
                self._due = None
            if self.queue.due is not None:
                self._due = self._loop.call_later(max(0.0, self.queue.due - now), self.dispatch)
            return

    def _least_loaded(self) -> WorkerSlot | None:
        is_full = self.queue.has_full_batch()
        if len(self.workers) == 1:
            return self.workers[0] if self.workers[0].has_room(full_batch=is_full) else None
        free = [worker for worker in self.workers if worker.has_room(full_batch=is_full)]
        return min(free, key=lambda worker: len(worker.in_flight), default=None)

    def _refuse_all(self) -> None:
        for job in self.queue.drain():
            job.settle(_no_worker(self.name).response)

    def load(self, worker: WorkerSlot) -> Load:
        """Return how to load the model; extract its files again if the handler removed some."""
        folder, load = str(self.prepared.archive.materialize()), self.prepared.load
        self._forker = self._zygote if uses_torch(folder) else None
        if next(self._loads) and self._forker is not None:  # not the first
            self._forker.start()
            self._forker.wait()
        gpu_id = self._gpus[worker.number % len(self._gpus)] if self._gpus else load.gpu_id
        return replace(load, model_dir=folder, batch_size=self.settings.batch_size, gpu_id=gpu_id)

    def loaded(self, worker: WorkerSlot, loaded: Loaded, logs: str) -> None:
        """Take note that a worker is ready, and of its output while it loaded."""
        self.failure = None
        if self._forker is not None:
            self._forker.start()  # to replace a worker quickly
        self._changed.set()
        metrics, name = self._server_metrics, f"W-{worker.number}-{self.name}_{self.version}"
        metrics.bind("WorkerLoadTime", name, *metrics.host).put(worker.load_ms)
        if not self.is_silent:
            _LOG.info(WorkerLoaded(self.label, worker.number, loaded.handler, loaded.device, worker.load_ms))
        self._take_logs(worker, logs, loaded.troubles)

    def failed(self, worker: WorkerSlot, error: MarpackError) -> None:
        """Take note that a worker could not be loaded, or was given up."""
        self.failure = error
        self._changed.set()
        if not self.is_silent:
            given_up = worker.state is WorkerState.GIVEN_UP
            log_failure(self.label, error, worker=worker.number, given_up=given_up)
        if self.is_dead:
            self._refuse_all()

    def answered(self, worker: WorkerSlot, batch: Batch, outcome: BatchResult) -> None:
        """Pass the results of a batch to its clients."""
        handler_ms = outcome.stages.get("handle")
        for job, response in zip(batch, outcome.responses, strict=True):
            job.handler_ms = handler_ms
            job.troubles = outcome.troubles
            job.settle(response)
        for line in outcome.metrics:
            self._server_metrics.take(line.removeprefix(METRICS))
        if outcome.logs or outcome.troubles:
            self._take_logs(worker, outcome.logs, outcome.troubles)

    def _take_logs(self, worker: WorkerSlot, logs: str, troubles: Sequence[Trouble]) -> None:
        for line in logs.splitlines():
            if line.startswith(METRICS):
                self._server_metrics.take(line[len(METRICS) :])
            elif not self.is_silent:
                _LOG.info(HandlerPrinted(self.label, worker.number, line))
        for trouble in () if self.is_silent else troubles:
            _LOG.warning(HandlerFailed(self.label, worker.number, trouble))

    def grow(self, count: int) -> None:
        """Start workers until there are so many."""
        while len(self.workers) < count:
            worker = WorkerSlot(next(self._numbers), self)
            self.workers.append(worker)
            worker.start(self._on_end)

    async def wait_until_ready(self) -> bool:
        """Wait until every worker is ready, or one could not be loaded; return whether all are ready."""
        while not all(worker.state is WorkerState.READY for worker in self.workers):
            self._changed.clear()
            await self._changed.wait()
            if self.failure is not None:
                return False
        return bool(self.workers)

    async def scale(self, least: int, most: int) -> None:
        """Set the number of workers, and replace those that were given up; put the batches of surplus ones back."""
        self.settings = replace(self.settings, min_workers=least, max_workers=most)
        self.workers = [worker for worker in self.workers if worker.state is not WorkerState.GIVEN_UP]
        self.grow(least)
        surplus, self.workers = self.workers[most:], self.workers[:most]
        self._changed.set()
        if not self.workers:
            self._refuse_all()
        await asyncio.gather(*(worker.stop(self.settings.leave_timeout) for worker in surplus))
        if not self.workers:
            self._refuse_all()
        self.dispatch()

    async def stop(self, seconds: float = 0.0) -> None:
        """End every worker once all requests have a response; after some seconds, refuse those that still wait."""
        end = time.monotonic() + seconds
        while not self.queue.is_empty and self.state is ModelState.READY and self.may_wait(end):
            await asyncio.sleep(_TICK)
        workers, self.workers = self.workers, []
        self._changed.set()
        if self._due is not None:
            self._due.cancel()
        self._refuse_all()
        await asyncio.gather(*(worker.stop(end - time.monotonic()) for worker in workers))
        self._refuse_all()
        self.prepared.archive.close()

    def may_wait(self, end: float) -> bool:
        """Return whether requests may still take time: until `end` (monotonic), and until the server has drained."""
        return time.monotonic() < end and not self._drained.is_set()


def _no_worker(name: str, version: str = "", message: str = _NO_WORKER) -> RequestError:
    """Return TorchServe's error for a request that no worker takes."""
    text = message.format(name, f'Version {version}" ' if version else "")
    return RequestError(text, status=503, kind="ServiceUnavailableException")
