"""`marpack serve` in the real server's place: asked over HTTP as that is, workers forked from one that has torch."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Self

from conformance.forking import shared
from conformance.probe import Probe
from conformance.wire import Answer
from msgspec.structs import replace

from marpack.errors import ArchiveError, HandlerError, WorkerError
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.runner.client import Worker
from marpack.runner.session import prepare
from marpack.serving.http import HttpSettings, run
from marpack.serving.loading import ModelPlan
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import ServedModel
from marpack.serving.server import Listening, Server, ServerOptions
from marpack.serving.settings import Address, MetricsMode, ModelSettings
from marpack.torchserve import MAX_BODY

HOST = "127.0.0.1"
SECONDS = 60.0
_LOG = logging.getLogger("marpack.serving")
_OPTIONS = ServerOptions(
    inference=Address(HOST, 0),
    http=HttpSettings(max_request_size=MAX_BODY, max_connections=100, drain=0.0),
    compat=True,
)


class _Ports(logging.Handler):
    """Notes the port."""

    def __init__(self) -> None:
        super().__init__()
        self.inference: Future[tuple[str, int]] = Future()

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Listening) and record.msg.what == "inference" and not self.inference.done():
            address = Address.parse(record.msg.address, 0)
            self.inference.set_result((address.host, address.port))


class ServedPeer:
    """A server of ours in a thread of this process, which `conformance.playing.play` takes for the real one."""

    def __init__(self) -> None:
        self._ports = _Ports()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, Server]] = Future()
        self._thread = threading.Thread(target=run, args=(self._main,), name="marpack serve")

    def __enter__(self) -> Self:
        _LOG.setLevel(logging.INFO)
        _LOG.addHandler(self._ports)
        self._thread.start()
        self.inference = self._ports.inference.result(SECONDS)
        _LOG.removeHandler(self._ports)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.end)
        self._thread.join(SECONDS)

    async def _main(self) -> int:
        metrics = ServerMetrics(hostname="here", mode=MetricsMode.LOG, declared=(), auto_detect=False)
        self._loop, self._server = asyncio.get_running_loop(), Server(_OPTIONS, metrics)
        return await self._server.serve(())

    def of(self, probe: Probe) -> "_Stand":
        """Return this server as one that has a probe's settings."""
        return _Stand(self, probe)

    def add(self, plan: ModelPlan) -> bool:
        """Serve a model; False if it cannot be loaded: then it is gone again."""
        return asyncio.run_coroutine_threadsafe(self._added(plan), self._loop).result(SECONDS)

    async def _added(self, plan: ModelPlan) -> bool:
        model = self._server.add(plan)
        loads = await model.wait_until_ready()
        if not loads:
            await self._removed(model.name)
        return loads

    def remove(self, name: str) -> None:
        """Serve a model no more."""
        asyncio.run_coroutine_threadsafe(self._removed(name), self._loop).result(SECONDS)

    async def _removed(self, name: str) -> None:
        model: ServedModel = self._server.registry.remove(name)
        await model.stop()


class _Stand:
    """The server as one probe needs it: what an operator sets for all models is set for this one."""

    def __init__(self, server: ServedPeer, probe: Probe) -> None:
        self._server = server
        self._probe = probe
        self.inference = server.inference

    def register(self, archive: Path, name: str, **options: Any) -> Answer:
        """Serve an archive; the answer has the status of a success or of a failure, and nothing more."""
        try:
            loads = self._server.add(self._plan(archive, name, options))
        except (ArchiveError, HandlerError, WorkerError):
            loads = False
        return Answer(200 if loads else 500, "", (), b"")

    def unregister(self, name: str) -> None:
        """Serve it no more."""
        self._server.remove(name)

    def _plan(self, archive: Path, name: str, options: dict[str, Any]) -> ModelPlan:
        prepared = prepare(ResolvedSource(path=archive), options=Load(model_dir="", envelope=self._probe.envelope))
        asked = {key: value for key, value in options.items() if key in ModelSettings.__struct_fields__}
        settings = replace(ModelSettings(**asked).with_config(prepared.config), batch_size=options.get("batch_size", 1))
        return ModelPlan(name=name, version="1.0", prepared=prepared, settings=settings, spawn=self._spawn())

    def _spawn(self) -> Callable[[], Worker]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TS_", "COVERAGE"))}
        environment = kept | {"OMP_NUM_THREADS": "1"} | self._probe.environment
        if self._probe.environment:  # read when the worker's modules are imported, which a forked one has done
            return partial(Worker.spawn, environment=environment)
        with_torch = "torch" in f"{self._probe.files}{self._probe.steps}"
        return lambda: Worker(shared(with_torch=with_torch).launch(environment=environment))
