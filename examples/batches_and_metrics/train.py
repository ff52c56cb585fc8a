"""Train a logistic regression that classifies cells as malignant or benign, and write the example's files.

From the repository's root: python -m examples.batches_and_metrics.train [FOLDER]
"""

import json
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import nn

from examples.exporting import make_deterministic, save_torchscript

HERE = Path(__file__).parent
EPOCHS = 200
SAMPLES = {"one-cell": 1, "five-cells": 5}
GOOD_ENOUGH = 0.94


def main(folder: Path = HERE) -> float:
    make_deterministic()
    bunch = load_breast_cancer()  # its target is 1 for benign
    cells, malignant = torch.tensor(bunch.data), torch.tensor(1 - bunch.target)
    train_x, test_x, train_y, test_y = train_test_split(
        cells, malignant, test_size=0.3, random_state=0, stratify=malignant
    )
    net = train(train_x.float(), train_y.float())
    accuracy = ((net(test_x.float())[:, 0] > 0) == test_y).float().mean().item()
    print(f"{accuracy:.2%} of {len(test_y)} held-out cells are right (trained on {len(train_y)})")
    if accuracy < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH:.0%}: nothing written")
    save_torchscript(net, folder / "cells.pt")
    (folder / "labels.txt").write_text("benign\nmalignant\n")
    write_samples(test_x, folder / "samples")
    return accuracy


def train(cells: torch.Tensor, malignant: torch.Tensor) -> nn.Module:
    net = nn.Sequential(nn.BatchNorm1d(30, affine=False), nn.Linear(30, 1)).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-2)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(cells)[:, 0], malignant).backward()
        optimizer.step()
    return net.eval()


def write_samples(cells: torch.Tensor, folder: Path) -> None:
    """Write requests of different sizes with the first held-out cells, and an invalid request."""
    folder.mkdir(exist_ok=True)
    rows = iter(cells.tolist())
    for name, count in SAMPLES.items():
        request = [next(rows) for _ in range(count)]
        (folder / f"{name}.json").write_text(json.dumps(request) + "\n")
    (folder / "too-short.json").write_text("[[1.5, 2.5]]\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
