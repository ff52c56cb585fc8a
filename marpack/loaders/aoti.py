"""AOTInductor: a model compiled ahead of time, as a shared library or as a package."""

from typing import Any

import torch


def settle_on(device: torch.device) -> None:
    """Make a GPU the current one: the library's loader takes no device of its own."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def load_library(path: str, map_location: str | None) -> Any:  # Any: a function of the exported signature
    """Load an AOTInductor shared library and return what calls it."""
    from torch._export import aot_load  # noqa: PLC0415 - heavy; and torch has no public name for it

    return aot_load(path, str(map_location))
