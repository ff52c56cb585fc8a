"""Define the model: two small convolutions over an 8x8 scan."""

import torch
from torch import nn


class DigitsNet(nn.Module):
    """Map scans `[N, 1, 8, 8]` in 0…1 to logits `[N, 10]`, one per digit."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.4),
            nn.Linear(32 * 4 * 4, 10),
        )

    def forward(self, scans: torch.Tensor) -> torch.Tensor:
        return self.layers(scans)
