"""The server: its models, its ports, its life from the first address to the last response, and reloading."""

import asyncio
import itertools
import logging
import math
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from marpack.archive.index import content_digest
from marpack.errors import ExitCode, MarpackError, UsageError, convert_os_errors
from marpack.runner.watching import counts_within
from marpack.serving.access import Admission, Guard, TokenKind, Tokens
from marpack.serving.api import Api, ServerStatistics, ServingCore
from marpack.serving.http import HttpServer, HttpSettings, run
from marpack.serving.inference import InferenceApi
from marpack.serving.loading import ModelPlan, run_in_loading_thread
from marpack.serving.management import ManagementApi, MetricsApi, ModelApi
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import ServedModel
from marpack.serving.page import PageApi, PageRenderer
from marpack.serving.registry import Registry
from marpack.serving.settings import Address, GrpcSettings
from marpack.torchserve.metrics import sample_system

if TYPE_CHECKING:
    from marpack.serving.grpc_server import GrpcServer

_LOG = logging.getLogger(__name__)
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class Listening(Struct, frozen=True, tag_field="event", tag="listening"):
    """The log event of an address that the server listens on."""

    what: str  # "inference", "management", "metrics", "page", or "gRPC"
    address: str


class Reloaded(Struct, frozen=True, tag_field="event", tag="reloaded"):
    """The log event of a model with changed files. With an error, the model is kept unchanged."""

    model: str
    changed: list[str]
    kept: bool
    error: str | None


class ServerOptions(Struct, frozen=True, kw_only=True):
    """How a server listens, and its limits; it does not listen on an address that is None."""

    inference: Address
    management: Address | None = None
    metrics: Address | None = None
    metrics_may_fail: bool = False  # continue without metrics if their address, a default, is not available
    http: HttpSettings
    grpc: GrpcSettings | None = None
    compat: bool = False
    open_inference: bool = False
    log_requests: bool = False
    log_slow: float = math.inf  # seconds
    model_api: ModelApi | None = None  # None: requests cannot register or unregister models
    tokens: Tokens | None = None
    page: PageRenderer | None = None  # None: no page to try models on
    allowed_hosts: tuple[str, ...] = ()  # additional host names of the server
    origins: tuple[str, ...] = ()  # of other sites that may use the page's routes and management
    sample_seconds: int | None = None  # between samples of the machine's metrics; None: no samples
    first_worker: int = 9000  # number of the first worker: TorchServe's default port


class Server:
    """Serves models until it has to end."""

    def __init__(self, options: ServerOptions, metrics: ServerMetrics) -> None:
        self.options = options
        self.registry = Registry()
        self.http = HttpServer(options.http)
        self._fronts: list[HttpServer | GrpcServer] = [self.http]
        self.statistics = ServerStatistics()
        self._ending = asyncio.Event()
        self.core = ServingCore(
            ending=self._ending,
            registry=self.registry,
            metrics=metrics,
            statistics=self.statistics,
            compat=options.compat,
            open_inference=options.open_inference,
            log_requests=options.log_requests,
            log_slow=options.log_slow,
        )
        self._drained = asyncio.Event()  # set when no request may take any more time
        self._tasks: set[asyncio.Task[Any]] = set()  # of `_begin`; the event loop keeps no references
        self._numbers = itertools.count(options.first_worker)
        self._interrupted = False
        self._bug: BaseException | None = None

    def add(self, plan: ModelPlan, *, at_start: bool = False) -> ServedModel:
        """Serve a model from now on; raise RequestError if its version is served already."""
        model = self._make_model(plan)
        model.loaded_at_start = at_start
        self.registry.add(model)
        if plan.is_default and at_start:  # one that is registered still has to load
            self.registry.set_default(model.name, model.version)
        for finding in plan.findings:
            _LOG.info("%s: %s", model.label, finding.message)
        model.grow(plan.settings.min_workers)
        return model

    async def replace(self, old: ServedModel, plan: ModelPlan) -> ServedModel | None:
        """Serve another model in a model's place once it is ready; the old one finishes the requests of its workers.

        Returns None if the old one was unregistered meanwhile. Raises the error of loading the new one, and UsageError
        if its version belongs to another model: then the old one stays.
        """
        new = self._make_model(plan, is_silent=True)
        new.loaded_at_start = old.loaded_at_start
        new.grow(plan.settings.min_workers)
        is_served = False
        try:
            if not await new.wait_until_ready() and new.failure is not None:
                raise new.failure
            is_served = self.registry.replace(old, new)
        finally:
            if not is_served:
                await new.stop()
        if not is_served:
            return None
        new.is_silent = False
        new.queue.put_back(old.queue.drain())
        new.dispatch()
        self._begin(old.stop(old.settings.leave_timeout))
        return new

    def _make_model(self, plan: ModelPlan, *, is_silent: bool = False) -> ServedModel:
        metrics, on_end = self.core.metrics, self._end_on_bug
        return ServedModel(
            plan, numbers=self._numbers, metrics=metrics, on_end=on_end, drained=self._drained, is_silent=is_silent
        )

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:  # Any: tasks of all kinds
        """Start work in the background. An error in it ends the server, and the server's end waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._end_on_bug)
        return task

    async def serve(self, models: Sequence[ModelPlan], *, beside: "Sequence[Beside]" = ()) -> int:
        """Serve models until the server has to end, then finish accepted requests; return the exit code.

        `beside` has functions that run as long as the server. Raises UsageError for an address that is not available.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._listen()
            for plan in models:
                self.add(plan, at_start=True)
            self.registry.is_complete = True
            tasks = [self._begin(work(self)) for work in (Server._sample_system, *beside)]
            await self._ending.wait()
            seconds = 0.0 if self.options.compat else self.options.http.drain
            await asyncio.gather(*(front.drain(seconds, until=self._has_to_stop) for front in self._fronts))
        finally:
            self._drained.set()
            for task in tasks:
                task.cancel()
            for front in self._fronts:
                await front.close()
            await asyncio.gather(*(model.stop() for model in list(self.registry)))
            while self._tasks:  # which stop models and workers that are not in the registry
                await asyncio.wait(self._tasks)
            for plan in models:  # without an address to listen on, none is added
                plan.prepared.archive.close()
        if self._bug is not None:
            raise self._bug
        return ExitCode.INTERRUPTED if self._interrupted else ExitCode.OK

    async def _sample_system(self) -> None:
        while self.options.sample_seconds is not None:
            with suppress(OSError):  # not available on this machine
                for name, value in (await asyncio.to_thread(sample_system)).items():
                    self.core.metrics.bind(name, *self.core.metrics.host).put(value)
            await asyncio.sleep(self.options.sample_seconds)

    def _has_to_stop(self) -> bool:
        return self._interrupted or self._bug is not None

    def end(self) -> None:
        """Finish accepted requests and end; called a second time, end at once."""
        self._interrupted = self._ending.is_set()
        self._ending.set()

    def _end_on_bug(self, task: "asyncio.Task[Any]") -> None:  # Any: tasks of all kinds
        """End the process with the error of a background task."""
        if not task.cancelled() and task.exception() is not None:
            self._bug = task.exception()
            self._ending.set()

    async def _listen(self) -> None:
        options = self.options
        page = PageApi(self.core, options.page) if options.page is not None else None
        admission = Admission(tokens=options.tokens, kind=TokenKind.INFERENCE, compat=options.compat)
        inference = InferenceApi(self.core, admission, page.routes if page else ())
        management = ManagementApi(
            self.core,
            model_api=options.model_api,
            add=self.add,
            admission=Admission(
                tokens=options.tokens, kind=TokenKind.MANAGEMENT, is_guarded=True, compat=options.compat
            ),
            begin=self._begin,
        )
        metrics = MetricsApi(self.core)
        merged = options.inference.shares(options.management)
        if merged:  # one port for everything
            inference.include(management.shared_routes())
        if merged or options.inference.shares(options.metrics):
            inference.include(metrics.routes)
        elif options.metrics is not None and options.metrics.shares(options.management):
            management.include(metrics.routes)
        others = (options.inference, options.management)
        if options.metrics is not None and not any(options.metrics.shares(other) for other in others):
            try:
                await self._open("metrics", options.metrics, metrics)
            except UsageError as error:
                if not options.metrics_may_fail:
                    raise
                _LOG.warning("metrics are not available: %s", error.what)
        bound, guard = await self._open("inference", options.inference, inference)
        if page is not None:
            page.admission.guard = guard
            _LOG.info(Listening("page", str(bound)))
        if options.management is not None and not merged:
            _, guard = await self._open("management", options.management, management)
        management.admission.guard = guard
        if options.grpc is not None:
            from marpack.serving.grpc_server import GrpcServer  # noqa: PLC0415 - an extra, and only if it is on

            grpc_server = GrpcServer(self.core, admission, options.grpc, options.http)
            self._fronts.append(grpc_server)
            _LOG.info(Listening("gRPC", await grpc_server.listen()))

    async def _open(self, what: str, address: Address, api: Api) -> tuple[Address, Guard]:
        bound, options = await self.http.listen(address, api.handle), self.options
        _LOG.info(Listening(what, str(bound)))
        hosts, machine = options.allowed_hosts, socket.gethostname()
        return bound, Guard.of(bound, machine=machine, allowed_hosts=hosts, origins=options.origins)


Beside = Callable[[Server], Coroutine[Any, Any, None]]  # Any: as in typing.Coroutine


def serve(make: Callable[[], Server], models: Sequence[ModelPlan], *, beside: Sequence[Beside] = ()) -> int:
    """Serve models until SIGTERM, SIGINT or SIGHUP; return the exit code. See `Server.serve`.

    `make` is called within the event loop.
    """

    async def main() -> int:
        server = make()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, server.end)
        return await server.serve(models, beside=beside)

    return run(main)


class ReloadableModel(Struct, frozen=True):
    """A model with its source, which is loaded again when its files change."""

    plan: ModelPlan  # at the start of the server
    path: Path  # of its source
    plan_again: Callable[[], ModelPlan]

    async def watch(self, server: Server) -> None:
        """Reload the model as long as the server runs; one that cannot be reloaded is served unchanged."""
        from watchfiles import awatch  # noqa: PLC0415 - only --reload needs it

        model = server.registry.find(self.plan.name, self.plan.version)
        tried = content_digest(model.prepared.archive)  # of the latest archive
        reported = ""  # the latest error
        named = {self.path.absolute(), self.path.resolve()}  # a link, and its target
        is_folder = self.path.is_dir()
        folders = named if is_folder else {path.parent for path in named}

        def counts(_: object, name: str) -> bool:
            return any(counts_within(folder, name) for folder in folders) if is_folder else Path(name) in named

        def plan_again() -> tuple[ModelPlan, str | None]:
            plan = self.plan_again()
            return plan, content_digest(plan.prepared.archive)

        hint = "Raise the limit of watched files (sysctl fs.inotify.max_user_watches), or omit --reload."
        what, where = "the files cannot be watched", str(self.path)
        with convert_os_errors(UsageError, what, where=where, hint=hint, code="cannot-watch"):
            async for changes in awatch(*folders, watch_filter=counts, recursive=is_folder):
                if model not in tuple(server.registry):  # it is unregistered
                    continue
                changed = sorted({os.path.relpath(name) for _, name in changes})
                try:
                    plan, digest = await run_in_loading_thread(plan_again)
                    if digest is not None and digest == tried:
                        plan.prepared.archive.close()  # only a file that is not packed has changed, such as a log
                        continue
                    tried = digest
                    new = await server.replace(model, plan)
                except MarpackError as error:
                    failure = f"{error!r} {getattr(error, 'findings', ())}"
                    if reported != failure:
                        reported = failure
                        _LOG.error(Reloaded(model.label, changed, kept=True, error=str(error)), exc_info=error)
                    continue
                if new is not None:
                    model, reported = new, ""
                    _LOG.info(Reloaded(new.label, changed, kept=False, error=None))
