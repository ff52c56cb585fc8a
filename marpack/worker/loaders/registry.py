"""Which module loads which format, and what a loader is told."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from marpack.errors import WeightsError
from marpack.weights.kind import FORMATS, WeightsFormat

if TYPE_CHECKING:
    import torch

_TENSORS_ALONE = "eager:refuse_tensors"
_STATE = "torch_save:load_job"  # torch.load says why the others are none


class Job(Struct, frozen=True, kw_only=True):
    """One file to load."""

    path: Path
    device: "torch.device"
    trust_pickle: bool = False  # the user said --trust-pickle: the pickle's code may run


def load_model(kind: WeightsFormat, job: Job) -> Any:  # Any: a module, a session or a compiled function
    """Load a file that is a model by itself; raises WeightsError for tensors alone, and for no format that is known."""
    row = FORMATS[kind]
    loader = _TENSORS_ALONE if row.state else row.model
    if loader is None:
        raise WeightsError(
            "the weights are of no format that is known",
            where=job.path.name,
            hint="is the file whole? TorchScript, ONNX, torch.export and AOTInductor are loaded without a model file",
            code="unknown-weights-format",
        )
    return _call(loader, job)


def load_state(kind: WeightsFormat, job: Job) -> Any:  # Any: a state_dict, if all is well
    """Load the tensors for an eager model."""
    return _call(FORMATS[kind].state or _STATE, job)


def _call(loader: str, job: Job) -> Any:
    module, _, function = loader.partition(":")
    return getattr(importlib.import_module(f"marpack.worker.loaders.{module}"), function)(job)
