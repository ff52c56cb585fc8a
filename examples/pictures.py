"""Draw images of simple shapes at random, with their contents, and prepare them as the server's image handlers do."""

import math
from dataclasses import dataclass
from random import Random

import torch
from PIL import Image, ImageDraw

Color = tuple[int, int, int]
Size = tuple[int, int]  # width, height in pixels
Box = tuple[float, float, float, float]  # x1, y1, x2, y2 in pixels
Points = list[tuple[float, float]]

SHAPES = ("circle", "cross", "ring", "square", "star", "triangle")
_FINE = 2  # factor by which shapes are drawn larger and then reduced, for smooth edges
_ROUND: Points = [(-1, 0), (0, -1), (1, 0), (0, 1)]
# A polygon is a pattern of (angle, distance from the center) that is repeated `count` times.
_RAYS: dict[str, tuple[int, Points]] = {
    "triangle": (3, [(0, 1)]),
    "square": (4, [(0, 1)]),
    "star": (5, [(0, 1), (math.pi / 5, 0.4)]),
    "cross": (4, [(-0.3, 1), (0.3, 1), (math.pi / 4, 0.42)]),
}
# The image handlers normalize by ImageNet's mean and deviation per channel.
_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
_DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


@dataclass(frozen=True)
class Shape:
    """One shape: its kind, center and radius in pixels, and rotation in radians."""

    kind: str
    x: float
    y: float
    radius: float
    turn: float
    color: Color

    @property
    def box(self) -> Box:
        """Return the smallest upright box around the shape."""
        xs, ys = zip(*self.outline, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    @property
    def outline(self) -> Points:
        """Return the corners, or for a round shape the four outermost points."""
        unit = _ROUND if self.kind in {"circle", "ring"} else _corners(self.kind, self.turn)
        return [(self.x + self.radius * dx, self.y + self.radius * dy) for dx, dy in unit]


def choose_shape(random: Random, kind: str, area: Box, radii: tuple[float, float]) -> Shape:
    """Place a shape of a random size inside an area."""
    radius = random.uniform(*radii)
    x, y = (random.uniform(low + radius, high - radius) for low, high in (area[::2], area[1::2]))
    return Shape(kind, x, y, radius, random.uniform(0, 2 * math.pi), _bright(random))


def visible(size: Size) -> Box:
    """Return the part of an image that `crop` keeps."""
    reach = min(size) * 224 / 256 / 2
    x, y = size[0] / 2, size[1] / 2
    return x - reach, y - reach, x + reach, y + reach


def draw(random: Random, size: Size, shapes: list[Shape]) -> Image.Image:
    """Draw shapes over a dim, cluttered background, in RGB."""
    picture = _background(random, (size[0] * _FINE, size[1] * _FINE))
    pen = ImageDraw.Draw(picture)
    for shape in shapes:
        _fill(pen, shape, shape.color, _FINE)
    return picture.reduce(_FINE)


def draw_mask(size: Size, shapes: list[Shape], classes: tuple[str, ...]) -> Image.Image:
    """Draw the class of each pixel: mode L, 0 for the background, `1 + classes.index(kind)` for a shape."""
    mask = Image.new("L", size)
    pen = ImageDraw.Draw(mask)
    for shape in shapes:
        _fill(pen, shape, 1 + classes.index(shape.kind), 1)
    return mask


def to_tensor(picture: Image.Image) -> torch.Tensor:
    """Return an RGB image as `[3, H, W]` in 0…1."""
    pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    return pixels.view(picture.height, picture.width, 3).permute(2, 0, 1) / 255


def see(picture: Image.Image) -> torch.Tensor:
    """Prepare an RGB image as `image_classifier` and `image_segmenter` do: `[3, 224, 224]`, normalized."""
    return (to_tensor(crop(picture)) - _MEAN) / _DEVIATION


def crop(picture: Image.Image, how: Image.Resampling = Image.Resampling.BILINEAR) -> Image.Image:
    """Scale the shorter side to 256 and crop the center to 224 x 224."""
    scale = 256 / min(picture.size)
    large = picture.resize([int(side * scale) for side in picture.size], how)
    left, top = (round((side - 224) / 2) for side in large.size)
    return large.crop((left, top, left + 224, top + 224))


def _fill(pen: ImageDraw.ImageDraw, shape: Shape, color: Color | int, scale: int) -> None:
    if shape.kind in {"circle", "ring"}:
        width = round(shape.radius * scale * 0.4) if shape.kind == "ring" else 0
        box = [side * scale for side in shape.box]
        pen.ellipse(box, fill=None if width else color, outline=color, width=width)
        return
    pen.polygon([(x * scale, y * scale) for x, y in shape.outline], fill=color)


def _corners(kind: str, turn: float) -> Points:
    """Return a rotated polygon's corners within the unit circle."""
    count, pattern = _RAYS[kind]
    rays = [(full + angle, reach) for full in _split_circle(count) for angle, reach in pattern]
    return [(reach * math.cos(turn + angle), reach * math.sin(turn + angle)) for angle, reach in rays]


def _split_circle(count: int) -> list[float]:
    return [2 * math.pi * part / count for part in range(count)]


def _background(random: Random, size: Size) -> Image.Image:
    """Blend a few dark colors and draw thin lines over them."""
    patches = Image.new("RGB", (4, 3))
    patches.putdata([_dark(random) for _ in range(12)])
    ground = patches.resize(size, Image.Resampling.BILINEAR)
    pen = ImageDraw.Draw(ground)
    for _ in range(random.randrange(8)):
        ends = [(random.uniform(0, size[0]), random.uniform(0, size[1])) for _ in range(2)]
        pen.line(ends, fill=_bright(random), width=random.randint(1, 2 * _FINE))
    return ground


def _bright(random: Random) -> Color:
    red, green, blue = (random.randrange(90, 256) for _ in range(3))
    return (255, green, blue) if max(red, green, blue) < 170 else (red, green, blue)


def _dark(random: Random) -> Color:
    red, green, blue = (random.randrange(90) for _ in range(3))
    return red, green, blue
