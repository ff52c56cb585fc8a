""".pt2 and .so: exported programs and AOTInductor, held to weights_only."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from marpack.errors import WeightsError
from marpack.weights.exported_scan import scan_exported
from marpack.weights.pickle_machine import OpcodeBudget
from marpack.weights.torch_zip import TorchZip
from marpack.worker.loaders.registry import Job

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
# Constants that torch unpickles without asking torch.load; it looks them up without regard to case.
_CODE = re.compile(r"(?:^|/)data/constants/(?:opaque|custom)_obj", re.IGNORECASE)
Compiled = Any  # a function of the exported signature


class PackageNeedsCodeError(WeightsError):
    """A package holds constants or text that torch would run as code, or that marpack does not know."""

    code = "package-needs-code"


@contextmanager
def weights_only(path: Path, *, trust: bool) -> Iterator[None]:
    """Hold torch to weights_only=True for as long as a package is being opened, unless it is trusted.

    Raises PackageNeedsCodeError.
    """
    if trust:
        yield
        return
    _refuse_code(path)
    before = {name: text for name, text in os.environ.items() if name == _FORCE}
    os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        del os.environ[_FORCE]
        os.environ.update(before)


def _refuse_code(path: Path) -> None:
    with path.open("rb") as file:
        archive = TorchZip.read(file)
        member = next((entry.name for entry in archive.entries if _CODE.search(entry.name)), None)
        what = "the package holds an object that is made by running pickled code"
        if member is None and archive.is_exported:
            for problem in scan_exported(archive, OpcodeBudget()).problems:
                member, what = problem.member, f"loading the package can run code: {problem.reason}"
                break
    if member is not None:
        raise PackageNeedsCodeError(
            what,
            where=f"{path.name}!{member}",
            hint="export the model without custom objects; or, if you trust it as you trust code, --trust-pickle",
        )


def load_exported(job: Job) -> torch.nn.Module:
    """Load a program to the device and return its module."""
    with weights_only(job.path, trust=job.trust_pickle):
        program = torch.export.load(job.path)
    # The CPU is where programs are exported as a rule; moving one there rewrites nothing.
    return _moved(program, job.device).module()


def _moved(program: torch.export.ExportedProgram, device: torch.device) -> torch.export.ExportedProgram:
    from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - heavy, and only for programs

    there = {
        tensor.device.type
        for tensor in (*program.state_dict.values(), *program.constants.values())
        if isinstance(tensor, torch.Tensor)
    }
    return program if there <= {device.type} else move_to_device_pass(program, str(device))


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
    return load_library(str(job.path), job.device.type)


def load_package(job: Job) -> Compiled:
    """Load an AOTInductor package, which is native code, to the device."""
    from torch._inductor import aoti_load_package  # noqa: PLC0415 - heavy; torch documents it by this name

    index = job.device.index if job.device.type == "cuda" else -1
    with weights_only(job.path, trust=job.trust_pickle):
        return aoti_load_package(str(job.path), device_index=index)
