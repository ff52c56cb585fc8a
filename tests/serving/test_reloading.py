"""A model that is loaded again: what becomes of it when the models of the server change meanwhile."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from serving.served import LOADER, Served, pack, served, wait_until

from marpack.errors import UsageError
from marpack.project.source import ResolvedSource
from marpack.serving.models import ServedModel

SAYS = "def handle(data, context):\n    return ['{}' for _ in data] if data else None\n"
WAITS = "import pathlib, time\nwhile not pathlib.Path('{}').exists():\n    time.sleep(0.01)\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """Return a server of version 1.0 of the model m, and of another model."""
    archives = [pack(tmp_path, f"{name}.mar", SAYS.format(f"{name} 1.0")) for name in ("m", "other")]
    with served(*archives, model_store=tmp_path, model_api=True) as server:
        yield server


def replacing(server: Served, archive: Path) -> "Future[ServedModel | None]":
    """Load an archive in the place of version 1.0 of m, as a reload does."""
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
    assert replaced.result(20) is None
    assert (started, {model.name for model in server.server.registry}) == ({"m", "other"}, {"other"})
    assert answer(server, "m")[0] == 404
    assert answer(server, "other") == (200, b"other 1.0")


def test_a_reload_does_not_take_the_place_of_another_version(server: Served, tmp_path: Path):
    pack(tmp_path, "m2.mar", SAYS.format("m 2.0"), modelName="m", modelVersion="2.0")
    assert server.manage("POST", "/models?url=m2.mar&initial_workers=1&synchronous=true")[0] == 200
    second = server.server.registry.find("m", "2.0")
    replaced = replacing(server, pack(tmp_path, "new.mar", SAYS.format("new"), modelVersion="2.0"))
    with pytest.raises(UsageError, match=r"2\.0"):
        replaced.result(20)
    assert server.server.registry.find("m", "2.0") is second
    assert versions(server) == ["1.0", "2.0"]
    assert [answer(server, path) for path in ("m", "m/1.0", "m/2.0")] == [
        (200, b"m 1.0"),
        (200, b"m 1.0"),
        (200, b"m 2.0"),
    ]


def test_a_reload_may_change_the_version_to_a_free_one(server: Served, tmp_path: Path):
    replaced = replacing(server, pack(tmp_path, "new.mar", SAYS.format("new"), modelVersion="3.0"))
    new = replaced.result(20)
    assert new is server.server.registry.find("m")
    assert versions(server) == ["3.0"]
    assert answer(server, "m") == (200, b"new")
    wait_until(lambda: len(list(server.server.registry)) == 2)
