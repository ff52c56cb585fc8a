"""Train a model that predicts the cultivar of a wine, and write the example's files.

From the repository's root: python -m examples.onnx.train [FOLDER]
"""

import json
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from torch import nn

from examples.exporting import make_deterministic, save_onnx
from examples.onnx.features import FEATURES

HERE = Path(__file__).parent
EPOCHS = 300
GOOD_ENOUGH = 0.95


class WineNet(nn.Module):
    """Map analyses `[N, 13]` in their original units to probabilities `[N, 3]`."""

    def __init__(self, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.layers = nn.Sequential(nn.Linear(len(mean), 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, analyses: torch.Tensor) -> torch.Tensor:
        return self.logits(analyses).softmax(1)

    def logits(self, analyses: torch.Tensor) -> torch.Tensor:
        return self.layers((analyses - self.mean) / self.deviation)


def main(folder: Path = HERE) -> float:
    make_deterministic()
    bunch = load_wine()
    wines, cultivars = torch.tensor(bunch.data).float(), torch.tensor(bunch.target)
    train_x, test_x, train_y, test_y = train_test_split(
        wines, cultivars, test_size=0.3, random_state=0, stratify=cultivars
    )
    net = train(train_x, train_y)
    accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
    print(f"{accuracy:.2%} of {len(test_y)} held-out wines are right (trained on {len(train_y)})")
    if accuracy < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH:.0%}: nothing written")
    save_onnx(net, train_x[:2], folder / "wine.onnx", input_name="analyses", output_name="probabilities")
    (folder / "labels.json").write_text(json.dumps({str(i): f"cultivar {i + 1}" for i in range(3)}, indent=2) + "\n")
    write_samples(test_x, test_y, folder / "samples")
    return accuracy


def train(wines: torch.Tensor, cultivars: torch.Tensor) -> WineNet:
    net = WineNet(wines.mean(0), wines.std(0)).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net.logits(wines), cultivars, label_smoothing=0.05).backward()
        optimizer.step()
    return net.eval()


def write_samples(wines: torch.Tensor, cultivars: torch.Tensor, folder: Path) -> None:
    """Write the first held-out wine of each cultivar, and an incomplete analysis."""
    folder.mkdir(exist_ok=True)
    for cultivar in range(3):
        first = wines[cultivars == cultivar][0].tolist()
        analysis = {name: round(value, 2) for name, value in zip(FEATURES, first, strict=True)}
        (folder / f"cultivar-{cultivar + 1}.json").write_text(json.dumps(analysis, indent=2) + "\n")
    (folder / "incomplete.json").write_text(json.dumps({"alcohol": 13.2, "hue": 1.1}, indent=2) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
