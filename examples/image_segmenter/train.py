"""Train a model that finds the shape of each pixel, and write the example's files.

From the repository's root: python -m examples.image_segmenter.train [FOLDER]
"""

import sys
from pathlib import Path
from random import Random

import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from examples.exporting import make_deterministic, save_torchscript
from examples.pictures import Shape, Size, choose_shape, crop, draw, draw_mask, see, visible

HERE = Path(__file__).parent
SHAPES = ("circle", "ring", "star", "triangle")
CLASSES = ("background", *SHAPES)
EPOCHS = 22
BATCH = 16
GOOD_ENOUGH = 0.75


class SegmentNet(nn.Module):
    """Map normalized images `[N, 3, 224, 224]` to `{"out": logits [N, 5, 224, 224]}`, at half of the resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.shrink = nn.AvgPool2d(2)
        self.fine = _convolve(3, 12, stride=2)
        self.middle = _convolve(12, 24, stride=2)
        self.coarse = nn.Sequential(
            _convolve(24, 48, stride=2), _convolve(48, 48), _convolve(48, 48, dilation=2), _convolve(48, 24)
        )
        self.join = _convolve(24, 12)
        self.out = nn.Conv2d(12, len(CLASSES), 1)

    def forward(self, pictures: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.segment(self.shrink(pictures))
        return {"out": functional.interpolate(logits, scale_factor=4.0, mode="bilinear")}

    def segment(self, small: torch.Tensor) -> torch.Tensor:
        """Return logits `[N, 5, 56, 56]` of images `[N, 3, 112, 112]`."""
        fine = self.fine(small)
        middle = self.middle(fine)
        middle = middle + functional.interpolate(self.coarse(middle), scale_factor=2.0)
        return self.out(fine + functional.interpolate(self.join(middle), scale_factor=2.0))


def _convolve(channels: int, more: int, stride: int = 1, dilation: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, more, 3, stride, padding=dilation, dilation=dilation), nn.BatchNorm2d(more), nn.ReLU()
    )


def main(folder: Path = HERE) -> float:
    make_deterministic()
    net = train(*draw_set(Random(1), 500))
    pictures, masks = draw_set(Random(2), 80)
    overlap = mean_overlap(net.segment(pictures).argmax(1), masks)
    print(f"mean intersection over union on 80 new pictures: {overlap:.3f}")
    if overlap < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH}: nothing written")
    save_torchscript(net, folder / "segments.pt")
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    (folder / "samples").mkdir(exist_ok=True)
    random = Random(3)
    for number in (1, 2, 3):
        size, shapes = choose_scene(random)
        draw(random, size, shapes).save(folder / "samples" / f"scene-{number}.jpg", quality=85)
    return overlap


def choose_scene(random: Random) -> tuple[Size, list[Shape]]:
    """Choose a size and one to three shapes; a later one may cover an earlier one."""
    size = random.randrange(230, 330), random.randrange(230, 330)
    radii = min(size) / 7, min(size) / 4
    kinds = random.choices(SHAPES, k=random.randint(1, 3))
    return size, [choose_shape(random, kind, visible(size), radii) for kind in kinds]


def draw_set(random: Random, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images `[count, 3, 112, 112]` as the model gets them, and each pixel's class `[count, 56, 56]`."""
    shrink = nn.AvgPool2d(2)
    pictures, masks = [], []
    for _ in range(count):
        size, shapes = choose_scene(random)
        pictures.append(shrink(see(draw(random, size, shapes))))
        mask = crop(draw_mask(size, shapes, SHAPES), Image.Resampling.NEAREST).resize(
            (56, 56), Image.Resampling.NEAREST
        )
        masks.append(torch.frombuffer(bytearray(mask.tobytes()), dtype=torch.uint8).view(56, 56).long())
    return torch.stack(pictures), torch.stack(masks)


def train(pictures: torch.Tensor, masks: torch.Tensor) -> SegmentNet:
    net = SegmentNet().train()
    optimizer = torch.optim.Adam(net.parameters())
    steps = EPOCHS * -(-len(pictures) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    weight = torch.tensor([0.3] + [1.0] * len(SHAPES))  # most pixels are background
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(pictures)).split(BATCH):
            seen, true = turn(pictures[batch], masks[batch])
            optimizer.zero_grad()
            functional.cross_entropy(net.segment(seen), true, weight).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def turn(pictures: torch.Tensor, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate, mirror and recolor a batch at random, which does not change the classes."""
    quarters, mirrored = torch.randint(4, ()).item(), torch.randint(2, ()).item()
    pictures, masks = (stack.rot90(quarters, (-2, -1)) for stack in (pictures[:, torch.randperm(3)], masks))
    return (pictures.flip(-1), masks.flip(-1)) if mirrored else (pictures, masks)


def mean_overlap(found: torch.Tensor, true: torch.Tensor) -> float:
    """Return the mean intersection over union of the classes."""
    ratios = []
    for index in range(len(CLASSES)):
        here, there = found == index, true == index
        ratios.append((here & there).sum() / (here | there).sum())
    return torch.stack(ratios).mean().item()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
