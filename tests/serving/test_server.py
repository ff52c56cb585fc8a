"""The life of a server: when it is ready, how its workers are replaced, and how its models are."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace
from refusals import has_code
from serving.fronts import eventually
from serving.logs import Recorded, recording
from serving.served import ANYWHERE, LOADER, Served, pack, served, wait_until

from marpack.errors import UsageError
from marpack.project.source import ResolvedSource
from marpack.runner.client import Worker
from marpack.runner.process import ForkedChild, Zygote
from marpack.serving.http import HttpSettings
from marpack.serving.loading import ModelLoader, ModelStore
from marpack.serving.management import ModelApi
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import ServedModel
from marpack.serving.server import Listening, ReloadableModel, Server, ServerOptions
from marpack.serving.settings import ModelSettings

_HANDLER = "def handle(data, context):\n    return data and [1 for _ in data]\n"


class _Asking(Recorded):
    """Records whether the server is ready when a port opens."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.ready: list[bool] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Listening):
            self.ready.append(self.server.registry.is_ready)


async def _settled(server: Server) -> bool:
    while not server.registry.is_complete:
        await asyncio.sleep(0.001)
    before = server.registry.is_ready
    (model,) = server.registry
    await model.wait_until_ready()
    server.end()
    return not before and server.registry.is_ready


def test_the_server_is_not_ready_before_its_models_are(tmp_path: Path):
    async def main() -> tuple[list[bool], bool]:
        log = _Asking()
        options = ServerOptions(
            http=HttpSettings(max_request_size=65_536, max_connections=10, drain=2.0),
            inference=ANYWHERE,
            management=ANYWHERE,
            metrics=None,
        )
        log.server = server = Server(options, ServerMetrics(hostname="here"))
        plans = [LOADER.plan(ResolvedSource(path=pack(tmp_path, "one.mar", _HANDLER)))]
        with recording(log):
            _, settled = await asyncio.gather(server.serve(plans), _settled(server))
        return log.ready, settled

    ready, settled = asyncio.run(main())
    assert ready == [False] * len(ready)
    assert ready
    assert settled


_SLOW = """
import time

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "change", ["unregistered", *(pytest.param(name, marks=pytest.mark.slow) for name in ("replaced", "scaled"))]
)
def test_nothing_is_left_of_workers_that_are_leaving_when_the_server_ends(tmp_path: Path, change: str):
    folder = tmp_path / "slow"
    (folder / "code").mkdir(parents=True)
    (folder / "code/inference.py").write_text(_SLOW)
    loader = replace(LOADER, settings=ModelSettings(leave_timeout=60))
    options = ServerOptions(
        http=HttpSettings(max_request_size=65_536, max_connections=10, drain=1.0),
        inference=ANYWHERE,
        management=ANYWHERE,
        model_api=ModelApi(store=ModelStore(tmp_path), loader=loader),
    )

    async def main() -> tuple[bool, bool, int]:
        log, server = Recorded(), Server(options, ServerMetrics(hostname="here"))
        with recording(log):
            serving = asyncio.create_task(server.serve([loader.plan(ResolvedSource(path=folder))]))
            await eventually(lambda: server.registry.is_ready)
            (model,) = server.registry
            (slot,) = model.workers
            process, files = slot._worker.process, model.prepared.archive.materialize()
            host, port = log.addresses["inference"].removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /predictions/model HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
            await eventually(lambda: slot.in_flight)
            writer.close()  # no client waits for the response of the worker any more
            if change == "replaced":
                await server.replace(model, loader.plan(ResolvedSource(path=folder)))
            else:
                method, query = ("DELETE", "") if change == "unregistered" else ("PUT", "?min_worker=0")
                async with ClientSession(log.addresses["management"]) as session:
                    request = asyncio.create_task(session.request(method, f"/models/model{query}"))
                    await eventually(lambda: slot not in model.workers)
                    request.cancel()
            assert slot.in_flight
            server.end()
            await serving
        return process.ended(), files.exists(), len(asyncio.all_tasks())

    assert asyncio.run(main()) == (True, False, 1)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker is a new process")

WITH_TORCH = "import torch\ndef handle(data, context):\n    return [str(int(torch.ones(2).sum()))] * len(data or ())\n"
WITHOUT = "def handle(data, context):\n    return ['2'] * len(data or ())\n"


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    zygote = Zygote({name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")})
    yield zygote
    zygote.close()


def loader(zygote: Zygote, workers: int) -> ModelLoader:
    settings = ModelSettings(leave_timeout=1, min_workers=workers, max_workers=workers)
    spawn = partial(Worker.spawn, environment=zygote._environment, zygote=zygote)
    return replace(LOADER, spawn=lambda _: spawn, zygote=zygote, settings=settings)


def processes(server: Served) -> list[object]:
    """Return the processes of the only model's workers."""
    (model,) = list(server.server.registry)
    return [each._worker.process._process for each in model.workers if each._worker is not None]


@pytest.mark.slow
@on_linux
def test_a_killed_worker_is_replaced_by_a_fork(tmp_path: Path, zygote: Zygote):
    with served(pack(tmp_path, "probe.mar", WITH_TORCH), loader=loader(zygote, 1)) as server:
        (first,) = processes(server)
        assert not isinstance(first, ForkedChild)
        wait_until(lambda: zygote._process is not None)
        assert zygote.wait()
        (model,) = list(server.server.registry)
        for _ in range(2):
            before = processes(server)
            os.kill(model.workers[0].pid, signal.SIGKILL)
            wait_until(lambda before=before: processes(server) not in ([], before))
            wait_until(lambda: server.request("POST", "/predictions/probe", b"a")[0] == 200)
            assert [type(each) for each in processes(server)] == [ForkedChild]


@pytest.mark.peer  # a zygote and a worker that import torch
@on_linux
def test_further_workers_of_a_served_model_are_forked(tmp_path: Path, zygote: Zygote):
    with served(pack(tmp_path, "probe.mar", WITH_TORCH), loader=loader(zygote, 3)) as server:
        wait_until(lambda: zygote._process is not None)
        assert zygote.wait()  # longer than `wait_until` on a busy machine
        wait_until(lambda: len(processes(server)) == 3)
        assert sorted(isinstance(each, ForkedChild) for each in processes(server)) == [False, True, True]


@on_linux
def test_no_zygote_is_started_for_served_models_without_torch(tmp_path: Path, zygote: Zygote):
    with served(pack(tmp_path, "probe.mar", WITHOUT), loader=loader(zygote, 2)) as server:
        assert server.request("POST", "/predictions/probe", b"a")[0] == 200
        assert zygote._process is None


SAYS = "def handle(data, context):\n    return ['{}' for _ in data] if data else None\n"
WAITS = "import pathlib, time\nwhile not pathlib.Path('{}').exists():\n    time.sleep(0.01)\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """Return a server of version 1.0 of the model m, and of another model."""
    archives = [pack(tmp_path, f"{name}.mar", SAYS.format(f"{name} 1.0")) for name in ("m", "other")]
    with served(*archives, model_store=tmp_path) as server:
        yield server


def replacing(server: Served, archive: Path) -> "Future[ServedModel | None]":
    """Replace version 1.0 of m by an archive, as a reload does."""
    model, plan = server.server.registry.find("m", "1.0"), LOADER.plan(ResolvedSource(path=archive), name="m")
    loop: asyncio.AbstractEventLoop = model._loop
    return asyncio.run_coroutine_threadsafe(server.server.replace(model, plan), loop)


def answer(server: Served, path: str) -> tuple[int, bytes]:
    status, _, body = server.request("POST", f"/predictions/{path}", b"x")
    return status, body


def versions(server: Served) -> list[Any]:
    return [each["modelVersion"] for each in server.manage("GET", "/models/m/all")[1]]


def test_a_model_may_be_unregistered_while_it_is_loaded_again(server: Served, tmp_path: Path):
    gate = tmp_path / "gate"
    replaced = replacing(server, pack(tmp_path, "new.mar", WAITS.format(gate) + SAYS.format("new")))
    started = {model.name for model in server.server.registry}
    assert server.manage("DELETE", "/models/m")[0] == 200
    gate.touch()
    assert replaced.result(60) is None
    assert (started, {model.name for model in server.server.registry}) == ({"m", "other"}, {"other"})
    assert answer(server, "m")[0] == 404
    assert answer(server, "other") == (200, b"other 1.0")


def test_a_reload_may_change_the_version_to_a_free_one_only(server: Served, tmp_path: Path):
    pack(tmp_path, "m2.mar", SAYS.format("m 2.0"), modelName="m", modelVersion="2.0")
    assert server.manage("POST", "/models?url=m2.mar&initial_workers=1&synchronous=true")[0] == 200
    second = server.server.registry.find("m", "2.0")
    replaced = replacing(server, pack(tmp_path, "new.mar", SAYS.format("new"), modelVersion="2.0"))
    with pytest.raises(UsageError, match=r"2\.0"):
        replaced.result(60)
    assert server.server.registry.find("m", "2.0") is second
    assert versions(server) == ["1.0", "2.0"]
    answers = [answer(server, path) for path in ("m", "m/1.0", "m/2.0")]
    assert answers == [(200, b"m 1.0"), (200, b"m 1.0"), (200, b"m 2.0")]
    new = replacing(server, pack(tmp_path, "new.mar", SAYS.format("new"), modelVersion="3.0")).result(60)
    assert new is server.server.registry.find("m")
    assert versions(server) == ["2.0", "3.0"]
    assert answer(server, "m") == (200, b"new")
    wait_until(lambda: len(list(server.server.registry)) == 3)


def test_a_request_gets_the_model_that_is_served_when_its_body_arrives(server: Served, tmp_path: Path):
    with socket.create_connection(tuple(server.inference.split(":"))) as client, client.makefile("rb") as stream:
        client.sendall(b"POST /predictions/m HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert replacing(server, pack(tmp_path, "new.mar", SAYS.format("new"))).result(60) is not None
        client.sendall(b"x")
        assert (stream.readline(), stream.readline()[:12]) == (b"\r\n", b"HTTP/1.1 200")


def test_a_source_that_cannot_be_watched_is_an_error(server: Served, tmp_path: Path):
    model = server.server.registry.find("m", "1.0")
    plan = LOADER.plan(ResolvedSource(path=tmp_path / "m.mar"))
    source = ReloadableModel(plan, tmp_path / "gone" / "m.mar", lambda: plan)
    with pytest.raises(UsageError, check=has_code("cannot-watch")):
        asyncio.run_coroutine_threadsafe(source.watch(server.server), model._loop).result(60)
    plan.prepared.archive.close()
