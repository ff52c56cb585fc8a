import sys
from contextlib import nullcontext
from types import ModuleType

import pytest
import torch

from marpack.errors import DeviceUnavailableError
from marpack.runner.session import Device
from marpack.worker.loaders.device import choose, expect_usable, survey, torch_device


@pytest.mark.parametrize(
    ("machine", "gpu_id", "wanted"),
    [
        ("", None, "cpu"),
        ("", 0, "cpu"),
        ("cuda", None, "cpu"),
        ("cuda", 3, "cuda:3"),
        ("cuda", "1", "cuda:1"),  # MockContext's is text
        ("xpu", 2, "xpu:2"),
        ("xpu", None, "cpu"),
        ("mps", 0, "mps"),
        ("mps", None, "cpu"),
        ("xla", None, "xla"),
        ("xla", 0, "xla"),
        ("cuda xpu mps xla", 1, "cuda:1"),
        ("xpu mps xla", 1, "xpu:1"),
        ("mps xla", 1, "mps"),
        ("cuda xpu mps xla", None, "xla"),
    ],
)
def test_choose(machine: str, gpu_id: int | str | None, wanted: str):
    assert choose(set(machine.split()), gpu_id) == wanted


@pytest.mark.parametrize(
    ("name", "count", "usable"),
    [*(("cpu", 0, True), ("cuda", 1, True), ("cuda:1", 2, True), ("xla", 0, True)),
     *(("cuda", 0, False), ("cuda:1", 1, False), ("xpu", 9, False), ("mps", 0, False))],
)  # fmt: skip
def test_a_device_is_usable_if_torch_has_it(monkeypatch, name: str, count: int, *, usable: bool):
    monkeypatch.setattr("marpack.worker.loaders.device.survey", lambda _: {"cuda"[: 4 * count], "xla"})
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
        (Device.parse("cpu").variables, False),  # --device cpu holds on every machine
    ],
)
def test_intel_gpus_count_where_the_servers_switch_is_on(monkeypatch, environ, on):
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: not on)
    assert ("xpu" in survey(environ), "cuda" in survey(environ)) == (on, not on)


def test_xla_has_the_name_that_torch_xla_gives(monkeypatch):
    model = ModuleType("torch_xla.core.xla_model")
    model.xla_device = lambda: torch.device("meta")
    for name in ("torch_xla", "torch_xla.core"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch_xla.core.xla_model", model)
    assert torch_device("xla") == torch.device("meta")
    assert torch_device("cpu") == torch.device("cpu")
