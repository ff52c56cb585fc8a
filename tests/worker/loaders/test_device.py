import sys
from types import ModuleType

import pytest
import torch

from marpack.errors import UsageError
from marpack.worker.loaders.device import (
    DeviceChoice,
    Hardware,
    Override,
    choose,
    override,
    survey,
    torch_device,
    xpu_enabled,
)

ALL = Hardware(cuda=True, xpu=True, mps=True, xla=True)
CPU = DeviceChoice("cpu", "cpu")
XLA = DeviceChoice(None, "xla")


@pytest.mark.parametrize(
    ("machine", "gpu_id", "xpu", "wanted"),
    [
        (Hardware(), None, False, CPU),
        (Hardware(), 0, False, CPU),
        (Hardware(), 0, True, CPU),
        (Hardware(cuda=True), None, False, CPU),
        (Hardware(cuda=True), 0, False, DeviceChoice("cuda", "cuda:0")),
        (Hardware(cuda=True), 3, False, DeviceChoice("cuda", "cuda:3")),
        (Hardware(cuda=True), "1", False, DeviceChoice("cuda", "cuda:1")),  # MockContext says it as text
        (Hardware(xpu=True), 2, True, DeviceChoice("xpu", "xpu:2")),
        (Hardware(xpu=True), 2, False, CPU),
        (Hardware(xpu=True), None, True, CPU),
        (Hardware(mps=True), 0, False, DeviceChoice("mps", "mps")),
        (Hardware(mps=True), None, False, CPU),
        (Hardware(xla=True), None, False, XLA),
        (Hardware(xla=True), 0, False, XLA),
        (ALL, 1, True, DeviceChoice("cuda", "cuda:1")),
        (Hardware(xpu=True, mps=True, xla=True), 1, True, DeviceChoice("xpu", "xpu:1")),
        (Hardware(xpu=True, mps=True, xla=True), 1, False, DeviceChoice("mps", "mps")),
        (ALL, None, True, XLA),
    ],
)
def test_choose(machine, gpu_id, xpu, wanted):
    assert choose(machine, gpu_id, xpu_enabled=xpu) == wanted


HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "TS_IPEX_GPU_ENABLE": "false"}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("cpu", Override(None, HIDDEN | {"PJRT_DEVICE": "CPU"})),
        ("cuda", Override(0, {"TS_IPEX_GPU_ENABLE": "false"})),
        ("cuda:2", Override(2, {"TS_IPEX_GPU_ENABLE": "false"})),
        ("xpu:1", Override(1, {"CUDA_VISIBLE_DEVICES": "", "TS_IPEX_GPU_ENABLE": "true"})),
        ("mps", Override(0, HIDDEN)),
        ("xla", Override(None, HIDDEN)),
    ],
)
def test_override(spec, wanted):
    assert override(spec) == wanted


@pytest.mark.parametrize("spec", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "mps:1", "CUDA", "cuda:1:2"])
def test_no_such_device(spec):
    with pytest.raises(UsageError, match="--device: no such device") as failure:
        override(spec)
    assert "cuda:N" in failure.value.hint


@pytest.mark.parametrize("gpu_id", [None, 0, 3])
def test_cpu_means_cpu_whatever_the_machine_had(gpu_id):
    """What `--device cpu` hides from torch leaves the CPU."""
    hidden = Hardware(cuda=False, xpu=True, mps=True, xla=False)
    enabled = xpu_enabled(override("cpu").environ)
    assert choose(hidden, override("cpu").gpu_id, xpu_enabled=enabled) == CPU


@pytest.mark.parametrize(
    ("environ", "on"), [({}, False), ({"TS_IPEX_GPU_ENABLE": "true"}, True), ({"TS_IPEX_GPU_ENABLE": "1"}, False)]
)
def test_xpu_enabled(environ, on):
    assert xpu_enabled(environ) is on


def test_survey_asks_torch():
    found = survey()
    assert found.cuda is torch.cuda.is_available()
    assert found.mps is torch.backends.mps.is_available()


def test_torch_device():
    assert torch_device(CPU) == torch.device("cpu")


def test_xla_is_whatever_torch_xla_calls_it(monkeypatch):
    model = ModuleType("torch_xla.core.xla_model")
    model.xla_device = lambda: torch.device("meta")
    for name in ("torch_xla", "torch_xla.core"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch_xla.core.xla_model", model)
    assert torch_device(XLA) == torch.device("meta")
