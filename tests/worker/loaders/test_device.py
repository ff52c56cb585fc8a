import sys
from contextlib import nullcontext
from types import ModuleType

import pytest
import torch

from marpack.errors import DeviceUnavailableError
from marpack.runner.session import Device
from marpack.worker.loaders.device import (
    Hardware,
    choose,
    expect_usable,
    survey,
    torch_device,
)

ALL = Hardware(cuda=True, xpu=True, mps=True, xla=True)


@pytest.mark.parametrize(
    ("machine", "gpu_id", "wanted"),
    [
        (Hardware(), None, "cpu"),
        (Hardware(), 0, "cpu"),
        (Hardware(cuda=True), None, "cpu"),
        (Hardware(cuda=True), 0, "cuda:0"),
        (Hardware(cuda=True), 3, "cuda:3"),
        (Hardware(cuda=True), "1", "cuda:1"),  # MockContext says it as text
        (Hardware(xpu=True), 2, "xpu:2"),
        (Hardware(xpu=True), None, "cpu"),
        (Hardware(mps=True), 0, "mps"),
        (Hardware(mps=True), None, "cpu"),
        (Hardware(xla=True), None, "xla"),
        (Hardware(xla=True), 0, "xla"),
        (ALL, 1, "cuda:1"),
        (Hardware(xpu=True, mps=True, xla=True), 1, "xpu:1"),
        (Hardware(mps=True, xla=True), 1, "mps"),
        (ALL, None, "xla"),
    ],
)
def test_choose(machine, gpu_id, wanted):
    assert choose(machine, gpu_id) == wanted


@pytest.mark.parametrize(
    ("name", "count", "usable"),
    [*(("cpu", 0, True), ("cuda", 1, True), ("cuda:1", 2, True), ("xla", 0, True)),
     *(("cuda", 0, False), ("cuda:1", 1, False), ("xpu", 9, False), ("mps", 0, False))],
)  # fmt: skip
def test_a_device_is_usable_if_torch_has_it(monkeypatch, name: str, count: int, *, usable: bool):
    monkeypatch.setattr("marpack.worker.loaders.device.survey", lambda _: Hardware(cuda=count > 0, xla=True))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with nullcontext() if usable else pytest.raises(DeviceUnavailableError):
        expect_usable(name, {})


def test_without_torch_no_accelerator_is_usable(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DeviceUnavailableError):
        expect_usable("cuda", {})


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"TS_IPEX_GPU_ENABLE": "true"}, True),
        ({"TS_IPEX_GPU_ENABLE": "1"}, False),
        (Device.parse("cpu").variables, False),  # whatever the machine has, --device cpu means it
    ],
)
def test_intel_gpus_count_where_the_servers_switch_is_on(monkeypatch, environ, on):
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    assert survey(environ).xpu is on


def test_survey_asks_torch():
    found = survey({})
    assert found.cuda is torch.cuda.is_available()
    assert found.mps is torch.backends.mps.is_available()


def test_torch_device():
    assert torch_device("cpu") == torch.device("cpu")


def test_xla_is_whatever_torch_xla_calls_it(monkeypatch):
    model = ModuleType("torch_xla.core.xla_model")
    model.xla_device = lambda: torch.device("meta")
    for name in ("torch_xla", "torch_xla.core"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch_xla.core.xla_model", model)
    assert torch_device("xla") == torch.device("meta")
