"""One input with its response as HTML, for the report of a run, the page to try models, and notebooks."""

import base64
import io
import struct
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from marpack.errors import printable, shortened
from marpack.json_text import is_number
from marpack.project.scaffold.template import templates
from marpack.render.console import visible
from marpack.render.run import shown_frames
from marpack.runner.results import AnsweredInput, Result
from marpack.torchserve.http import Part
from marpack.torchserve.server_modules import BUILT_INS

_TEXT = 1_500  # characters of an input
_LINE = 300  # characters of a name or a sentence
_TINY = 96  # pixels: smaller pictures are shown larger
_DRAWN_ON = 240  # pixels: likewise for pictures with boxes or an overlay
_STAGES = ("preprocess", "inference", "postprocess", "explain_handle", "describe_handle")
_MAX_BARS = 12
_MAX_BOXES = 200
_MAX_TEXT = 4_000  # characters of a response
_LABEL_KEYS, _SCORE_KEYS = ("label", "class", "name"), ("score", "probability", "confidence")

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


@cache
def page_templates() -> Environment:
    """Return the environment of all HTML templates; everything that they show is escaped."""
    folders = [templates() / name for name in ("report", "check", "notebook", "serve")]
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"stage_css": _css_of, "cut": cut, "visible": visible}
    return environment


def cut(text: str, most: int = _LINE) -> str:
    """Return text of unknown origin on one line of limited length, every letter of it visible."""
    return printable(shortened(text, most))


@cache
def article_css() -> str:
    """Return the style sheet of an article, except its colors."""
    return (templates() / "report" / "article.css").read_text("utf-8")


def article(
    answered: AnsweredInput,
    labels: Mapping[str, str],
    handler: str,
    *,
    side: int = SIDE,
    style: str = "style",
    rows: int = 40,
) -> str:
    """Return the HTML of one input with its response.

    `labels` are the model's: {class index: label}. The longer side of a picture has `side` pixels at most. `style` is
    the attribute for places and colors: a page that forbids `style` copies them from another one. `rows` bounds the
    number of troubles, and of frames of each.
    """
    parts, result = answered.input.request.parts, answered.result
    pictures = (
        picture_of(part.value, side=side)
        for part in parts
        if part.content_type.startswith("image/") or part.content_type in {"", "application/octet-stream"}
    )
    picture = next(filter(None, pictures), None)
    built_in = BUILT_INS.get(handler)
    drawing = drawing_of(result, picture, labels, built_in.crop if built_in else None)
    width = 0
    if picture is not None:  # a small one is enlarged by a whole number
        minimum = _DRAWN_ON if drawing.boxes or drawing.overlay else _TINY
        factor = -(-minimum // picture.width) if picture.width < minimum else 1
        width = min(picture.width * factor, SIDE)
    # The stages as shares of the whole call, the rest of it last.
    whole = result.stages.get("handle", 0.0)
    named = [(name, result.stages[name]) for name in _STAGES if name in result.stages]
    strip = []
    if named and whole > 0:
        shares = [(name, round(100 * elapsed / whole, 2)) for name, elapsed in named]
        rest = 100 - 100 * sum(elapsed for _, elapsed in named) / whole
        strip = [{"css": _css_of(name), "share": share} for name, share in [*shares, ("", round(max(rest, 0), 2))]]
    times = " + ".join(f"{name} {elapsed:.1f}" for name, elapsed in named) + (" of " if named else "")
    template = page_templates().get_template("input.html.j2")
    return template.render(
        result=result,
        picture=picture,
        picture_width=width,
        picture_height=round(width * picture.height / picture.width) if picture else 0,
        parts=[{"name": part.name, "text": _part_text(part)} for part in parts],
        drawing=drawing,
        strip=strip,
        stage_times=f"{times}{whole:.1f} ms" if "handle" in result.stages else "",
        shown_frames=shown_frames,
        style=style,
        rows=rows,
    )


def _part_text(part: Part) -> str:
    try:
        text = part.value[: 4 * _TEXT].decode("utf-8", "strict" if len(part.value) <= 4 * _TEXT else "ignore")
    except UnicodeDecodeError:
        return f"{len(part.value):,} bytes {part.content_type}".rstrip()
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _css_of(stage: str) -> str:
    """Return the class that colors a stage everywhere; the whole call and the rest of it are grey."""
    return f"s{_STAGES.index(stage)}" if stage in _STAGES else "rest"


class Picture(Struct, frozen=True):
    """One picture for a page."""

    uri: str
    width: int  # pixels of the original as stored: handlers ignore its orientation, and so does the page
    height: int


class Overlay(Struct, frozen=True):
    """A picture over another; places are percent of the lower one's width and height."""

    uri: str
    left: float
    top: float
    width: float
    height: float
    legend: tuple[Mapping[str, str | float], ...] = ()  # label, color and share (percent) of each class


class Box(Struct, frozen=True):
    """One thing found in a picture; places are percent of its width and height."""

    label: str
    score: float | None
    left: float
    top: float
    width: float
    height: float
    hue: int  # degrees, the same for the same label


class Drawing(Struct, frozen=True, kw_only=True):
    """How a response is shown; empty parts are left out."""

    bars: tuple[tuple[str, float], ...] = ()  # label and share (percent) of each class
    boxes: tuple[Box, ...] = ()
    overlay: Overlay | None = None
    picture: Picture | None = None
    text: str = ""
    more: int = 0  # bars, boxes or characters beyond those shown


def drawing_of(result: Result, picture: Picture | None, labels: Mapping[str, str], crop: float | None) -> Drawing:
    """Return how to show a result: as boxes, bars, an overlay or a picture if it has their form, otherwise as text.

    `crop` is the share of the picture's shorter side that the handler uses, in the middle; None: all of it.
    """
    if result.body_encoding == "base64":
        drawn = picture_of(result.raw)
        return Drawing(picture=drawn) if drawn else Drawing(text=f"{len(result.raw):,} bytes")
    try:
        answer = msgspec.json.decode(result.body) if result.ok else None
    except (msgspec.DecodeError, ValueError, RecursionError):  # the second for letters that UTF-8 has not
        answer = None
    drawing = _draw_boxes(answer, picture, labels) if picture is not None else None
    drawing = drawing or _draw_bars(answer, labels)
    if drawing is None and picture is not None:
        overlay = _draw_mask(answer, labels, picture, crop) or _draw_heat(answer, picture, crop)
        drawing = None if overlay is None else Drawing(overlay=overlay)
    return drawing or Drawing(text=result.body[:_MAX_TEXT], more=max(0, len(result.body) - _MAX_TEXT))


def _draw_bars(answer: Any, labels: Mapping[str, str]) -> Drawing | None:  # Any: JSON
    """Draw `{label: probability}`, a list of {label, score}, or one of probabilities."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(answer, dict):
        pairs = sorted(answer.items(), key=lambda pair: -pair[1]) if all(map(is_number, answer.values())) else []
    elif isinstance(answer, list) and all(isinstance(item, dict) for item in answer):
        pairs = [(_first(item, _LABEL_KEYS), _first(item, _SCORE_KEYS)) for item in answer]
    elif isinstance(answer, list) and len(answer) > 1 and all(map(is_number, answer)) and abs(sum(answer) - 1) < 0.01:
        named = [(labels.get(str(index), str(index)), value) for index, value in enumerate(answer)]
        pairs = sorted(named, key=lambda pair: -pair[1])
    is_drawable = all(label is not None and is_number(value) and 0 <= value <= 1.001 for label, value in pairs)
    if not pairs or not is_drawable:
        return None
    bars = tuple((str(label), round(100.0 * min(value, 1), 2)) for label, value in pairs[:_MAX_BARS])
    return Drawing(bars=bars, more=max(0, len(pairs) - _MAX_BARS))


def _first(item: Mapping[str, Any], keys: Sequence[str]) -> Any:  # Any: JSON
    return next((item[key] for key in keys if key in item), None)


def _draw_boxes(answer: Any, picture: Picture, labels: Mapping[str, str]) -> Drawing | None:  # Any: JSON
    """Draw the findings of a detector: `[{label: [x1, y1, x2, y2], "score": s}, …]`."""
    if not isinstance(answer, list) or not answer or not all(isinstance(item, dict) for item in answer):
        return None
    width, height = max(picture.width, 1), max(picture.height, 1)
    boxes = []
    for item in answer:
        named = [
            (key, value)
            for key, value in item.items()
            if isinstance(value, list) and len(value) == 4 and all(map(is_number, value))
        ]
        if len(named) != 1:
            return None
        key, (left, top, right, bottom) = named[0]
        label = str(_first(item, _LABEL_KEYS) or "") if key in {"box", "bbox"} else key
        score = _first(item, _SCORE_KEYS)
        box = Box(
            label=labels.get(label, label),
            score=score if is_number(score) else None,
            left=round(100 * left / width, 3),
            top=round(100 * top / height, 3),
            width=round(100 * (right - left) / width, 3),
            height=round(100 * (bottom - top) / height, 3),
            hue=sum(map(ord, label)) * 47 % 360,
        )
        boxes.append(box)
    return Drawing(boxes=tuple(boxes[:_MAX_BOXES]), more=max(0, len(boxes) - _MAX_BOXES))


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


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _overlay(
    levels: bytes,
    size: tuple[int, int],
    colors: tuple[bytes, bytes],
    picture: Picture,
    crop: float | None,
    legend: tuple[Mapping[str, str | float], ...] = (),
) -> Overlay:
    """Return an index per pixel as an overlay on what the handler uses of a picture.

    `colors` are the RGB of each index, and its opacity.
    """
    from PIL import Image

    image = Image.frombytes("P", size, levels)
    image.putpalette(colors[0])
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=colors[1], optimize=False)
    width: float = 100
    height: float = 100
    if crop is not None:
        side = 100 * crop * min(picture.width, picture.height)
        width, height = side / picture.width, side / picture.height
    left, top = round((100 - width) / 2, 3), round((100 - height) / 2, 3)
    return Overlay(_uri("image/png", buffer.getvalue()), left, top, round(width, 3), round(height, 3), legend)


def _draw_mask(answer: Any, labels: Mapping[str, str], picture: Picture, crop: float | None) -> Overlay | None:
    """Draw a segmenter's response: `[H, W]` classes or `[H, W, 2]` classes with probabilities."""
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
    colors = b"".join(bytes(_color(index)) for index in range(_CLASSES)), bytes([0] + [_OPAQUE] * (_CLASSES - 1))
    legend: tuple[dict[str, str | float], ...] = tuple(
        {
            "label": labels.get(str(index), str(index)),
            "color": "rgb({} {} {})".format(*_color(index)) if index else "transparent",
            "share": round(100 * count / len(classes), 1),
        }
        for index, count in Counter(classes).most_common(_SHOWN)
    )
    return _overlay(bytes(classes), size, colors, picture, crop, legend)


def _color(index: int) -> tuple[int, int, int]:
    """Return a class's color: neighbours are far apart on the wheel."""
    if index == 0:
        return 0, 0, 0
    hue = index * 0.381966 % 1 * 6
    step, rest = int(hue), hue % 1
    rise, fall = round(40 + 190 * rest), round(40 + 190 * (1 - rest))
    return [(230, rise, 40), (fall, 230, 40), (40, 230, rise), (40, fall, 230), (rise, 40, 230), (230, 40, fall)][step]


def _draw_heat(answer: Any, picture: Picture, crop: float | None) -> Overlay | None:
    """Draw attributions `[C, H, W]`, an image handler's explanation, as a heat map."""
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
    clear = bytes(level * 220 // _LEVELS for level in range(_LEVELS))
    return _overlay(levels, sizes[0], (palette, clear), picture, crop)


def _size_of(rows: Any) -> tuple[int, int] | None:
    """Return width and height of nested lists that have the form of a picture."""
    if not isinstance(rows, list) or len(rows) < 2 or not all(isinstance(row, list) for row in rows):
        return None
    width = len(rows[0])
    if any(len(row) != width for row in rows) or not _MIN_PIXELS <= width * len(rows) <= _MAX_PIXELS:
        return None
    return width, len(rows)
