"""TorchScript: the one format that needs no code of the archive's."""

import torch

from marpack.worker.loaders.registry import Job


def load(path: str, device: torch.device | str | None) -> torch.jit.ScriptModule:
    """Load a TorchScript file to a device; raises RuntimeError for anything else."""
    module: torch.jit.ScriptModule = torch.jit.load(path, map_location=device)  # type: ignore[no-untyped-call]
    return module


def load_job(job: Job) -> torch.jit.ScriptModule:
    """Load a TorchScript file to the job's device."""
    return load(str(job.path), job.device)
