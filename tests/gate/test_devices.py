import pytest

from marpack.errors import UsageError
from marpack.gate.devices import Device


@pytest.mark.parametrize(
    ("text", "name", "number"),
    [("auto", "auto", None), ("cpu", "cpu", None), ("cuda", "cuda", 0), ("cuda:3", "cuda", 3)],
)
def test_devices_are_named(text: str, name: str, number: int | None):
    assert Device.parse(text) == Device(name, number)


@pytest.mark.parametrize("text", ["", "gpu", "cpu:0", "auto:1", "cuda:", "cuda:x", "CUDA"])
def test_what_is_no_device_is_refused(text: str):
    with pytest.raises(UsageError, match="no device"):
        Device.parse(text)


def test_cpu_hides_cuda_from_the_handler():
    environment = Device.parse("cpu").environment()
    assert environment is not None
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert Device.parse("cpu").gpu_id() is None
    assert Device.parse("cuda:1").gpu_id() == 1
    assert Device.parse("cuda:1").environment() is None
