"""Safetensors: a state_dict that no code can hide in, mapped into memory.

`python -m marpack.worker.loaders.safetensors SOURCE TARGET` writes it as torch.save would, for the server.
"""

import sys
from pathlib import Path

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


def convert(source: Path, target: Path) -> None:
    """Write a safetensors file's tensors as a state_dict, tensor by tensor; raises as `load_job` does."""
    torch.save(load_job(Job(path=source, device=torch.device("cpu"))), target)


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:]))
