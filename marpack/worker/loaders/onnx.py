"""ONNX Runtime: a session with the providers that fit the device, and a model that takes tensors."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from marpack.errors import HandlerError
from marpack.protocol.diagnostics import Explained, note
from marpack.weights.onnx import ProtobufError, read_header

# ONNX Runtime's names of element types → torch's
_DTYPES = {
    "tensor(float)": torch.float32, "tensor(double)": torch.float64, "tensor(float16)": torch.float16,
    "tensor(int64)": torch.int64, "tensor(int32)": torch.int32, "tensor(int16)": torch.int16,
    "tensor(int8)": torch.int8, "tensor(uint8)": torch.uint8, "tensor(bool)": torch.bool,
}  # fmt: skip


class ModelInputError(HandlerError, TypeError):
    """An ONNX model is called with inputs that its graph does not declare."""

    code = "model-input"


def open_session(path: str, map_location: str | None) -> Any:  # Any: onnxruntime has no types
    """Open an ONNX file as the server does: every logical core, CUDA first if that is the device."""
    import onnxruntime  # noqa: PLC0415 - only where there is ONNX to run

    providers = ["CUDAExecutionProvider"] * (map_location == "cuda") + ["CPUExecutionProvider"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 0
    with Explained(partial(_note_refusal, path)):
        session = onnxruntime.InferenceSession(path, sess_options=options, providers=providers)
    missing = set(providers) - set(session.get_providers())
    if missing:
        message = f"ONNX Runtime has no {missing.pop()} here: the model runs on the CPU"
        note("onnx-provider", message, stage="initialize", hint="pip install onnxruntime-gpu")
    return session


def _note_refusal(path: str, error: Exception) -> None:
    try:
        with Path(path).open("rb") as file:
            header = read_header(file)
    except (OSError, ProtobufError):
        return
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in header.opsets.items())
    # ONNX Runtime's reason comes last, after its own file names and signatures.
    reason = str(error).strip().rstrip(".").rpartition(". ")[2]
    message = f"ONNX Runtime refuses {Path(path).name} (IR version {header.ir_version}, opset {opsets}): {reason}"
    hint = "export it with an opset_version that this ONNX Runtime knows, or update onnxruntime"
    note("onnx-refused", message, stage="initialize", hint=hint)


class OnnxModel:
    """A session that is called like a torch model; it also has the session's own methods (`run`, `get_inputs` …)."""

    def __init__(self, session: Any, device: torch.device) -> None:  # Any: onnxruntime has no types
        self._session = session
        self._device = device
        self._inputs = {port.name: port for port in session.get_inputs()}
        self._outputs = [port.name for port in session.get_outputs()]

    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """Feed tensors by position or input name; return the one output, or all of them by name.

        Raises ModelInputError for an input too many, too few or of another dtype.
        """
        feeds = dict(zip(self._inputs, tensors, strict=False)) | named
        if len(tensors) > len(self._inputs) or feeds.keys() != self._inputs.keys():
            given = str(len(tensors)) if len(tensors) > len(self._inputs) else ", ".join(feeds) or "no"
            declared = ", ".join(f"{name} {port.type} {port.shape}" for name, port in self._inputs.items())
            raise ModelInputError(f"the call has the inputs {given}, the graph declares {declared}")
        for name, tensor in feeds.items():
            wanted = _DTYPES.get(self._inputs[name].type)
            if tensor.dtype is not wanted:
                raise ModelInputError(
                    f"input {name} is {self._inputs[name].type}, not {tensor.dtype}",
                    hint=f"convert it in preprocess: data.to({wanted})" if wanted else None,
                )
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in feeds.items()}
        results = [torch.as_tensor(result, device=self._device) for result in self._session.run(None, arrays)]
        return results[0] if len(results) == 1 else dict(zip(self._outputs, results, strict=True))

    def __getattr__(self, name: str) -> Any:  # Any: the session's own methods
        if name == "_session":  # not set yet, as while unpickling
            raise AttributeError(name)
        return getattr(self._session, name)
