"""The device a model runs on, decided from what the machine offers and what the worker was given (contract §6)."""

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from marpack.errors import UsageError

if TYPE_CHECKING:
    import torch

_CUDA_HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}


class Hardware(Struct, frozen=True, kw_only=True):
    """The accelerators that torch can use here."""

    cuda: bool = False
    xpu: bool = False
    mps: bool = False
    xla: bool = False


class DeviceChoice(Struct, frozen=True):
    """Where the model goes: what `torch.load` maps to, and the device of model and inputs."""

    map_location: str | None  # the device's type; None for XLA, as on the server
    device: str  # "cuda:1", "cpu"; "xla" stands for whatever torch_xla calls its device


class Override(Struct, frozen=True):
    """What makes the choice come out as the user asked: the worker's GPU, and its environment."""

    gpu_id: int | None
    environ: dict[str, str]


def choose(machine: Hardware, gpu_id: int | str | None, *, xpu_enabled: bool = False) -> DeviceChoice:
    """Choose the device as the server does (contract §6); without a GPU given, only XLA beats the CPU."""
    given = gpu_id is not None
    if machine.cuda and given:
        return DeviceChoice("cuda", f"cuda:{gpu_id}")
    if xpu_enabled and machine.xpu and given:
        return DeviceChoice("xpu", f"xpu:{gpu_id}")
    if machine.mps and given:
        return DeviceChoice("mps", "mps")
    if machine.xla:
        return DeviceChoice(None, "xla")
    return DeviceChoice("cpu", "cpu")


def override(spec: str) -> Override:
    """Translate `--device` into the GPU and environment that a worker starts with; `cpu` hides CUDA from the handler.

    Raises UsageError for anything but cpu, cuda[:N], xpu[:N], mps and xla.
    """
    kind, _, number = spec.partition(":")
    numbered = kind in {"cuda", "xpu"} and (number.isdecimal() or (not number and ":" not in spec))
    if not numbered and spec not in {"cpu", "mps", "xla"}:
        raise UsageError(f"no such device: {spec}", where="--device", hint="one of cpu, cuda, cuda:N, xpu:N, mps, xla")
    gpu_id = None if kind in {"cpu", "xla"} else int(number or 0)
    return Override(gpu_id, _environ_for(kind))


def _environ_for(kind: str) -> dict[str, str]:
    environ = {} if kind == "cuda" else dict(_CUDA_HIDDEN)
    if kind == "cpu":
        environ["PJRT_DEVICE"] = "CPU"  # torch_xla, where installed, then computes on the CPU as well
    return environ | {"TS_IPEX_GPU_ENABLE": "true" if kind == "xpu" else "false"}


def survey() -> Hardware:
    """Ask torch what this machine offers."""
    import torch  # noqa: PLC0415 - the parent process reads --device without torch

    return Hardware(
        cuda=torch.cuda.is_available(),
        xpu=torch.xpu.is_available(),
        mps=torch.backends.mps.is_available(),
        xla=importlib.util.find_spec("torch_xla") is not None,
    )


def xpu_enabled(environ: Mapping[str, str]) -> bool:
    """Say whether the server's switch for Intel GPUs is on."""
    return environ.get("TS_IPEX_GPU_ENABLE", "false") == "true"


def torch_device(choice: DeviceChoice) -> "torch.device":
    """Return torch's object for a chosen device."""
    import torch  # noqa: PLC0415 - as above

    if choice.device == "xla":
        import torch_xla.core.xla_model as xm  # noqa: PLC0415 - only where XLA was found

        device: torch.device = xm.xla_device()
        return device
    return torch.device(choice.device)


def use_tensor_cores() -> None:
    """Let float32 matrix products use TF32 on Ampere or newer, as the server does on import of its base handler."""
    import torch  # noqa: PLC0415 - as above

    if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0):
        torch.set_float32_matmul_precision("high")
