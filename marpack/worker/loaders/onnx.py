"""ONNX Runtime: a session with the providers that fit the device, and the same as a model that tensors go into."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from marpack.errors import HandlerError
from marpack.protocol.diagnostics import Explained, note
from marpack.weights.onnx import ProtobufError, read_header
from marpack.worker.loaders.registry import Job

# ONNX Runtime's names of element types → torch's
_DTYPES = {
    "tensor(float)": torch.float32, "tensor(double)": torch.float64, "tensor(float16)": torch.float16,
    "tensor(int64)": torch.int64, "tensor(int32)": torch.int32, "tensor(int16)": torch.int16,
    "tensor(int8)": torch.int8, "tensor(uint8)": torch.uint8, "tensor(bool)": torch.bool,
}  # fmt: skip

Outputs = torch.Tensor | dict[str, torch.Tensor]


class ModelInputError(HandlerError, TypeError):
    """An ONNX model is called with inputs that its graph does not declare."""

    code = "model-input"


def providers(map_location: str | None) -> list[str]:
    """Return the execution providers for a device, in the order they are tried."""
    return ["CUDAExecutionProvider"] * (map_location == "cuda") + ["CPUExecutionProvider"]


def session(path: str, map_location: str | None) -> Any:  # Any: onnxruntime has no types
    """Open an ONNX file as the server does: every logical core, CUDA first if that is the device."""
    import onnxruntime  # noqa: PLC0415 - only where there is ONNX to run

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 0
    with Explained(partial(_note_refusal, path)):
        opened = onnxruntime.InferenceSession(path, sess_options=options, providers=providers(map_location))
    missing = set(providers(map_location)) - set(opened.get_providers())
    if missing:
        message = f"ONNX Runtime has no {missing.pop()} here: the model runs on the CPU"
        note("onnx-provider", message, stage="initialize", hint="pip install onnxruntime-gpu")
    return opened


class OnnxModel:
    """A session that is called like a torch model; its own methods (`run`, `get_inputs` …) are there too."""

    def __init__(self, opened: Any, device: torch.device) -> None:  # Any: as session
        self._session = opened
        self._device = device
        self._inputs = {port.name: port for port in opened.get_inputs()}
        self._outputs = [port.name for port in opened.get_outputs()]

    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> Outputs:
        """Feed tensors by position or input name; return the one output, or all of them by name.

        Raises ModelInputError for an input too many, too few or of another dtype.
        """
        feeds = self._named(tensors) | named
        self._check(feeds)
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in feeds.items()}
        results = [torch.as_tensor(result, device=self._device) for result in self._session.run(None, arrays)]
        return results[0] if len(results) == 1 else dict(zip(self._outputs, results, strict=True))

    def __getattr__(self, name: str) -> Any:  # Any: the session's own methods
        if name == "_session":  # not set yet, as while unpickling
            raise AttributeError(name)
        return getattr(self._session, name)

    def _named(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        if len(tensors) > len(self._inputs):
            raise ModelInputError(f"{len(tensors)} inputs given, the graph declares {self._declared()}")
        return dict(zip(self._inputs, tensors, strict=False))

    def _check(self, feeds: dict[str, torch.Tensor]) -> None:
        if feeds.keys() != self._inputs.keys():
            given = ", ".join(feeds) or "none"
            raise ModelInputError(f"inputs {given} given, the graph declares {self._declared()}")
        for name, tensor in feeds.items():
            wanted = _DTYPES.get(self._inputs[name].type)
            if tensor.dtype is not wanted:
                raise ModelInputError(
                    f"input {name} is {self._inputs[name].type}, and {tensor.dtype} is given",
                    hint=f"convert it in preprocess: data.to({wanted})" if wanted else None,
                )

    def _declared(self) -> str:
        return ", ".join(f"{name} {port.type} {port.shape}" for name, port in self._inputs.items())


def load_job(job: Job) -> OnnxModel:
    """Open an ONNX file as a model that tensors go into."""
    return OnnxModel(session(str(job.path), job.device.type), job.device)


def _note_refusal(path: str, error: Exception) -> None:
    try:
        with Path(path).open("rb") as file:
            header = read_header(file)
    except (OSError, ProtobufError):
        return
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in header.opsets.items())
    # What ONNX Runtime has to say comes last, after its own file names and signatures.
    said = str(error).strip().rstrip(".").rpartition(". ")[2]
    message = f"ONNX Runtime refuses {Path(path).name} (IR version {header.ir_version}, opset {opsets}): {said}"
    hint = "export it with an opset_version that this ONNX Runtime knows, or update onnxruntime"
    note("onnx-refused", message, stage="initialize", hint=hint)
