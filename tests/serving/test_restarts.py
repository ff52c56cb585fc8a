"""A worker that dies is replaced by a fork of a process that has imported torch (Linux)."""

import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from serving.served import LOADER, Served, pack, served, wait_until

from marpack.runner.client import Worker
from marpack.runner.process import ForkedChild, Zygote
from marpack.serving.loading import ModelLoader
from marpack.serving.settings import ModelSettings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker is a new process")

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


@pytest.mark.nightly
def test_a_worker_that_is_killed_is_replaced_by_a_fork(tmp_path: Path, zygote: Zygote):
    with served(pack(tmp_path, "probe.mar", WITH_TORCH), loader=loader(zygote, 1)) as server:
        (first,) = processes(server)
        assert not isinstance(first, ForkedChild)
        wait_until(lambda: zygote._process is not None)
        assert zygote.wait()
        for _ in range(2):
            (model,) = list(server.server.registry)
            before = processes(server)
            os.kill(model.workers[0].pid, signal.SIGKILL)
            wait_until(lambda before=before: processes(server) not in ([], before))
            wait_until(lambda: server.request("POST", "/predictions/probe", b"a")[0] == 200)
            assert [type(each) for each in processes(server)] == [ForkedChild]


def test_further_workers_of_a_served_model_are_forked(tmp_path: Path, zygote: Zygote):
    with served(pack(tmp_path, "probe.mar", WITH_TORCH), loader=loader(zygote, 3)) as server:
        wait_until(lambda: zygote._process is not None)
        assert zygote.wait()  # longer than `wait_until` on a busy machine
        wait_until(lambda: len(processes(server)) == 3)
        assert sorted(isinstance(each, ForkedChild) for each in processes(server)) == [False, True, True]


def test_no_zygote_is_started_for_served_models_without_torch(tmp_path: Path, zygote: Zygote):
    with served(pack(tmp_path, "probe.mar", WITHOUT), loader=loader(zygote, 2)) as server:
        assert server.request("POST", "/predictions/probe", b"a")[0] == 200
        assert zygote._process is None
