import logging
import os

import pytest

from marpack.torchserve import system_metrics


@pytest.fixture(autouse=True)
def _emptied():
    yield
    system_metrics.system_metrics.clear()


def test_a_metric_of_the_machine_is_collected():
    system_metrics.memory_utilization()
    (metric,) = system_metrics.system_metrics
    assert (metric.name, metric.unit) == ("MemoryUtilization", "Percent")
    assert 0 < metric.value <= 100


def test_all_of_them_are_logged(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        system_metrics.collect_all(system_metrics, 0)
    assert [metric.name for metric in system_metrics.system_metrics] == [
        "CPUUtilization", "DiskAvailable", "DiskUsage", "DiskUtilization", "MemoryAvailable", "MemoryUsed",
        "MemoryUtilization",
    ]  # fmt: skip
    assert caplog.messages[0].startswith("CPUUtilization.Percent:")


def test_a_sample_tells_what_is_collected():
    system_metrics.collect_all(system_metrics, 0)
    sample = system_metrics.sample_system()
    assert list(sample) == [metric.name for metric in system_metrics.system_metrics]
    assert sample["MemoryUsed"] > 1
    assert 0 < sample["DiskUtilization"] <= 100


def test_gpus_need_a_package_that_no_stock_server_has():
    with pytest.raises(ModuleNotFoundError, match="nvgpu"):
        system_metrics.gpu_utilization(1)


def test_a_processs_memory():
    assert system_metrics.get_cpu_usage(str(os.getpid())) > 1 << 20
    assert system_metrics.get_cpu_usage("99999999") == 0
