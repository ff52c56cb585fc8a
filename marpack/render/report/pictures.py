"""Pictures as data URIs, and the masks and heat maps over them."""

import base64
import io
import struct
import warnings
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

from msgspec import Struct

_AS_IT_IS = 16 << 10  # bytes: smaller pictures are not worth shrinking
SIDE = 384  # pixels: of a shrunk picture at most
_BROWSER_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
# What Pillow raises for files that are broken, each in its own way.
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, struct.error)
_MIN_PIXELS, _MAX_PIXELS = 64, 1 << 22  # pixels
_CLASSES = 256
_SHOWN = 8  # classes of a legend
_OPAQUE = 165  # of 255
_LEVELS = 64  # of a heat map


class Picture(Struct, frozen=True):
    """One picture for a page."""

    uri: str
    width: int  # pixels of the original as stored: handlers ignore its orientation, and so does the page
    height: int


def picture_of(data: bytes, *, side: int = SIDE) -> Picture | None:
    """Return a picture that browsers show, or None for data that is not a picture, or a broken or monstrous one.

    Its longer side is shrunk to `side` pixels.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                width, height = image.size
                kind = _BROWSER_TYPES.get(image.format or "")
                if kind is not None and len(data) <= _AS_IT_IS:
                    image.load()  # raises if it is broken
                    return Picture(_uri(kind, data), width, height)
                image.draft("RGB", (side, side))
                is_clear = "transparency" in image.info or image.mode.endswith(("A", "a"))
                is_simple = image.mode in {"RGB", "RGBA", "L"}
                shrunk = image if is_simple else image.convert("RGBA" if is_clear else "RGB")
                shrunk.thumbnail((side, side))
                buffer = io.BytesIO()
                shrunk.save(buffer, "WEBP", quality=70, method=2)
                return Picture(_uri("image/webp", buffer.getvalue()), width, height)
    except (*_BROKEN, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return None


def png_of(levels: bytes, width: int, height: int, palette: bytes, clear: bytes) -> str:
    """Return a PNG as a data URI: a palette's index per pixel, row by row, and each index's RGB and opacity."""
    from PIL import Image

    image = Image.frombytes("P", (width, height), levels)
    image.putpalette(palette)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=clear, optimize=False)
    return _uri("image/png", buffer.getvalue())


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


class Share(Struct, frozen=True):
    """How much of a picture one class covers."""

    label: str
    colour: str
    share: float  # percent


class Overlay(Struct, frozen=True):
    """A picture over another; places are percent of the lower one's width and height."""

    uri: str
    left: float
    top: float
    width: float
    height: float
    legend: tuple[Share, ...] = ()


def mask_of(answer: Any, labels: Mapping[str, str], picture: Picture, crop: float | None) -> Overlay | None:
    """Return a segmenter's response, `[H, W]` classes or `[H, W, 2]` classes with probabilities, as an overlay."""
    size = _size_of(answer)
    if size is None:
        return None
    pixels = list(chain.from_iterable(answer))
    if all(isinstance(pixel, list) and len(pixel) == 2 for pixel in pixels):
        pixels = [pixel[0] for pixel in pixels]
    try:
        classes = [int(pixel) for pixel in pixels if int(pixel) == pixel]
    except (TypeError, ValueError, OverflowError):
        return None
    if len(classes) < len(pixels) or min(classes) < 0 or max(classes) >= _CLASSES:
        return None
    # The background, which is class 0, is transparent.
    palette = b"".join(bytes(_colour(index)) for index in range(_CLASSES))
    uri = png_of(bytes(classes), *size, palette, bytes([0] + [_OPAQUE] * (_CLASSES - 1)))
    legend = tuple(
        Share(
            label=labels.get(str(index), str(index)),
            colour="rgb({} {} {})".format(*_colour(index)) if index else "transparent",
            share=round(100 * count / len(classes), 1),
        )
        for index, count in Counter(classes).most_common(_SHOWN)
    )
    return Overlay(uri, *_place(picture, crop), legend=legend)


def _colour(index: int) -> tuple[int, int, int]:
    """Return a class's colour: neighbours are far apart on the wheel."""
    if index == 0:
        return 0, 0, 0
    hue = index * 0.381966 % 1 * 6
    step, rest = int(hue), hue % 1
    rise, fall = round(40 + 190 * rest), round(40 + 190 * (1 - rest))
    return [(230, rise, 40), (fall, 230, 40), (40, 230, rise), (40, fall, 230), (rise, 40, 230), (230, 40, fall)][step]


def heat_of(answer: Any, picture: Picture, crop: float | None) -> Overlay | None:
    """Return attributions `[C, H, W]`, an image handler's explanation, as a heat map."""
    if not isinstance(answer, list) or not 0 < len(answer) <= 4:
        return None
    sizes = [_size_of(channel) for channel in answer]
    if sizes[0] is None or len(set(sizes)) > 1:
        return None
    try:
        planes = [[abs(float(value)) for value in chain.from_iterable(channel)] for channel in answer]
    except (TypeError, ValueError):
        return None
    heat = [sum(column) for column in zip(*planes, strict=True)]
    # A few pixels always stand out; on their scale, nothing else would be visible.
    maximum = sorted(heat)[int(len(heat) * 0.99)] or max(heat) or 1
    levels = bytes(min(_LEVELS - 1, int(_LEVELS * value / maximum)) for value in heat)
    palette = b"".join(bytes((255, 60 + 2 * level, 0)) for level in range(_LEVELS))
    uri = png_of(levels, *sizes[0], palette, bytes(level * 220 // _LEVELS for level in range(_LEVELS)))
    return Overlay(uri, *_place(picture, crop))


def _size_of(rows: Any) -> tuple[int, int] | None:
    """Return width and height of nested lists that have the form of a picture."""
    if not isinstance(rows, list) or len(rows) < 2 or not all(isinstance(row, list) for row in rows):
        return None
    width = len(rows[0])
    if any(len(row) != width for row in rows) or not _MIN_PIXELS <= width * len(rows) <= _MAX_PIXELS:
        return None
    return width, len(rows)


def _place(picture: Picture, crop: float | None) -> tuple[float, float, float, float]:
    """Return left, top, width and height of the part that the handler uses, in percent."""
    if crop is None:
        return 0, 0, 100, 100
    side = crop * min(picture.width, picture.height)
    width, height = 100 * side / picture.width, 100 * side / picture.height
    return round((100 - width) / 2, 3), round((100 - height) / 2, 3), round(width, 3), round(height, 3)
