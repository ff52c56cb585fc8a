"""One Ray cluster for all tests that need one; a plugin of conftest.py."""

import gc
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

_ATTEMPTS = 3  # Ray gives up if a node is not up within 30 s, as on a busy machine
NODE = {"num_cpus": 2, "num_gpus": 0, "memory": 4 << 30, "object_store_memory": 80 << 20}
_SETTINGS = {
    "OMP_NUM_THREADS": "1",  # here as in an actor: sums depend on how they are split
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "500",  # a node that is gone is found to be within seconds…
    "RAY_health_check_failure_threshold": "3",
    "RAY_task_actor_unavailable_retry_delay_base_ms": "1000",  # …which retries need not outlast by far
    "RAY_task_actor_unavailable_retry_max_delay_ms": "4000",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # 5: a busy machine's proxy is killed as it starts
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}


@contextmanager
def ray_environment(folder: str) -> Iterator[None]:
    """Set what nodes and drivers read; they write into a folder, and import code from `model` in it."""
    with pytest.MonkeyPatch.context() as patch:
        places = (f"{folder}/model", os.environ.get("PYTHONPATH"), str(Path(__file__).parents[1]))
        own = {"RAY_TMPDIR": folder, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        for name, value in (_SETTINGS | own).items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


def _start() -> Any:
    import ray.cluster_utils

    nodes = ray.cluster_utils.Cluster()
    try:
        nodes.add_node(include_dashboard=False, **NODE)
        nodes.add_node(**NODE)
    except BaseException:
        nodes.shutdown()
        raise
    return nodes


def _start_patiently() -> Any:
    for _ in range(_ATTEMPTS - 1):
        with suppress(Exception):  # of no class of its own
            return _start()
        with warnings.catch_warnings(action="ignore"):  # of what the attempt left behind
            gc.collect()
    return _start()


@pytest.fixture(scope="session")
def _ray_nodes() -> Iterator[tuple[Any, str]]:
    if os.environ.get("MARPACK_REQUIRE_RAY") != "1":
        pytest.importorskip("ray.serve", exc_type=ImportError)
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:  # a short name: sockets need that
        Path(folder, "model").mkdir()
        with ray_environment(folder):
            nodes = _start_patiently()
        yield nodes, folder
        nodes.shutdown()


@pytest.fixture(scope="module")
def cluster(_ray_nodes: tuple[Any, str]) -> Iterator[Any]:
    """Return the cluster, two nodes of two CPUs on this machine, with the environment that its drivers need."""
    nodes, folder = _ray_nodes
    with ray_environment(folder):
        yield nodes
