"""The models that are served: each version's queue and workers, and the registry of all by name and version."""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import MarpackError, UsageError
from marpack.protocol.messages import METRICS, Load, Loaded, Trouble
from marpack.runner.client import BatchResult, LoadError
from marpack.runner.process import Zygote, uses_torch
from marpack.serving.jobs import Batch, Job, JobQueue, StreamedResponse
from marpack.serving.loading import ModelPlan
from marpack.serving.metrics import ModelMetrics, ServerMetrics
from marpack.serving.workers import WorkerSlot, WorkerState
from marpack.torchserve.http import Request, RequestError, Response

_LOG = logging.getLogger(__name__)
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


class ModelState(StrEnum):
    """The states of a model version."""

    LOADING = "loading"
    READY = "ready"  # a worker is ready
    FAILED = "failed"  # no worker is ready, and the latest one could not be loaded
    EMPTY = "no workers"  # none is wanted


class ServedModel:
    """A model version with its workers, which report to it."""

    def __init__(
        self, plan: ModelPlan, *, numbers: Iterator[int], metrics: ServerMetrics, is_silent: bool = False
    ) -> None:
        """Take a plan, the numbers of the server's workers, its metrics, and whether events are not logged."""
        self.name = plan.name
        self.version = plan.version
        self.label = f"{plan.name} {plan.version}"  # for messages
        self.prepared = plan.prepared
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
        self._on_end: Callable[[asyncio.Task[None]], None] = lambda _: None

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
    def is_given_up(self) -> bool:
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
        if self.is_given_up or not self.queue.put(job):
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
        self.metrics.put_load_time(f"W-{worker.number}-{self.name}_{self.version}", worker.load_ms)
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
        if self.is_given_up:
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

    def put_back(self, batches: list[Batch]) -> None:
        """Queue batches that a worker has not begun before all others."""
        self.queue.put_back(itertools.chain.from_iterable(batches))

    def begin(self, on_end: Callable[["asyncio.Task[None]"], None]) -> None:
        """Start the wanted number of workers; call `on_end` when one of their tasks ends."""
        self._on_end = on_end
        self._grow(self.settings.min_workers)

    def _grow(self, count: int) -> None:
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
        self._grow(least)
        surplus, self.workers = self.workers[most:], self.workers[:most]
        self._changed.set()
        if not self.workers:
            self._refuse_all()
        await asyncio.gather(*(worker.stop(self.settings.leave_timeout) for worker in surplus))
        if not self.workers:
            self._refuse_all()
        self.dispatch()

    async def stop(self, seconds: float = 0.0) -> None:
        """Refuse waiting requests, and end every worker once it has answered, at the latest after some seconds."""
        workers, self.workers = self.workers, []
        self._changed.set()
        if self._due is not None:
            self._due.cancel()
        self._refuse_all()
        await asyncio.gather(*(worker.stop(seconds) for worker in workers))
        self._refuse_all()
        self.prepared.archive.close()


def _no_worker(name: str, version: str = "", message: str = _NO_WORKER) -> RequestError:
    """Return TorchServe's error for a request that no worker takes."""
    text = message.format(name, f'Version {version}" ' if version else "")
    return RequestError(text, status=503, kind="ServiceUnavailableException")


class Registry:
    """All models of a server. The first version of a name is its default until another one is set."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[str, ServedModel]] = {}
        self._defaults: dict[str, ServedModel] = {}
        self.is_complete = False  # whether the models of the start are in it

    def __iter__(self) -> Iterator[ServedModel]:
        """Yield every version of every model."""
        for versions in self._versions.values():
            yield from versions.values()

    def add(self, model: ServedModel) -> None:
        """Add a version; raise RequestError (409) if it exists."""
        versions = self._versions.setdefault(model.name, {})
        if model.version in versions:
            message = f"Model version {model.version} is already registered for model {model.name}"
            raise RequestError(message, status=409, kind="ConflictStatusException")
        versions[model.version] = model
        self._defaults.setdefault(model.name, model)

    def find(self, name: str, version: str | None = None) -> ServedModel:
        """Return a version of a model, by default its default version; raise RequestError (404)."""
        versions = self.versions(name)
        if version is None:
            return self._defaults[name]
        if version not in versions:
            message = f"Model version: {version} does not exist for model: {name}"
            raise RequestError(message, status=404, kind="ModelVersionNotFoundException")
        return versions[version]

    def versions(self, name: str) -> dict[str, ServedModel]:
        """Return all versions of a model; raise RequestError (404)."""
        if name not in self._versions:
            raise RequestError(f"Model not found: {name}", status=404, kind="ModelNotFoundException")
        return self._versions[name]

    def is_default(self, model: ServedModel) -> bool:
        """Return whether a version is its model's default."""
        return self._defaults.get(model.name) is model

    def set_default(self, name: str, version: str) -> None:
        """Make a version its model's default; raise RequestError (404)."""
        versions = self.versions(name)
        if version not in versions:
            message = f"Model version {version} does not exist for model {name}"
            raise RequestError(message, status=404, kind="ModelVersionNotFoundException")
        self._defaults[name] = versions[version]

    def remove(self, name: str, version: str | None = None) -> ServedModel:
        """Remove and return a version, by default the default version.

        Raises RequestError: 404, and 403 for the default version while there are others.
        """
        model = self.find(name, version)
        if self.is_default(model) and len(self._versions[name]) > 1:
            message = f"Cannot remove default version for model {name}"
            raise RequestError(message, status=403, kind="InvalidModelVersionException")
        self.discard(model)
        return model

    def discard(self, model: ServedModel) -> None:
        """Remove a version, if it is registered; the oldest of the others replaces a default version."""
        versions = self._versions.get(model.name, {})
        if versions.get(model.version) is not model:
            return
        del versions[model.version]
        if not versions:
            del self._versions[model.name], self._defaults[model.name]
        elif self._defaults[model.name] is model:
            self._defaults[model.name] = next(iter(versions.values()))

    def replace(self, old: ServedModel, new: ServedModel) -> bool:
        """Put a model in another's place, under its own name and version; return False if the other is not registered.

        Raises UsageError if a third model is registered under that name and version.
        """
        if self._versions.get(old.name, {}).get(old.version) is not old:
            return False
        if self._versions.get(new.name, {}).get(new.version) not in (None, old):
            what = f"version {new.version} of the model {new.name} is already registered"
            raise UsageError(what, hint="give each version of a model its own modelVersion")
        was_default = self.is_default(old)
        self.discard(old)
        self.add(new)
        if was_default:
            self._defaults[new.name] = new
        return True

    def only_model(self) -> ServedModel | None:
        """Return the model for requests without a model name: the only one that was loaded at start."""
        started = [model for model in self._defaults.values() if model.loaded_at_start]
        return started[0] if len(started) == 1 else None

    @property
    def is_ready(self) -> bool:
        """Whether every default version is ready, once the models of the start are in the registry."""
        return self.is_complete and all(
            model.state in {ModelState.READY, ModelState.EMPTY} for model in self._defaults.values()
        )

    @property
    def is_healthy_for_torchserve(self) -> bool:
        """Whether every default version has workers, or may still get them."""
        return not any(model.workers and model.is_given_up for model in self._defaults.values())
