"""The device that a model runs on, chosen from the machine's accelerators and the worker's GPU (contract §6)."""

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from marpack.errors import DeviceUnavailableError

if TYPE_CHECKING:
    import torch


class Hardware(Struct, frozen=True, kw_only=True):
    """The accelerators that torch can use here."""

    cuda: bool = False
    xpu: bool = False
    mps: bool = False
    xla: bool = False


def choose(machine: Hardware, gpu_id: int | str | None) -> str:
    """Choose the device as the server does (contract §6); without a GPU given, only XLA beats the CPU.

    Returns its name, such as "cuda:1"; "xla" stands for whatever torch_xla calls its device.
    """
    given = gpu_id is not None
    if machine.cuda and given:
        return f"cuda:{gpu_id}"
    if machine.xpu and given:
        return f"xpu:{gpu_id}"
    if machine.mps and given:
        return "mps"
    return "xla" if machine.xla else "cpu"


_HINTS = {
    "cuda": "Install a CUDA build of torch",
    "xpu": "Install an XPU build of torch",
    "mps": "Run it on a Mac with Apple silicon",
    "xla": "Install torch_xla",
}


def unavailable(name: str, *, others: bool = False) -> DeviceUnavailableError:
    """Return the error for a device that this machine or its torch does not have; `others`: it has some of the kind."""
    kind, _, number = name.partition(":")
    where = f"--device {name}"
    if others:
        hint = "Use a smaller device number, or --device cpu."
        return DeviceUnavailableError(f"{kind.upper()} device {number} is not available", where=where, hint=hint)
    hint = f"{_HINTS[kind]}, or use --device cpu."
    return DeviceUnavailableError(f"{kind.upper()} is not available", where=where, hint=hint)


def expect_usable(name: str, environ: Mapping[str, str]) -> None:
    """Raise DeviceUnavailableError unless torch can use a device."""
    kind, _, number = name.partition(":")
    if kind == "cpu":
        return
    try:
        machine = survey(environ)
    except ImportError:
        machine = Hardware()
    if not getattr(machine, kind):
        raise unavailable(name)
    if not number:
        return
    import torch  # noqa: PLC0415 - the parent process reads --device without torch

    if int(number) >= (torch.cuda if kind == "cuda" else torch.xpu).device_count():
        raise unavailable(name, others=True)


def survey(environ: Mapping[str, str]) -> Hardware:
    """Return the accelerators of this machine; Intel GPUs count only where the server's switch for them is on."""
    import torch  # noqa: PLC0415 - as above

    return Hardware(
        cuda=torch.cuda.is_available(),
        xpu=environ.get("TS_IPEX_GPU_ENABLE") == "true" and torch.xpu.is_available(),
        mps=torch.backends.mps.is_available(),
        xla=importlib.util.find_spec("torch_xla") is not None,
    )


def torch_device(name: str) -> "torch.device":
    """Return torch's object for a chosen device."""
    import torch  # noqa: PLC0415 - as above

    if name == "xla":
        import torch_xla.core.xla_model as xm  # noqa: PLC0415 - only where XLA was found

        device: torch.device = xm.xla_device()
        return device
    return torch.device(name)
