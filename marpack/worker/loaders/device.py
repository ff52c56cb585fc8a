"""The device that a model runs on, chosen from the machine's accelerators and the worker's GPU (contract §6)."""

import importlib.util
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from marpack.errors import DeviceUnavailableError

if TYPE_CHECKING:
    import torch

_HINTS = {
    "cuda": "Install a CUDA build of torch",
    "xpu": "Install an XPU build of torch",
    "mps": "Run it on a Mac with Apple silicon",
    "xla": "Install torch_xla",
}


def choose(machine: Collection[str], gpu_id: int | str | None) -> str:
    """Choose the device as the server does (contract §6); without a GPU given, only XLA beats the CPU.

    Returns its name, such as "cuda:1"; "xla" stands for the name that torch_xla gives its device.
    """
    if gpu_id is not None:
        for kind, name in (("cuda", f"cuda:{gpu_id}"), ("xpu", f"xpu:{gpu_id}"), ("mps", "mps")):
            if kind in machine:
                return name
    return "xla" if "xla" in machine else "cpu"


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
        import torch  # noqa: PLC0415 - the parent process reads --device without torch
    except ImportError:
        raise unavailable(name) from None
    if kind not in survey(environ):
        raise unavailable(name)
    if number and int(number) >= (torch.cuda if kind == "cuda" else torch.xpu).device_count():
        raise unavailable(name, others=True)


def survey(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the kinds of accelerator that torch can use here; xpu only where the server's switch for it is on."""
    import torch  # noqa: PLC0415 - as above

    found = {
        "cuda": torch.cuda.is_available(),
        "xpu": environ.get("TS_IPEX_GPU_ENABLE") == "true" and torch.xpu.is_available(),
        "mps": torch.backends.mps.is_available(),
        "xla": importlib.util.find_spec("torch_xla") is not None,
    }
    return frozenset(kind for kind, is_usable in found.items() if is_usable)


def torch_device(name: str) -> "torch.device":
    """Return torch's object for a chosen device."""
    import torch  # noqa: PLC0415 - as above

    if name != "xla":
        return torch.device(name)
    import torch_xla.core.xla_model as xm  # noqa: PLC0415 - only where XLA was found

    device: torch.device = xm.xla_device()
    return device
