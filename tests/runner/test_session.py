import pytest

from marpack.errors import UsageError
from marpack.findings import Severity
from marpack.runner.session import Device, misplaced


@pytest.mark.parametrize(
    ("text", "gpu_id"),
    [("cpu", None), ("cuda", 0), ("cuda:3", 3), ("xpu", 0), ("xpu:1", 1), ("mps", 0), ("xla", None)],
)
def test_devices_are_named(text: str, gpu_id: int | None):
    device = Device.parse(text)
    assert (device.name, device.gpu_id()) == (text, gpu_id)


@pytest.mark.parametrize("text", ["", "gpu", "cpu:0", "auto:1", "cuda:", "cuda:x", "CUDA", "mps:0", "xla:1"])
def test_what_is_no_device_is_refused(text: str):
    with pytest.raises(UsageError, match="no such device"):
        Device.parse(text)


def test_auto_changes_nothing_in_the_environment():
    assert Device.parse("auto").environment() is None


def test_cpu_hides_cuda_from_the_handler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    environment = Device.parse("cpu").environment()
    assert environment is not None
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    environment = Device.parse("cuda:1").environment()
    assert environment is not None
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_xpu_turns_the_servers_switch_on():
    environment = Device.parse("xpu:1").environment()
    assert environment is not None
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["TS_IPEX_GPU_ENABLE"]) == ("", "true")


@pytest.mark.parametrize(
    ("asked", "found"), [("auto", "cpu"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cpu", None), ("xla", "xla:0")]
)
def test_a_model_is_where_it_was_asked_to_be(asked: str, found: str | None):
    assert misplaced(asked, found) is None


@pytest.mark.parametrize("found", ["cpu", "cuda:0"])
def test_a_model_on_another_device_is_told(found: str):
    finding = misplaced("cuda:1", found)
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.message == f"cuda:1 was asked for, the model runs on {found}"
