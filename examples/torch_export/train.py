"""Train a model that recognizes images of digits, and write the example's files.

From the repository's root: python -m examples.torch_export.train [FOLDER]
"""

import sys
from pathlib import Path
from random import Random

import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from examples.exporting import make_deterministic, save_exported
from examples.pictures import choose_shape, draw

HERE = Path(__file__).parent
SHAPES = ("cross", "square", "star", "triangle")
EPOCHS = 150
USUAL = 0.99  # share of the held-out digits that must be recognized as digits
GOOD_ENOUGH = 0.9


class StrangenessNet(nn.Module):
    """Map scans `[N, 64]` in 0…1 to the relative error of their reconstruction `[N]`; 1 is the limit."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 48),
            nn.ReLU(),
            nn.Linear(48, 10),
            nn.Linear(10, 48),
            nn.ReLU(),
            nn.Linear(48, 64),
            nn.Sigmoid(),
        )
        self.register_buffer("limit", torch.ones(()))

    def forward(self, scans: torch.Tensor) -> torch.Tensor:
        return ((self.layers(scans) - scans) ** 2).mean(1) / self.limit


def main(folder: Path = HERE) -> float:
    make_deterministic()
    scans = torch.tensor(load_digits().images * 255 / 16).round().flatten(1).float() / 255
    known, others = train_test_split(scans, test_size=0.5, random_state=0)
    measured, held_out = others.chunk(2)
    net = train(known)
    with torch.no_grad():
        net.limit.copy_(net(measured).quantile(USUAL))
    random = Random(1)
    shapes = [draw_shape(random, SHAPES[index % len(SHAPES)]) for index in range(300)]
    accepted = (net(held_out) <= 1).float().mean().item()
    refused = (net(torch.stack([to_scan(shape) for shape in shapes])) > 1).float().mean().item()
    print(f"{accepted:.2%} of {len(held_out)} held-out digits pass, {refused:.2%} of {len(shapes)} shapes do not")
    if min(accepted, refused) < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH:.0%}: nothing written")
    save_exported(net, torch.zeros(2, 64), folder / "strangeness.pt2")
    (folder / "samples").mkdir(exist_ok=True)
    for number, scan in enumerate(held_out[:2], start=1):
        enlarge(scan).save(folder / "samples" / f"digit-{number}.png", optimize=True)
    for kind, shape in zip(SHAPES[:2], shapes, strict=False):
        shape.save(folder / "samples" / f"{kind}.png", optimize=True)
    return min(accepted, refused)


def draw_shape(random: Random, kind: str) -> Image.Image:
    return draw(random, (128, 128), [choose_shape(random, kind, (0, 0, 128, 128), (35, 60))]).convert("L")


def to_scan(picture: Image.Image) -> torch.Tensor:
    """Reduce a gray image as the handler does: `[64]` in 0…1."""
    small = picture.resize((8, 8), Image.Resampling.BOX)
    return torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8) / 255


def enlarge(scan: torch.Tensor) -> Image.Image:
    gray = (scan.view(8, 8) * 255).round().to(torch.uint8)
    return Image.fromarray(gray.numpy()).resize((128, 128), Image.Resampling.NEAREST)


def train(scans: torch.Tensor) -> StrangenessNet:
    net = StrangenessNet().train()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(scans)).split(32):
            optimizer.zero_grad()
            net(scans[batch]).mean().backward()
            optimizer.step()
    return net.eval()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
