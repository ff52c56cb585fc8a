"""TorchScript: the one format that needs no code of the archive's."""

from typing import Any

import torch

from marpack.worker.loaders.registry import Job


def load(path: str, device: torch.device) -> Any:  # Any: a ScriptModule, called with whatever it was traced with
    """Load a TorchScript file to a device; raises RuntimeError for anything else."""
    return torch.jit.load(path, map_location=device)  # type: ignore[no-untyped-call]  # torch has no types here


def load_job(job: Job) -> Any:  # Any: as load
    """Load a TorchScript file to the job's device."""
    return load(str(job.path), job.device)
