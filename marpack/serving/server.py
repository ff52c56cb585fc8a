"""The server: its models, its ports, and its life from the first address to the last answer."""

import asyncio
import itertools
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import ExitCode, UsageError
from marpack.protocol.messages import Load
from marpack.serving.access import Admission, Guard, TokenKind, Tokens
from marpack.serving.api import Api, ServingCore
from marpack.serving.connections import run
from marpack.serving.http import Front, FrontSettings
from marpack.serving.inference import InferenceApi
from marpack.serving.listener import ServerListener, ServerStatistics
from marpack.serving.loading import ModelLoader, ModelStore
from marpack.serving.loading_threads import interrupt_loading
from marpack.serving.management import ManagementApi, MetricsApi
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import ModelPlan, ServedModel
from marpack.serving.page import PageRenderer
from marpack.serving.page_api import PageApi
from marpack.serving.registering import Registrar
from marpack.serving.registry import Registry
from marpack.serving.settings import Address
from marpack.torchserve.system_metrics import sample_system

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class ServerOptions(Struct, frozen=True, kw_only=True):
    """How a server listens and what it bounds; what is None is not listened on."""

    inference: Address
    management: Address | None = None
    metrics: Address | None = None
    metrics_may_fail: bool = False  # nobody asked for their address: without it the server goes on
    front: FrontSettings
    compat: bool = False
    open_inference: bool = False
    log_requests: bool = False
    cors: tuple[tuple[str, str], ...] = ()
    model_store: Path | None = None
    model_api: bool = False  # models of the store may be registered, and any may be taken off
    loader: ModelLoader = ModelLoader(load=Load(model_dir=""))  # of models that are registered
    default_workers: int = 0  # of such a model, where its client says nothing
    tokens: Tokens | None = None
    page: PageRenderer | None = None  # None: no page to try models on
    allowed_hosts: tuple[str, ...] = ()  # names that it is called by, beside its own
    origins: tuple[str, ...] = ()  # of other sites' pages that may use the page's routes and the management's
    sample_seconds: int | None = None  # between two looks at the machine's own metrics; None: none are taken
    first_worker: int = 9000  # the number of the first worker: on the original, its port


class Server:
    """Serves models until it is told to end."""

    def __init__(self, options: ServerOptions, listener: ServerListener, metrics: ServerMetrics) -> None:
        self.options = options
        self.registry = Registry()
        self.front = Front(replace(options.front, headers=options.cors), listener.noted)
        self.statistics = ServerStatistics()
        self._ending = asyncio.Event()
        self.core = ServingCore(
            ending=self._ending,
            registry=self.registry,
            metrics=metrics,
            listener=listener,
            statistics=self.statistics,
            compat=options.compat,
            open_inference=options.open_inference,
            max_request_size=options.front.max_request_size,
            log_requests=options.log_requests,
            cors=options.cors,
        )
        self.listener = listener
        self._numbers: Iterator[int] = itertools.count(options.first_worker)
        self._interrupted = False
        self._bug: BaseException | None = None

    def add(self, plan: ModelPlan, *, at_start: bool = False) -> ServedModel:
        """Serve a model from now on; raises RequestError if its version is served already."""
        model = self._made(plan, self.listener)
        self.registry.add(model)
        model.loaded_at_start = at_start
        if plan.is_default:
            self.registry.set_default(model.name, model.version)
        for finding in plan.findings:
            self.listener.noted(f"{model.label}: {finding.message}")
        model.begin(self._task_ended)
        return model

    def _made(self, plan: ModelPlan, listener: ServerListener) -> ServedModel:
        return ServedModel(plan, numbers=self._numbers, metrics=self.core.metrics, listener=listener)

    async def replace(self, old: ServedModel, plan: ModelPlan) -> ServedModel | None:
        """Serve another model in a model's place, once it has loaded; the old one answers what it was asked.

        Returns None if the old one was unregistered meanwhile. Raises what keeps the new one from being loaded, and
        UsageError if its version is another model's: then the old one stays.
        """
        new = self._made(plan, ServerListener())  # whoever asks for it tells what became of it
        new.loaded_at_start = old.loaded_at_start
        new.begin(self._task_ended)
        if not await new.settled() and new.failure is not None:
            failure = new.failure
            await new.stop()
            raise failure
        try:
            is_replaced = self.registry.replace(old, new)
        except UsageError:
            await new.stop()
            raise
        if not is_replaced:
            await new.stop()
            return None
        new.listener = self.listener
        new.take_over(old)
        await old.stop(self.options.front.drain)
        return new

    async def serve(self, models: Sequence[ModelPlan], *, beside: "Beside | None" = None) -> int:
        """Serve until the server is told to end, then finish what was accepted; return the exit code.

        Args:
            models: Those that are served from the start.
            beside: Runs as long as the server does.

        Raises UsageError for an address that cannot be listened on.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._listen()
            for plan in models:
                self.add(plan, at_start=True)
            self.registry.is_complete = True
            tasks = [self._task(work(self)) for work in (Server._sample, beside) if work is not None]
            await self._ending.wait()
            seconds = 0.0 if self.options.compat else self.options.front.drain
            await self.front.drain(seconds, until=lambda: self._interrupted or self._bug is not None)
        finally:
            for task in tasks:
                task.cancel()
            await self.front.close()
            await asyncio.gather(interrupt_loading(), *(model.stop() for model in list(self.registry)))
        if self._bug is not None:
            raise self._bug
        return ExitCode.INTERRUPTED if self._interrupted else ExitCode.OK

    def _task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":  # Any: as typing has it
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._task_ended)
        return task

    async def _sample(self) -> None:
        """Take the machine's own metrics, now and then."""
        while self.options.sample_seconds is not None:
            with suppress(OSError):  # the machine does not tell
                self.core.metrics.system(await asyncio.to_thread(sample_system))
            await asyncio.sleep(self.options.sample_seconds)

    def end(self) -> None:
        """Have the server finish what it has and end; the second time, at once."""
        self._interrupted = self._ending.is_set()
        self._ending.set()

    async def _listen(self) -> None:
        options = self.options
        page = PageApi(self.core, options.page) if options.page is not None else None
        inference, management, metrics = self._inference(page), self._management(), MetricsApi(self.core)
        merged = options.inference.shares(options.management)
        if merged:  # one port for all that there is
            inference.include(management.shared_routes())
        if merged or options.inference.shares(options.metrics):
            inference.include(metrics.routes)
        elif options.metrics is not None and options.metrics.shares(options.management):
            management.include(metrics.routes)
        if options.metrics is not None and not any(
            options.metrics.shares(other) for other in (options.inference, options.management)
        ):
            await self._open_metrics(options.metrics, metrics)
        bound = await self._open("inference", options.inference, inference)
        if page is not None:
            page.admission.guard = self._guard(bound)
            self.listener.listening("page", bound)
        if options.management is not None and not merged:
            bound = await self._open("management", options.management, management)
        management.admission.guard = self._guard(bound)

    async def _open_metrics(self, address: Address, api: Api) -> None:
        try:
            await self._open("metrics", address, api)
        except UsageError as error:
            if not self.options.metrics_may_fail:
                raise
            self.listener.noted(f"there are no metrics: {error.what}")

    async def _open(self, what: str, address: Address, api: Api) -> Address:
        bound = await self.front.listen(address, api.handle)
        self.listener.listening(what, bound)
        return bound

    def _inference(self, page: PageApi | None) -> InferenceApi:
        options = self.options
        admission = Admission(tokens=options.tokens, kind=TokenKind.INFERENCE, compat=options.compat)
        return InferenceApi(self.core, admission, page.routes() if page else ())

    def _management(self) -> ManagementApi:
        options, registrar = self.options, None
        if options.model_api and options.model_store is not None:
            store = ModelStore(options.model_store)
            registrar = Registrar(self.core, self.add, store, options.loader, default_workers=options.default_workers)
        admission = Admission(tokens=options.tokens, kind=TokenKind.MANAGEMENT, guarded=True, compat=options.compat)
        return ManagementApi(self.core, registrar=registrar, admission=admission, on_end=self._task_ended)

    def _guard(self, bound: Address) -> Guard:
        options = self.options
        return Guard.of(
            bound, machine=socket.gethostname(), allowed_hosts=options.allowed_hosts, origins=options.origins
        )

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:  # Any: tasks of all kinds
        """End the process, loudly, where what keeps a worker alive has ended by a fault of ours."""
        if not task.cancelled() and task.exception() is not None:
            self._bug = task.exception()
            self._ending.set()


Beside = Callable[[Server], Coroutine[Any, Any, None]]  # Any: as typing has it


def serve(make: Callable[[], Server], models: Sequence[ModelPlan], *, beside: Beside | None = None) -> int:
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
