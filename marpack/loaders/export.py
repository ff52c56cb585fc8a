"""torch.export programs: a graph without the code it was traced from."""

from typing import Any

import torch

from marpack.loaders.job import Job
from marpack.loaders.packages import weights_only


def load_exported(job: Job) -> Any:  # Any: a GraphModule, called with what it was exported with
    """Load a program to the device and return its module."""
    with weights_only(job.path, trust=job.trust_pickle):
        program = torch.export.load(job.path)
    # The CPU is where programs are exported as a rule; moving one there rewrites nothing.
    return _moved(program, job.device).module()


def _moved(program: torch.export.ExportedProgram, device: torch.device) -> torch.export.ExportedProgram:
    from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - heavy, and only for programs

    there = {
        tensor.device.type
        for tensor in (*program.state_dict.values(), *program.constants.values())
        if isinstance(tensor, torch.Tensor)
    }
    return program if there <= {device.type} else move_to_device_pass(program, str(device))
