"""Train a model that distinguishes six shapes, and write the example's files.

From the repository's root: python -m examples.image_classifier.train [FOLDER]
"""

import sys
from pathlib import Path
from random import Random

import torch
from PIL import Image
from torch import nn

from examples.exporting import make_deterministic, save_torchscript
from examples.pictures import SHAPES, choose_shape, draw, see, visible

HERE = Path(__file__).parent
EPOCHS = 8
BATCH = 32
GOOD_ENOUGH = 0.95


class ShapesNet(nn.Module):
    """Map normalized images `[N, 3, 224, 224]` to logits `[N, 6]`, at a quarter of the resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.shrink = nn.AvgPool2d(4)
        self.layers = nn.Sequential(
            *_stage(3, 12),
            *_stage(12, 24),
            *_stage(24, 48),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(48, len(SHAPES)),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.layers(self.shrink(pictures))


def _stage(channels: int, more: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, more, 3, padding=1), nn.BatchNorm2d(more), nn.ReLU(), nn.MaxPool2d(2)


def main(folder: Path = HERE) -> float:
    make_deterministic()
    net = train(*draw_set(Random(1), 1200))
    pictures, kinds = draw_set(Random(2), 300)
    accuracy = (net.layers(pictures).argmax(1) == kinds).float().mean().item()
    print(f"{accuracy:.2%} of {len(kinds)} new pictures are right")
    if accuracy < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH:.0%}: nothing written")
    save_torchscript(net, folder / "shapes.pt")
    (folder / "labels.txt").write_text("".join(f"{kind}\n" for kind in SHAPES))
    (folder / "samples").mkdir(exist_ok=True)
    for kind, picture in zip(SHAPES, map(draw_one, [Random(3)] * len(SHAPES), SHAPES), strict=True):
        picture.save(folder / "samples" / f"{kind}.jpg", quality=85)
    return accuracy


def draw_one(random: Random, kind: str) -> Image.Image:
    """Draw an image of any size with one shape."""
    size = random.randrange(200, 360), random.randrange(200, 360)
    small = min(size)
    return draw(random, size, [choose_shape(random, kind, visible(size), (small / 7, small / 3))])


def draw_set(random: Random, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images as the model's layers get them, `[count, 3, 56, 56]`, and their classes `[count]`."""
    shrink = nn.AvgPool2d(4)
    kinds = [index % len(SHAPES) for index in range(count)]
    return torch.stack([shrink(see(draw_one(random, SHAPES[kind]))) for kind in kinds]), torch.tensor(kinds)


def train(pictures: torch.Tensor, kinds: torch.Tensor) -> ShapesNet:
    net = ShapesNet().train()
    optimizer = torch.optim.Adam(net.parameters())
    steps = EPOCHS * -(-len(pictures) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(pictures)).split(BATCH):
            optimizer.zero_grad()
            logits = net.layers(pictures[batch])
            nn.functional.cross_entropy(logits, kinds[batch], label_smoothing=0.03).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
