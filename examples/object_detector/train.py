"""Train a model that finds shapes and their boxes, and write the example's files.

From the repository's root: python -m examples.object_detector.train [FOLDER]
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from torch import nn
from torch.nn import functional

from examples.exporting import make_deterministic, save_torchscript
from examples.pictures import Shape, Size, choose_shape, draw, to_tensor

HERE = Path(__file__).parent
SHAPES = ("circle", "cross", "star", "triangle")
STRIDE = 8  # pixels per cell of the model's output
SIZE = 160, 128  # of the training images; the model accepts any size
EPOCHS = 16
BATCH = 8
GOOD_ENOUGH = 0.9


class DetectNet(nn.Module):
    """Map images `[N, 3, H, W]` in 0…1 to one `{boxes [M, 4], labels [M], scores [M]}` each.

    Each cell of 8 x 8 pixels predicts, for each class, the probability of a shape with its center there, and the
    distances of that shape's sides from the cell's center. Only the likeliest of neighboring cells counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_convolve(3, 16, stride=2),
            *_convolve(16, 32, stride=2),
            *_convolve(32, 48, stride=2),
            *_convolve(48, 48),
            *_convolve(48, 48),
            *_convolve(48, 48),
            nn.Conv2d(48, len(SHAPES) + 4, 3, padding=1),
        )
        self.classes = len(SHAPES)
        self.stride = STRIDE

    def forward(self, pictures: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        cells = self.layers(pictures)
        scores, labels = cells[:, : self.classes].sigmoid().max(dim=1)
        surest = functional.max_pool2d(scores, 3, stride=1, padding=1)
        middles = (scores == surest) & (scores > 0.1)
        return [self.collect(middles[i], scores[i], labels[i], cells[i, self.classes :]) for i in range(len(cells))]

    def collect(
        self, middles: torch.Tensor, scores: torch.Tensor, labels: torch.Tensor, sides: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the shapes with their center in a cell, the likeliest first."""
        rows, columns = torch.where(middles)
        found = scores[rows, columns]
        order = found.argsort(descending=True)
        rows, columns = rows[order], columns[order]
        x, y = (columns + 0.5) * self.stride, (rows + 0.5) * self.stride
        left, top, right, bottom = (sides[:, rows, columns] * self.stride).unbind(0)
        boxes = torch.stack([x - left, y - top, x + right, y + bottom], dim=1)
        return {"boxes": boxes, "labels": labels[rows, columns], "scores": found[order]}


def _convolve(channels: int, more: int, stride: int = 1) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, more, 3, stride, padding=1), nn.BatchNorm2d(more), nn.ReLU()


def main(folder: Path = HERE) -> float:
    make_deterministic()
    net = train(*draw_set(Random(1), 500))
    quality = f1(net, Random(2), 100)
    print(f"F1 on 100 new pictures, at a score of 0.5 and an overlap of half: {quality:.3f}")
    if quality < GOOD_ENOUGH:
        sys.exit(f"less than {GOOD_ENOUGH}: nothing written")
    save_torchscript(net, folder / "finder.pt")
    (folder / "labels.txt").write_text("".join(f"{kind}\n" for kind in SHAPES))
    (folder / "samples").mkdir(exist_ok=True)
    random = Random(3)
    for number, size in enumerate([(160, 128), (240, 160), (200, 200)], start=1):
        draw(random, size, choose_scene(random, size)).save(folder / "samples" / f"scene-{number}.jpg", quality=85)
    return quality


def choose_scene(random: Random, size: Size = SIZE) -> list[Shape]:
    """Choose up to five shapes that do not overlap."""
    shapes: list[Shape] = []
    for _ in range(random.randint(2, 5)):
        new = choose_shape(random, random.choice(SHAPES), (0, 0, *size), (14, 34))
        if all((new.x - old.x) ** 2 + (new.y - old.y) ** 2 > (new.radius + old.radius) ** 2 for old in shapes):
            shapes.append(new)
    return shapes


def draw_set(random: Random, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images `[count, 3, H, W]` and the targets of their cells `[count, 4 classes + 4 sides, h, w]`.

    A class's value is 1 in the cell of a shape's center, -1 (ignored) in the neighboring cells, and 0 elsewhere.
    """
    pictures, targets = [], []
    for _ in range(count):
        shapes = choose_scene(random)
        pictures.append(to_tensor(draw(random, SIZE, shapes)))
        targets.append(describe(shapes))
    return torch.stack(pictures), torch.stack(targets)


def describe(shapes: list[Shape]) -> torch.Tensor:
    target = torch.zeros(len(SHAPES) + 4, SIZE[1] // STRIDE, SIZE[0] // STRIDE)
    for shape in shapes:
        x1, y1, x2, y2 = (side / STRIDE for side in shape.box)
        column, row = int((x1 + x2) / 2), int((y1 + y2) / 2)
        target[: len(SHAPES), max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = -1
        target[: len(SHAPES), row, column] = 0
        target[SHAPES.index(shape.kind), row, column] = 1
        x, y = column + 0.5, row + 0.5
        target[len(SHAPES) :, row, column] = torch.tensor([x - x1, y - y1, x2 - x, y2 - y])
    return target


def train(pictures: torch.Tensor, targets: torch.Tensor) -> DetectNet:
    net = DetectNet().train()
    optimizer = torch.optim.Adam(net.parameters())
    steps = EPOCHS * -(-len(pictures) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(pictures)).split(BATCH):
            optimizer.zero_grad()
            loss(net.layers(pictures[batch]), targets[batch]).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def loss(cells: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of the classes, in which hard cases count more, and of the sides, per shape."""
    logits, classes = cells[:, : len(SHAPES)], targets[:, : len(SHAPES)]
    asked, middle = classes >= 0, classes.amax(1, keepdim=True) == 1
    wrong = functional.binary_cross_entropy_with_logits(logits, classes.clamp(min=0), reduction="none")
    hard = (logits.sigmoid() - classes).detach() ** 2
    off = functional.smooth_l1_loss(cells[:, len(SHAPES) :], targets[:, len(SHAPES) :], reduction="none")
    return ((wrong * hard * asked).sum() + (off * middle).sum()) / middle.sum()


def f1(net: DetectNet, random: Random, count: int) -> float:
    """Return the harmonic mean of precision and recall."""
    right = found = there = 0
    for _ in range(count):
        shapes = choose_scene(random)
        [answer] = net(to_tensor(draw(random, SIZE, shapes))[None])
        finds = list(sure(answer))
        found, there = found + len(finds), there + len(shapes)
        right += sum(any(match(find, shape) for find in finds) for shape in shapes)
    return 2 * right / (found + there)


def sure(answer: dict[str, torch.Tensor]) -> Iterator[tuple[list[float], str]]:
    for box, label, score in zip(answer["boxes"], answer["labels"], answer["scores"], strict=True):
        if score >= 0.5:
            yield box.tolist(), SHAPES[label]


def match(find: tuple[list[float], str], shape: Shape) -> bool:
    (x1, y1, x2, y2), kind = find
    a1, b1, a2, b2 = shape.box
    common = max(0.0, min(x2, a2) - max(x1, a1)) * max(0.0, min(y2, b2) - max(y1, b1))
    return kind == shape.kind and common * 2 >= (x2 - x1) * (y2 - y1) + (a2 - a1) * (b2 - b1) - common


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
