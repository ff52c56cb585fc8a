"""What a loader is told: the file, the device, and how far its content is trusted."""

from pathlib import Path

import torch
from msgspec import Struct


class Job(Struct, frozen=True, kw_only=True):
    """One file to load."""

    path: Path
    device: torch.device
    map_location: str | None = None  # the device's type; None for XLA
    trust_pickle: bool = False  # the user said --trust-pickle: the pickle's code may run
