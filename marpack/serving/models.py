"""One version of a model, served: its queue, its workers, and what it is set to."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import MarpackError
from marpack.findings import Finding
from marpack.protocol.messages import METRICS, Load, Loaded, Trouble
from marpack.runner.client import BatchResult, Worker
from marpack.runner.session import PreparedModel
from marpack.runner.zygote import Zygote, uses_torch
from marpack.serving.jobs import Batch, Job, JobQueue, StreamedAnswer
from marpack.serving.listener import ServerListener
from marpack.serving.metrics import ModelMetrics, ServerMetrics
from marpack.serving.settings import ModelSettings
from marpack.serving.workers import ServedWorker, WorkerState
from marpack.torchserve.http import Request, RequestError, Response

_LATEST = 50  # latencies that are kept for people to look at
_NO_DESCRIBER = 'Model "{}" has no worker to serve describe request. Please use scale workers API to add workers.'
_NO_WORKER = (
    'Model "{}" {}has no worker to serve inference request. Please use scale workers API to add workers. '
    "If this is a sequence inference, please check if it is closed, or expired; or exceeds maxSequenceJobQueueSize"
)


class ModelPlan(Struct, frozen=True, kw_only=True):
    """A model version that is to be served."""

    name: str
    version: str
    prepared: PreparedModel
    settings: ModelSettings
    spawn: Callable[[], Worker]  # starts a worker process
    zygote: Zygote | None = None  # forks them, once it was started
    findings: tuple[Finding, ...] = ()  # of the look into the archive
    gpus: tuple[int, ...] = ()  # dealt out to its workers in turn; none: each gets what `prepared.load` says
    is_default: bool = False  # it answers where no version is named, whichever was there first


class LoneJob(Job):
    """One that shares no batch: the handler is asked to describe itself."""

    __slots__ = ()


class ModelState(StrEnum):
    """How a model version fares."""

    LOADING = "loading"
    READY = "ready"  # at least one worker answers
    FAILED = "failed"  # none does, and the latest try to start one failed
    EMPTY = "no workers"  # none is wanted


class ServedModel:
    """A model version that answers as long as it has workers; also what its workers talk to."""

    def __init__(
        self, plan: ModelPlan, *, numbers: Iterator[int], metrics: ServerMetrics, listener: ServerListener
    ) -> None:
        """Take a model that is laid out.

        Args:
            plan: What is served, and how.
            numbers: Of workers, never used twice.
            metrics: Of the whole server.
            listener: Is told what happens.
        """
        self.name = plan.name
        self.version = plan.version
        self.prepared = plan.prepared
        self.settings = settings = plan.settings
        self.spawn = plan.spawn
        self._zygote = plan.zygote
        self._forker: Zygote | None = None  # the same, for a model that is loaded faster by a fork
        self._gpus = plan.gpus
        self.loaded_at_start = False
        self.workers: list[ServedWorker] = []
        self.queue = JobQueue(
            capacity=settings.queue_size, batch_size=settings.batch_size, delay=settings.max_batch_delay / 1000
        )
        self.latencies: deque[float] = deque(maxlen=_LATEST)  # ms of the latest answers
        self.failure: MarpackError | None = None  # why the latest try to start a worker failed
        self.metrics: ModelMetrics = metrics.of(self.name, self.version)
        self._server_metrics = metrics
        self._loop = asyncio.get_running_loop()  # to ask for it takes as long as much else here
        self._numbers = numbers
        self._loads = itertools.count()  # numbers them, from several threads
        self.listener = listener
        self._due: asyncio.TimerHandle | None = None
        self._lone: deque[LoneJob] = deque()  # go before the queue
        self._news = asyncio.Event()  # of workers: one was loaded, could not be, or is no longer wanted
        self._on_end: Callable[[asyncio.Task[None]], None] = lambda _: None

    @property
    def label(self) -> str:
        """Name and version, for people."""
        return f"{self.name} {self.version}"

    @property
    def state(self) -> ModelState:
        """How it fares."""
        states = {worker.state for worker in self.workers}
        if WorkerState.READY in states:
            return ModelState.READY
        if not states:
            return ModelState.EMPTY
        if self.failure is not None or states == {WorkerState.GIVEN_UP}:
            return ModelState.FAILED
        return ModelState.LOADING

    @property
    def living(self) -> int:
        """How many workers answer."""
        return sum(worker.state is WorkerState.READY for worker in self.workers)

    @property
    def is_given_up(self) -> bool:
        """Whether no worker will come up any more."""
        for worker in self.workers:  # noqa: SIM110 - each request asks, and a generator takes five times as long
            if worker.state is not WorkerState.GIVEN_UP:
                return False
        return True

    # --- requests

    def submit(self, request: Request, *, named: str = "") -> Job:
        """Queue a request; raises RequestError where nobody would answer it.

        Args:
            request: As the handler gets it.
            named: The version, where the client named it.
        """
        job = Job(request, self._loop.create_future())
        if self.is_given_up or not self.queue.put(job):
            raise _unserved(_no_worker(self.name, named))
        self.dispatch()
        return job

    async def answer(self, job: Job) -> Response | StreamedAnswer:
        """Wait for a job's answer; with whoever leaves, the job does."""
        try:
            return await job.answer
        finally:
            if job.answer.cancelled():
                self.queue.drop(job)

    def describe(self, request: Request) -> Job:
        """Queue a request that shares no batch; raises RequestError where nobody would answer it."""
        if self.is_given_up or len(self._lone) >= self.queue.capacity:
            raise _unserved(_NO_DESCRIBER.format(self.name))
        job = LoneJob(request, self._loop.create_future())
        self._lone.append(job)
        self.dispatch()
        return job

    def dispatch(self) -> None:
        """Hand out what waits, as far as workers are free."""
        while worker := self._freest():
            if self._lone:
                self._send_lone(worker)
                continue
            now = time.monotonic()
            batch = self.queue.take(now)
            if batch is None:
                self._wake(now)
                return
            worker.send(batch)

    def _send_lone(self, worker: ServedWorker) -> None:
        job = self._lone.popleft()
        if job.is_wanted:
            worker.send((job,))

    def _freest(self) -> ServedWorker | None:
        full = self.queue.has_full()
        if len(self.workers) == 1:
            return self.workers[0] if self.workers[0].has_room(full_batch=full) else None
        return min(
            (worker for worker in self.workers if worker.has_room(full_batch=full)),
            key=lambda worker: worker.in_hand,
            default=None,
        )

    def _wake(self, now: float) -> None:
        """See to it that the open batch is sent when it is due."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self.queue.due is not None:
            self._due = self._loop.call_later(max(0.0, self.queue.due - now), self.dispatch)

    # --- what workers tell

    @property
    def startup_timeout(self) -> float:
        """Seconds that loading may take."""
        return self.settings.startup_timeout

    @property
    def response_timeout(self) -> float:
        """Seconds that a batch may take."""
        return self.settings.response_timeout

    @property
    def retry_seconds(self) -> float:
        """Seconds that starting a worker is tried again."""
        return self.settings.retry_seconds

    def load(self, worker: ServedWorker) -> Load:
        """Return how a worker is to load it, laid out anew if a handler has removed its own files."""
        folder, load = str(self.prepared.archive.materialize()), self.prepared.load
        self._forker = self._zygote if uses_torch(folder) else None
        if next(self._loads) and self._forker is not None:  # not the first
            self._forker.start()
            self._forker.wait()
        gpu_id = self._gpus[worker.number % len(self._gpus)] if self._gpus else load.gpu_id
        return replace(load, model_dir=folder, batch_size=self.settings.batch_size, gpu_id=gpu_id)

    def loaded(self, worker: ServedWorker, loaded: Loaded, logs: str) -> None:
        """Take note that a worker answers, and of what was printed while it loaded."""
        self.failure = None
        if self._forker is not None:
            self._forker.start()  # so that a worker that ends is replaced at once
        self._news.set()
        self.metrics.loaded(f"W-{worker.number}-{self.name}_{self.version}", worker.load_ms)
        self.listener.loaded(self.label, worker.number, loaded, worker.load_ms)
        self._take_logs(worker, logs, loaded.troubles)

    def failed(self, worker: ServedWorker, error: MarpackError) -> None:
        """Take note that a worker could not be started, now or for good."""
        self.failure = error
        self._news.set()
        given_up = worker.state is WorkerState.GIVEN_UP
        self.listener.failed(self.label, worker.number, error, given_up=given_up)
        if self.is_given_up:
            self._refuse_all()

    def answered(self, worker: ServedWorker, batch: Batch, outcome: BatchResult) -> None:
        """Pass on what became of a batch."""
        handler_ms = outcome.stages.get("handle")
        for job, response in zip(batch, outcome.responses, strict=True):
            job.handler_ms = handler_ms
            job.troubles = outcome.troubles
            job.settle(response)
        for line in outcome.metrics:
            self._server_metrics.take(line.removeprefix(METRICS))
        if outcome.logs or outcome.troubles:
            self._take_logs(worker, outcome.logs, outcome.troubles)

    def _take_logs(self, worker: ServedWorker, logs: str, troubles: Sequence[Trouble]) -> None:
        printed = []
        for line in logs.splitlines():
            if line.startswith(METRICS):
                self._server_metrics.take(line[len(METRICS) :])
            else:
                printed.append(line)
        if printed or troubles:
            self.listener.printed(self.label, worker.number, printed, troubles)

    def put_back(self, batches: list[Batch]) -> None:
        """Queue what a worker never began with before all others."""
        jobs = list(itertools.chain.from_iterable(batches))
        self._lone.extendleft(reversed([job for job in jobs if isinstance(job, LoneJob)]))
        self.queue.put_back(job for job in jobs if not isinstance(job, LoneJob))

    def _refuse_all(self) -> None:
        """Answer whatever waits: nobody will."""
        for job in (*self._lone, *self.queue.drain()):
            job.settle(no_worker(self.name))
        self._lone.clear()

    # --- workers

    def begin(self, on_end: Callable[["asyncio.Task[None]"], None]) -> None:
        """Start as many workers as are wanted; `on_end` is told when one of their tasks ends."""
        self._on_end = on_end
        self._grow(self.settings.min_workers)

    def _grow(self, count: int) -> None:
        while len(self.workers) < count:
            worker = ServedWorker(next(self._numbers), self)
            self.workers.append(worker)
            worker.start(self._on_end)

    async def settled(self) -> bool:
        """Wait until every worker answers, or one could not be started; say which of the two."""
        while not all(worker.state is WorkerState.READY for worker in self.workers):
            self._news.clear()
            await self._news.wait()
            if self.failure is not None:
                return False
        return bool(self.workers)

    async def scale(self, least: int, most: int) -> None:
        """Have at least and at most so many workers, none of them given up; what surplus ones held goes back."""
        self.settings = replace(self.settings, min_workers=least, max_workers=most)
        self.workers = [worker for worker in self.workers if worker.state is not WorkerState.GIVEN_UP]
        self._grow(least)
        surplus, self.workers = self.workers[most:], self.workers[:most]
        self._news.set()
        if not self.workers:
            self._refuse_all()
        await asyncio.gather(*(worker.stop(self.settings.leave_timeout) for worker in surplus))
        if not self.workers:
            self._refuse_all()
        self.dispatch()

    def take_over(self, other: "ServedModel") -> None:
        """Answer what waits for another model."""
        self.queue.put_back(other.queue.drain())
        self.dispatch()

    async def stop(self, seconds: float = 0.0) -> None:
        """Refuse what waits, and end every worker once it has answered, or so many seconds are over."""
        workers, self.workers = self.workers, []
        self._news.set()
        if self._due is not None:
            self._due.cancel()
        self._refuse_all()
        await asyncio.gather(*(worker.stop(seconds) for worker in workers))
        self._refuse_all()
        self.prepared.archive.close()


def no_worker(name: str, version: str = "") -> Response:
    """Return what a client gets where no worker will take its request."""
    return _unserved(_no_worker(name, version)).response


def _no_worker(name: str, version: str) -> str:
    # The quotation mark that nothing opens is the server's.
    return _NO_WORKER.format(name, f'Version {version}" ' if version else "")


def _unserved(message: str) -> RequestError:
    return RequestError(message, status=503, kind="ServiceUnavailableException")
