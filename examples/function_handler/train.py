"""Train a model that predicts the species of an iris, and write the example's files.

From the repository's root: python -m examples.function_handler.train [FOLDER]
"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from torch import nn

from examples.exporting import make_deterministic, save_torchscript

HERE = Path(__file__).parent
EPOCHS = 400
GOOD_ENOUGH = 0.93


def main(folder: Path = HERE) -> float:
    make_deterministic()
    bunch = load_iris()
    flowers, species = torch.tensor(bunch.data).float(), torch.tensor(bunch.target)
    train_x, test_x, train_y, test_y = train_test_split(
        flowers, species, test_size=0.3, random_state=0, stratify=species
    )
    net = train(train_x, train_y)
    accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
    print(f"{accuracy:.2%} of {len(test_y)} held-out flowers are right (trained on {len(train_y)})")
    if accuracy < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH:.0%}: nothing written")
    save_torchscript(net, folder / "iris.pt")
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in bunch.target_names))
    (folder / "samples").mkdir(exist_ok=True)
    for index, name in enumerate(bunch.target_names):
        first = test_x[test_y == index][0].tolist()
        (folder / "samples" / f"{name}.csv").write_text(",".join(f"{length:.1f}" for length in first) + "\n")
    return accuracy


def train(flowers: torch.Tensor, species: torch.Tensor) -> nn.Module:
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3)).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(flowers), species).backward()
        optimizer.step()
    return net.eval()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
