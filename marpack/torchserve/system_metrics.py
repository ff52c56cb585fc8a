"""Metrics of the machine, as the server's collector makes them; handlers call single ones."""

import importlib
import logging
from collections.abc import Callable

import psutil

from marpack.torchserve.metrics import Dimension, Metric

logger = logging.getLogger(__name__)

_MB, _GB = 1 << 20, 1 << 30
system_metrics: list[Metric] = []
dimension = [Dimension("Level", "Host")]


_READINGS: dict[str, tuple[str, Callable[[], float]]] = {
    "CPUUtilization": ("percent", psutil.cpu_percent),
    "DiskAvailable": ("GB", lambda: psutil.disk_usage("/").free / _GB),
    "DiskUsage": ("GB", lambda: psutil.disk_usage("/").used / _GB),
    "DiskUtilization": ("percent", lambda: psutil.disk_usage("/").percent),
    "MemoryAvailable": ("MB", lambda: psutil.virtual_memory().available / _MB),
    "MemoryUsed": ("MB", lambda: psutil.virtual_memory().used / _MB),
    "MemoryUtilization": ("percent", lambda: psutil.virtual_memory().percent),
}


def sample_system() -> dict[str, float]:
    """Return what the machine uses now, by metric: percent, gigabytes of disk, megabytes of memory.

    The CPU's share is that since the sample before, of which the first has none: it is 0. Raises OSError where the
    machine does not tell.
    """
    return {name: float(read()) for name, (_, read) in _READINGS.items()}


def _collector(name: str) -> Callable[[], None]:
    unit, read = _READINGS[name]

    def collect() -> None:
        system_metrics.append(Metric(name, float(read()), unit, dimension))

    return collect


cpu_utilization = _collector("CPUUtilization")
disk_available = _collector("DiskAvailable")
disk_used = _collector("DiskUsage")
disk_utilization = _collector("DiskUtilization")
memory_available = _collector("MemoryAvailable")
memory_used = _collector("MemoryUsed")
memory_utilization = _collector("MemoryUtilization")
_DISK = (disk_available, disk_used, disk_utilization)
_MEMORY = (memory_available, memory_used, memory_utilization)


def gpu_utilization(num_of_gpu: int) -> None:
    """Collect nothing without GPUs; with them, raise as on a stock server, which has no nvgpu."""
    if num_of_gpu > 0:
        importlib.import_module("nvgpu")


def collect_all(mod: object, num_of_gpu: int) -> None:  # noqa: ARG001 - the server looks for its functions there
    """Collect everything, and log it."""
    for collect in (cpu_utilization, *_DISK, *_MEMORY):
        collect()
    gpu_utilization(num_of_gpu)
    for metric in system_metrics:
        logger.info(str(metric))
    logger.info("")


def get_cpu_usage(pid: str) -> int:
    """Return the bytes of memory that a process has resident (the name is the server's), 0 if there is none."""
    try:
        return int(psutil.Process(int(pid)).memory_info().rss)
    except psutil.Error:
        logger.exception("there is no process %s", pid)
        return 0
