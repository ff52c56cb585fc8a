"""Define the model: from ten measurements of a patient to the progression of the disease in a year."""

import torch
from torch import nn

MEASUREMENTS = 10
QUANTILES = (0.1, 0.5, 0.9)


class ProgressionNet(nn.Module):
    """Map measurements `[N, 10]` in their original units to three quantiles `[N, 3]`, the lowest first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(MEASUREMENTS))
        self.register_buffer("deviation", torch.ones(MEASUREMENTS))
        self.layers = nn.Sequential(nn.Linear(MEASUREMENTS, 16), nn.SiLU(), nn.Linear(16, len(QUANTILES)))

    def forward(self, patients: torch.Tensor) -> torch.Tensor:
        low, *steps = self.layers((patients - self.mean) / self.deviation).unbind(1)
        risen = [low]
        for step in steps:
            risen.append(risen[-1] + nn.functional.softplus(step))
        return 100 * torch.stack(risen, dim=1)
