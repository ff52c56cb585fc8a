"""The models, labels and samples that the templates of `marpack init` bring along, so that a scaffold works as it is.

None is trained: each is written down, tells a handful of plain colours or words apart, and is a few kilobytes large.
From the repository's root: python -m tools.toy_models [FOLDER]
"""

import json
import sys
from collections import Counter
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import nn

from examples.exporting import make_deterministic, save_onnx, save_torchscript

TEMPLATES = Path(__file__).parents[1] / "templates" / "init"
COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "red": (230, 30, 30),
    "green": (30, 170, 60),
    "blue": (40, 70, 220),
    "yellow": (250, 220, 40),
}
SEEN = ("white", "red", "green", "blue")  # what the detector and the segmenter know; the first is the background
GOOD = """
good great lovely wonderful excellent happy love best delicious friendly perfect nice enjoy fresh fast
"""
BAD = """
bad awful terrible horrible poor sad hate worst cold rude broken boring slow dirty never
"""
SHARPNESS = 25.0  # how fast a colour's probability falls with its distance
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # ImageNet's


class Nearest(nn.Module):
    """Colours `[…, 3]` in 0…1 to logits `[…, K]`: the nearer a colour is to the k-th, the higher the k-th logit."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        colours = torch.tensor([COLOURS[name] for name in names]) / 255
        self.linear = nn.Linear(3, len(names))
        self.linear.weight = nn.Parameter(2 * SHARPNESS * colours)
        self.linear.bias = nn.Parameter(-SHARPNESS * (colours**2).sum(1))

    def forward(self, colours: torch.Tensor) -> torch.Tensor:
        return self.linear(colours)


class PictureColour(nn.Module):
    """Pictures `[N, 3, H, W]`, normalised as for ImageNet, to logits `[N, K]` of their mean colour."""

    def __init__(self) -> None:
        super().__init__()
        self.nearest = Nearest(tuple(COLOURS))
        self.register_buffer("mean", MEAN)
        self.register_buffer("deviation", DEVIATION)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.nearest(pictures.mean([2, 3]) * self.deviation + self.mean)


class PixelColours(nn.Module):
    """Pictures `[N, 3, H, W]`, normalised as for ImageNet, to `{"out": logits [N, K, H, W]}`."""

    def __init__(self) -> None:
        super().__init__()
        self.nearest = Nearest(SEEN)
        self.register_buffer("mean", MEAN)
        self.register_buffer("deviation", DEVIATION)

    def forward(self, pictures: torch.Tensor) -> dict[str, torch.Tensor]:
        colours = pictures.permute(0, 2, 3, 1) * self.deviation + self.mean
        return {"out": self.nearest(colours).permute(0, 3, 1, 2)}


class ColouredAreas(nn.Module):
    """Pictures `[N, 3, H, W]` in 0…1 to `{boxes, labels, scores}` each: one box around all there is of a colour."""

    def __init__(self) -> None:
        super().__init__()
        self.nearest = Nearest(SEEN)

    def forward(self, pictures: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        found: list[dict[str, torch.Tensor]] = []
        for picture in pictures.permute(0, 2, 3, 1):
            sure, nearest = self.nearest(picture).softmax(2).max(2)
            boxes, labels, scores = [torch.zeros(0, 4)], [torch.zeros(0).long()], [torch.zeros(0)]
            for label in range(1, self.nearest.linear.out_features):
                area = nearest == label
                if bool(area.any()):
                    places = area.nonzero()
                    top, left = places[:, 0].min(), places[:, 1].min()
                    bottom, right = places[:, 0].max() + 1, places[:, 1].max() + 1
                    boxes.append(torch.stack([left, top, right, bottom]).float().unsqueeze(0))
                    labels.append(torch.tensor([label]))
                    scores.append(sure[area].mean().unsqueeze(0))
            found.append({"boxes": torch.cat(boxes), "labels": torch.cat(labels), "scores": torch.cat(scores)})
        return found


class Mood(nn.Module):
    """Word numbers `[T]` and where each text begins `[N]` to logits `[N, 2]`: unfriendly or friendly."""

    def __init__(self) -> None:
        super().__init__()
        bad, good = len(BAD.split()), len(GOOD.split())
        self.embedding = nn.EmbeddingBag(1 + bad + good, 2, mode="sum")  # number 0 is any other word
        weights = torch.zeros_like(self.embedding.weight)
        weights[1 : 1 + bad, 0] = 3
        weights[1 + bad :, 1] = 3
        self.embedding.weight = nn.Parameter(weights)

    def forward(self, text: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.embedding(text, offsets)


def main(folder: Path = TEMPLATES) -> None:
    """Write every template's files that are made."""
    make_deterministic()
    write_classifier(folder / "image_classifier")
    write_segmenter(folder / "image_segmenter")
    write_detector(folder / "object_detector")
    write_text_classifier(folder / "text_classifier")
    for name in ("custom", "function", "streaming"):
        save_torchscript(Nearest(tuple(COLOURS)), made(folder / name) / "model.pt")
        write_labels(folder / name, tuple(COLOURS))
    # Stand-ins for authors' own models, until they bring inputs of their own.
    Image.linear_gradient("L").resize((28, 28)).save(folder / "gray.png")
    Image.new("RGB", (64, 48), COLOURS["red"]).save(folder / "red.png")
    example = torch.zeros(2, 3)
    model = made(folder / "onnx") / "model.onnx"
    save_onnx(Nearest(tuple(COLOURS)), example, model, input_name="colours", output_name="logits")
    write_labels(folder / "onnx", tuple(COLOURS))
    for name in ("custom", "function", "onnx"):
        write_json(folder / name / "samples" / "red.json", [0.9, 0.1, 0.1])
    write_json(folder / "streaming" / "samples" / "three.json", [[0.9, 0.1, 0.1], [0.1, 0.7, 0.2], [1, 1, 1]])


def made(folder: Path) -> Path:
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    return folder


def write_classifier(folder: Path) -> None:
    save_torchscript(PictureColour(), made(folder) / "model.pt")
    write_labels(folder, tuple(COLOURS))
    Image.new("RGB", (64, 48), COLOURS["red"]).save(folder / "samples" / "red.png")


def write_segmenter(folder: Path) -> None:
    save_torchscript(PixelColours(), made(folder) / "model.pt")
    write_labels(folder, SEEN)
    scene().save(folder / "samples" / "scene.png")


def write_detector(folder: Path) -> None:
    save_torchscript(ColouredAreas(), made(folder) / "model.pt")
    write_labels(folder, SEEN)
    scene().save(folder / "samples" / "scene.png")


def write_text_classifier(folder: Path) -> None:
    save_torchscript(Mood(), made(folder) / "model.pt")
    # A Counter: torch loads it without trusting the file, and of words that it does not hold it says 0.
    numbers = Counter({word: number for number, word in enumerate((BAD + GOOD).split(), start=1)})
    torch.save(numbers, folder / "source_vocab.pt")
    write_labels(folder, ("unfriendly", "friendly"))
    (folder / "samples" / "friendly.txt").write_text("Lovely food, and the people here are wonderful.\n")


def scene() -> Image.Image:
    """Return a white picture with a red and a blue area."""
    picture = Image.new("RGB", (96, 64), COLOURS["white"])
    draw = ImageDraw.Draw(picture)
    draw.rectangle((10, 8, 39, 47), fill=COLOURS["red"])
    draw.rectangle((56, 20, 85, 55), fill=COLOURS["blue"])
    return picture


def write_labels(folder: Path, names: tuple[str, ...]) -> None:
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names))


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
