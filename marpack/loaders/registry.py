"""Which module loads which format; a module is imported when its format turns up."""

import importlib
from typing import TYPE_CHECKING, Any

from marpack.errors import WeightsError
from marpack.weights.detect import Kind

if TYPE_CHECKING:
    from marpack.loaders.job import Job

# Format → "module:function"; every function takes a Job.
MODELS = {
    Kind.TORCHSCRIPT: "marpack.loaders.torchscript:load_job",
    Kind.STATE_DICT: "marpack.loaders.eager:refuse_tensors",
    Kind.SAFETENSORS: "marpack.loaders.eager:refuse_tensors",
    Kind.PICKLED_MODULE: "marpack.loaders.pickles:load_job",
    Kind.ONNX: "marpack.loaders.onnx:load_job",
    Kind.TORCH_EXPORT: "marpack.loaders.export:load_exported",
    Kind.AOTI_PACKAGE: "marpack.loaders.aoti:load_package",
    Kind.ELF: "marpack.loaders.aoti:load_aoti",
}
# What an eager model is filled with; anything else goes to torch.load, which says why not.
STATES = {Kind.SAFETENSORS: "marpack.loaders.tensors:load_job"}
_STATE = "marpack.loaders.pickles:load_job"


def load_model(kind: Kind, job: "Job") -> Any:  # Any: a module, a session or a compiled function
    """Load a file that is a model by itself; raises WeightsError for tensors alone, and for no format that is known."""
    if kind not in MODELS:
        raise WeightsError(
            "the weights are of no format that is known",
            where=job.path.name,
            hint="is the file whole? TorchScript, ONNX, torch.export and AOTInductor are loaded without a model file",
        )
    return _call(MODELS[kind], job)


def load_state(kind: Kind, job: "Job") -> Any:  # Any: a state_dict, if all is well
    """Load the tensors for an eager model."""
    return _call(STATES.get(kind, _STATE), job)


def _call(loader: str, job: "Job") -> Any:  # Any: as above
    module, _, function = loader.partition(":")
    return getattr(importlib.import_module(module), function)(job)
