"""`--device`: which device a worker is given, as the server gives its workers one."""

import os
from pathlib import Path
from typing import Self

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.worker.loaders.device import Override, override


class Device(Struct, frozen=True):
    """A choice of device: `auto` leaves it to the machine, anything else overrides what the worker finds."""

    name: str
    override: Override | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the device that a user names: auto, cpu, cuda[:N], xpu[:N], mps or xla; raises UsageError."""
        return cls(text, None if text == "auto" else override(text))

    def gpu_id(self) -> int | None:
        """Return the `gpu_id` that the handler sees: the first GPU under `auto`, as the server deals them out."""
        if self.override is None:
            return 0 if Path("/dev/nvidia0").exists() else None
        return self.override.gpu_id

    def environment(self) -> dict[str, str] | None:
        """Return the worker's environment; None: this process's. `cpu` hides CUDA from the handler as well."""
        return None if self.override is None else {**os.environ, **self.override.environ}


def misplaced(asked: str, found: str | None) -> Finding | None:
    """Return what is odd about a model on the device `found` when another was asked for; None: nothing is."""
    if found is None or asked in {"auto", found, found.partition(":")[0]}:
        return None
    return Finding(
        code="other-device",
        severity=Severity.WARNING,
        message=f"{asked} was asked for, the model runs on {found}",
        hint="is there such a device here, and a torch for it? does the handler choose one itself?",
    )
