"""The choice of a device: `auto` leaves it to the machine, any other name overrides what the worker finds."""

import os
import sys
from pathlib import Path
from typing import Self

from msgspec import Struct

from marpack import finding_codes as codes
from marpack.errors import UsageError
from marpack.findings import Finding
from marpack.worker.loaders.device import unavailable

_NODES = {"cuda": "nvidia{}", "xpu": "dri"}  # kind → what each of its devices is below /dev
_SHARED_NODES = ("dxg", "kfd")  # of WSL and ROCm, for all that there are


class Override(Struct, frozen=True):
    """The GPU and the environment of a worker with which it chooses the user's device."""

    gpu_id: int | None
    environ: dict[str, str]

    @classmethod
    def parse(cls, spec: str) -> Self:
        """Translate `--device` into a worker's GPU and environment; `cpu` hides CUDA from the handler.

        Raises UsageError for anything but cpu, cuda[:N], xpu[:N], mps and xla.
        """
        kind, _, number = spec.partition(":")
        numbered = kind in {"cuda", "xpu"} and (number.isdecimal() or (not number and ":" not in spec))
        if not numbered and spec not in {"cpu", "mps", "xla"}:
            hint = "one of cpu, cuda, cuda:N, xpu:N, mps, xla"
            raise UsageError(f"no such device: {spec}", where="--device", hint=hint, code="unknown-device")
        environ = {"TS_IPEX_GPU_ENABLE": "true" if kind == "xpu" else "false"}
        if kind != "cuda":
            environ["CUDA_VISIBLE_DEVICES"] = ""
        if kind == "cpu":
            environ["PJRT_DEVICE"] = "CPU"  # torch_xla, where installed, then computes on the CPU as well
        return cls(None if kind in {"cpu", "xla"} else int(number or 0), environ)


class Device(Struct, frozen=True):
    """A choice of device: `auto` leaves it to the machine, anything else overrides what the worker finds."""

    name: str
    override: Override | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the device that a user names: auto, cpu, cuda[:N], xpu[:N], mps or xla; raises UsageError."""
        return cls(text, None if text == "auto" else Override.parse(text))

    @classmethod
    def available(cls, text: str) -> Self:
        """Return the device that a user names, if the system shows one; whether torch can use it, its worker finds out.

        Raises UsageError as `parse` does, DeviceUnavailableError for a device that this machine does not have.
        """
        device = cls.parse(text)
        kind, _, number = device.name.partition(":")
        if kind == "mps" and sys.platform != "darwin":
            raise unavailable(device.name)
        if kind in _NODES and not _has_node(_NODES[kind].format(number or "*"), *_SHARED_NODES):
            raise unavailable(device.name, others=bool(number) and _has_node(_NODES[kind].format("*")))
        return device

    def gpu_id(self) -> int | None:
        """Return the `gpu_id` that the handler sees: the first GPU under `auto`, as the server deals them out."""
        if self.override is None:
            return 0 if Path("/dev/nvidia0").exists() else None
        return self.override.gpu_id

    def gpu_ids(self) -> tuple[int, ...]:
        """Return the GPUs that are dealt out to workers under `auto`: all that the system shows."""
        return () if self.override is not None else tuple(range(len(list(Path("/dev").glob("nvidia[0-9]*")))))

    def environment(self) -> dict[str, str] | None:
        """Return the worker's environment; None: this process's. `cpu` hides CUDA from the handler as well."""
        return None if self.override is None else {**os.environ, **self.override.environ}


def _has_node(*patterns: str) -> bool:
    return any(True for pattern in patterns for _ in Path("/dev").glob(pattern))


def device_mismatch(asked: str, found: str | None) -> Finding | None:
    """Return what is odd about a model on the device `found` when another was asked for; None: nothing is."""
    if found is None or asked in {"auto", found, found.partition(":")[0]}:
        return None
    return codes.OTHER_DEVICE.at(asked=asked, found=found)
