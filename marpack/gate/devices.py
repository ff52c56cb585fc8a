"""`--device`: which device a worker is given, as the server gives its workers one."""

import os
import re
from pathlib import Path
from typing import Self

from msgspec import Struct

from marpack.errors import UsageError


class Device(Struct, frozen=True):
    """A choice of device: `auto`, `cpu`, or a CUDA device by number."""

    name: str
    number: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the device that a user names; raises UsageError for anything else."""
        match = re.fullmatch(r"(auto|cpu|cuda)(?::(\d+))?", text)
        if match is None or (match[2] and match[1] != "cuda"):
            raise UsageError("this is no device", where=f"--device {text}", hint="use auto, cpu, cuda or cuda:1")
        number = int(match[2] or 0) if match[1] == "cuda" else None
        return cls(match[1], number)

    def gpu_id(self) -> int | None:
        """Return the `gpu_id` that the handler sees: the first GPU under `auto`, as the server deals them out."""
        if self.name == "auto":
            return 0 if Path("/dev/nvidia0").exists() else None
        return self.number

    def environment(self) -> dict[str, str] | None:
        """Return the worker's environment; None: this process's. `cpu` hides CUDA from the handler as well."""
        return {**os.environ, "CUDA_VISIBLE_DEVICES": ""} if self.name == "cpu" else None
