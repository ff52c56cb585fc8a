"""Which module loads which format, and what a loader is told."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from marpack.errors import WeightsError
from marpack.weights.detect import WeightsFormat

if TYPE_CHECKING:
    import torch

# Format → "module:function"; every function takes a Job.
MODELS = {
    WeightsFormat.TORCHSCRIPT: "marpack.worker.loaders.torchscript:load_job",
    WeightsFormat.STATE_DICT: "marpack.worker.loaders.eager:refuse_tensors",
    WeightsFormat.SAFETENSORS: "marpack.worker.loaders.eager:refuse_tensors",
    WeightsFormat.PICKLED_MODULE: "marpack.worker.loaders.torch_save:load_job",
    WeightsFormat.ONNX: "marpack.worker.loaders.onnx:load_job",
    WeightsFormat.TORCH_EXPORT: "marpack.worker.loaders.pt2:load_exported",
    WeightsFormat.AOTI_PACKAGE: "marpack.worker.loaders.pt2:load_package",
    WeightsFormat.ELF: "marpack.worker.loaders.pt2:load_aoti",
}
# What an eager model is filled with; anything else goes to torch.load, which says why not.
STATES = {WeightsFormat.SAFETENSORS: "marpack.worker.loaders.safetensors:load_job"}
_STATE = "marpack.worker.loaders.torch_save:load_job"


class Job(Struct, frozen=True, kw_only=True):
    """One file to load."""

    path: Path
    device: "torch.device"
    map_location: str | None = None  # the device's type; None for XLA
    trust_pickle: bool = False  # the user said --trust-pickle: the pickle's code may run


def load_model(kind: WeightsFormat, job: Job) -> Any:  # Any: a module, a session or a compiled function
    """Load a file that is a model by itself; raises WeightsError for tensors alone, and for no format that is known."""
    if kind not in MODELS:
        raise WeightsError(
            "the weights are of no format that is known",
            where=job.path.name,
            hint="is the file whole? TorchScript, ONNX, torch.export and AOTInductor are loaded without a model file",
        )
    return _call(MODELS[kind], job)


def load_state(kind: WeightsFormat, job: Job) -> Any:  # Any: a state_dict, if all is well
    """Load the tensors for an eager model."""
    return _call(STATES.get(kind, _STATE), job)


def _call(loader: str, job: Job) -> Any:
    module, _, function = loader.partition(":")
    return getattr(importlib.import_module(module), function)(job)
