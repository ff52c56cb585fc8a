"""Train a model that estimates the progression of diabetes, and write the example's files.

From the repository's root: python -m examples.safetensors_compile.train [FOLDER]
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from examples.exporting import make_deterministic
from examples.safetensors_compile.model import QUANTILES, ProgressionNet

HERE = Path(__file__).parent
EPOCHS = 60  # more epochs overfit the 331 patients
GOOD_ENOUGH = 0.85  # the error relative to that of the median


def main(folder: Path = HERE) -> float:
    make_deterministic()
    bunch = load_diabetes(scaled=False)
    patients, progression = torch.tensor(bunch.data).float(), torch.tensor(bunch.target).float()
    train_x, test_x, train_y, test_y = train_test_split(patients, progression, test_size=0.25, random_state=0)
    net = train(train_x, train_y)
    low, middle, high = net(test_x).unbind(1)
    error = ((middle - test_y).abs().mean() / (train_y.median() - test_y).abs().mean()).item()
    inside = ((low <= test_y) & (test_y <= high)).float().mean().item()
    print(f"{error:.2f} of the median's error on {len(test_y)} held-out patients, {inside:.0%} of them in the range")
    if error > GOOD_ENOUGH:
        sys.exit(f"more than {GOOD_ENOUGH}: nothing written")
    save_file(net.state_dict(), folder / "progression.safetensors")
    write_samples(bunch.feature_names, test_x, folder / "samples")
    return error


def train(patients: torch.Tensor, progression: torch.Tensor) -> ProgressionNet:
    net = ProgressionNet().train()
    net.mean.copy_(patients.mean(0))
    net.deviation.copy_(patients.std(0))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    levels = torch.tensor(QUANTILES)
    for _ in range(EPOCHS):
        off = (progression[:, None] - net(patients)) / 100
        optimizer.zero_grad()
        torch.maximum(levels * off, (levels - 1) * off).mean().backward()
        optimizer.step()
    return net.eval()


def write_samples(names: list[str], patients: torch.Tensor, folder: Path) -> None:
    """Write the first three held-out patients."""
    folder.mkdir(exist_ok=True)
    for number, patient in enumerate(patients[:3].tolist(), start=1):
        measured = {name: round(value, 2) for name, value in zip(names, patient, strict=True)}
        (folder / f"patient-{number}.json").write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
