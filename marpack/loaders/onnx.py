"""ONNX Runtime sessions, with the providers that fit the device."""

import os
from typing import Any


def session(path: str, map_location: str | None) -> Any:  # Any: onnxruntime has no types
    """Open an ONNX file as the server does: every logical core, CUDA first if that is the device."""
    import onnxruntime  # noqa: PLC0415 - only where there is ONNX to run

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 0
    return onnxruntime.InferenceSession(path, sess_options=options, providers=providers(map_location))


def providers(map_location: str | None) -> list[str]:
    """Return the execution providers for a device, in the order they are tried."""
    return ["CUDAExecutionProvider"] * (map_location == "cuda") + ["CPUExecutionProvider"]
