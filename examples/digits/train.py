"""Train the model on scikit-learn's handwritten digits, and write the example's files.

From the repository's root: python -m examples.digits.train [FOLDER]
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from examples.digits.model import DigitsNet
from examples.exporting import make_deterministic, save_torchscript

HERE = Path(__file__).parent
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
EPOCHS = 40
BATCH = 32
REPEATS = 2  # the samples are the first held-out scan of each digit, and the first two that repeat one
SMOOTHING = 0.03  # keeps the model from being too certain
SCALE = 16  # an 8x8 scan becomes an image of 128x128
GOOD_ENOUGH = 0.97


def main(folder: Path = HERE) -> float:
    make_deterministic()
    scans, digits = load()
    train_x, test_x, train_y, test_y = train_test_split(scans, digits, test_size=0.25, random_state=0, stratify=digits)
    net = train(train_x, train_y)
    accuracy = (net(test_x).argmax(1) == test_y).float().mean().item()
    print(f"{accuracy:.2%} of {len(test_y)} held-out scans are right (trained on {len(train_y)})")
    if accuracy < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH:.0%}: nothing written")
    write(net, test_x, test_y, folder)
    return accuracy


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1,797 scans `[N, 1, 8, 8]` as the handler reads them from a PNG, and their digits `[N]`."""
    bunch = load_digits()
    gray = torch.tensor(bunch.images * 255 / 16).round()
    return gray[:, None].float() / 255, torch.tensor(bunch.target)


def train(scans: torch.Tensor, digits: torch.Tensor) -> DigitsNet:
    net = DigitsNet().train()
    steps = EPOCHS * -(-len(scans) // BATCH)
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(scans)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(scans[batch]), digits[batch], label_smoothing=SMOOTHING).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def write(net: DigitsNet, scans: torch.Tensor, digits: torch.Tensor, folder: Path) -> None:
    """Write the model in both forms, the labels and twelve images."""
    save_torchscript(net, folder / "digits.pt")
    torch.save(net.state_dict(), folder / "state_dict.pt")
    (folder / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
    (folder / "samples").mkdir(exist_ok=True)
    for name, index in choose(digits.tolist()):
        picture(scans[index]).save(folder / "samples" / f"{name}.png", optimize=True)


def choose(digits: list[int]) -> Iterator[tuple[str, int]]:
    """Choose held-out scans in their order, whatever the model predicts."""
    met: dict[int, int] = {}
    repeats = 0
    for index, digit in enumerate(digits):
        if digit not in met:
            met[digit] = 1
            yield NAMES[digit], index
        elif repeats < REPEATS:
            repeats += 1
            met[digit] += 1
            yield f"{NAMES[digit]}-{met[digit]}", index


def picture(scan: torch.Tensor) -> Image.Image:
    gray = (scan[0] * 255).round().to(torch.uint8)
    side = SCALE * len(gray)
    return Image.fromarray(gray.numpy(), "L").resize((side, side), Image.Resampling.NEAREST)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
