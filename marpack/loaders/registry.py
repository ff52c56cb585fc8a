"""Which module loads which format; a module is imported when its format turns up."""

import importlib
from typing import TYPE_CHECKING, Any

from marpack.errors import WeightsError
from marpack.weights.kind import Kind

if TYPE_CHECKING:
    from marpack.loaders.job import Job

# Format → "module:function"; every function takes a Job.
LOADERS = {
    Kind.TORCHSCRIPT: "marpack.loaders.torchscript:load_job",
    Kind.STATE_DICT: "marpack.loaders.pickles:refuse_state_dict",
    Kind.PICKLED_MODULE: "marpack.loaders.pickles:load_job",
    Kind.SAFETENSORS: "marpack.loaders.tensors:load_job",
    Kind.ONNX: "marpack.loaders.onnx:load_job",
    Kind.TORCH_EXPORT: "marpack.loaders.export:load_job",
    Kind.AOTI_PACKAGE: "marpack.loaders.aoti:load_package",
    Kind.ELF: "marpack.loaders.aoti:load_job",
}


def load(kind: Kind, job: "Job") -> Any:  # Any: a module, a session, a compiled function or a state_dict
    """Load a file with its format's own loader.

    Raises WeightsError for a format that no loader takes.
    """
    if kind not in LOADERS:
        raise WeightsError(
            "the weights are of no format that is known",
            where=job.path.name,
            hint="is the file whole? TorchScript, ONNX, safetensors, torch.export and AOTInductor are loaded",
        )
    module, function = LOADERS[kind].split(":")
    return getattr(importlib.import_module(module), function)(job)
