"""AOTInductor: a model compiled ahead of time, as a shared library or as a package."""

from typing import Any

import torch

from marpack.loaders.job import Job
from marpack.loaders.packages import weights_only

Compiled = Any  # a function of the exported signature


def settle_on(device: torch.device) -> None:
    """Make a GPU the current one: the library's loader takes no device of its own."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def load_library(path: str, map_location: str | None) -> Compiled:
    """Load an AOTInductor shared library, which is native code, and return what calls it."""
    from torch._export import aot_load  # noqa: PLC0415 - heavy; and torch has no public name for it

    return aot_load(path, str(map_location))


def load_aoti(job: Job) -> Compiled:
    """Load a shared library."""
    settle_on(job.device)
    return load_library(str(job.path), job.map_location)


def load_package(job: Job) -> Compiled:
    """Load an AOTInductor package, which is native code, to the device."""
    from torch._inductor import aoti_load_package  # noqa: PLC0415 - heavy; torch documents it by this name

    index = job.device.index if job.device.type == "cuda" else -1
    with weights_only(job.path, trust=job.trust_pickle):
        return aoti_load_package(str(job.path), device_index=index)
