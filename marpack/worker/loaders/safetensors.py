"""Safetensors: a state_dict that no code can hide in, mapped into memory."""

import torch

from marpack.worker.loaders.registry import Job


def load_job(job: Job) -> dict[str, torch.Tensor]:
    """Return the file's tensors by name, on the device.

    Raises SafetensorError for a damaged file.
    """
    from safetensors.torch import load_file  # noqa: PLC0415 - only where there are safetensors to read

    tensors: dict[str, torch.Tensor] = load_file(
        job.path, device=str(job.device) if job.device.type != "xla" else "cpu"
    )
    return tensors
