"""One input with its response as HTML, for the report of a run, the page to try models, and notebooks."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from marpack.errors import shortened
from marpack.project.scaffold.template import templates
from marpack.render.console import clean, visible
from marpack.render.report.pictures import SIDE, Overlay, Picture, heat_of, mask_of, picture_of
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


@cache
def page_templates() -> Environment:
    """Return the environment of the report's templates."""
    # Python's own, not a page's: the loader reads from the package alone, and everything shown is escaped.
    environment = Environment(
        loader=FileSystemLoader(templates() / "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"stage_css": _css_of, "cut": cut, "visible": visible}
    return environment


def cut(text: str) -> str:
    """Return text of unknown origin on one line of limited length, every letter of it visible."""
    return clean(shortened(text, _LINE))


@cache
def article_css() -> str:
    """Return the style sheet of an article, except its colours."""
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

    Args:
        answered: The input and its result.
        labels: The model's: {class index: label}.
        handler: As the manifest names it.
        side: Pixels of a picture's longer side, at most.
        style: The attribute for places and colours; a page that forbids `style` copies them from another one.
        rows: Troubles shown, and frames of each, at most.
    """
    parts, result = answered.input.request.parts, answered.result
    pictures = (
        picture_of(part.value, side=side)
        for part in parts
        if part.content_type.startswith("image/") or part.content_type in {"", "application/octet-stream"}
    )
    picture = next(filter(None, pictures), None)
    built_in = BUILT_INS.get(handler)
    scene = DrawingContext(picture, labels, built_in.crop if built_in else None)
    drawing = drawing_of(result, scene)
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
    return (
        page_templates()
        .get_template("input.html.j2")
        .render(
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
    )


def _part_text(part: Part) -> str:
    try:
        text = part.value[: 4 * _TEXT].decode("utf-8", "strict" if len(part.value) <= 4 * _TEXT else "ignore")
    except UnicodeDecodeError:
        return f"{len(part.value):,} bytes {part.content_type}".rstrip()
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _css_of(stage: str) -> str:
    """Return the class that colours a stage everywhere; the whole call and the rest of it are grey."""
    return f"s{_STAGES.index(stage)}" if stage in _STAGES else "rest"


class Bar(Struct, frozen=True):
    """One class."""

    label: str
    value: float
    share: float  # percent of the bar's full length


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

    bars: tuple[Bar, ...] = ()
    boxes: tuple[Box, ...] = ()
    overlay: Overlay | None = None
    picture: Picture | None = None
    text: str = ""
    more: int = 0  # bars, boxes or characters beyond those shown


class DrawingContext(Struct, frozen=True):
    """What is known about a response's request and model."""

    picture: Picture | None  # of the request
    labels: Mapping[str, str]  # {class index: label}
    crop: float | None  # share of the picture's shorter side that the handler uses, in the middle; None: all of it


def drawing_of(result: Result, scene: DrawingContext) -> Drawing:
    """Return how to show a result: as boxes, bars, an overlay or a picture if it has their form, otherwise as text."""
    if result.body_encoding == "base64":
        picture = picture_of(result.raw)
        return Drawing(picture=picture) if picture else Drawing(text=f"{len(result.raw):,} bytes")
    try:
        answer = msgspec.json.decode(result.body) if result.ok else None
    except (msgspec.DecodeError, ValueError, RecursionError):  # the second for letters that UTF-8 has not
        answer = None
    drawing = _draw_boxes(answer, scene) or _draw_bars(answer, scene)
    if drawing is None and scene.picture is not None:
        overlay = mask_of(answer, scene.labels, scene.picture, scene.crop) or heat_of(answer, scene.picture, scene.crop)
        drawing = None if overlay is None else Drawing(overlay=overlay)
    text = result.body
    return drawing or Drawing(text=text[:_MAX_TEXT], more=max(0, len(text) - _MAX_TEXT))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _draw_bars(answer: Any, scene: DrawingContext) -> Drawing | None:  # Any: JSON
    """Draw `{label: probability}`, a list of {label, score}, or one of probabilities."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(answer, dict):
        pairs = sorted(answer.items(), key=lambda pair: -pair[1]) if all(map(_is_number, answer.values())) else []
    elif isinstance(answer, list) and all(isinstance(item, dict) for item in answer):
        pairs = [(_first(item, _LABEL_KEYS), _first(item, _SCORE_KEYS)) for item in answer]
    elif isinstance(answer, list) and len(answer) > 1 and all(map(_is_number, answer)) and abs(sum(answer) - 1) < 0.01:
        named = [(scene.labels.get(str(index), str(index)), value) for index, value in enumerate(answer)]
        pairs = sorted(named, key=lambda pair: -pair[1])
    is_drawable = all(label is not None and _is_number(value) and 0 <= value <= 1.001 for label, value in pairs)
    if not pairs or not is_drawable:
        return None
    bars = tuple(Bar(str(label), float(value), round(100 * min(value, 1), 2)) for label, value in pairs[:_MAX_BARS])
    return Drawing(bars=bars, more=max(0, len(pairs) - _MAX_BARS))


def _first(item: Mapping[str, Any], keys: Sequence[str]) -> Any:  # Any: JSON
    return next((item[key] for key in keys if key in item), None)


def _draw_boxes(answer: Any, scene: DrawingContext) -> Drawing | None:  # Any: JSON
    """Draw the findings of a detector: `[{label: [x1, y1, x2, y2], "score": s}, …]`."""
    is_list = isinstance(answer, list) and answer and all(isinstance(item, dict) for item in answer)
    if scene.picture is None or not is_list:
        return None
    width, height = max(scene.picture.width, 1), max(scene.picture.height, 1)
    boxes = []
    for item in answer:
        named = [
            (key, value)
            for key, value in item.items()
            if isinstance(value, list) and len(value) == 4 and all(map(_is_number, value))
        ]
        if len(named) != 1:
            return None
        key, (left, top, right, bottom) = named[0]
        label = str(_first(item, _LABEL_KEYS) or "") if key in {"box", "bbox"} else key
        score = _first(item, _SCORE_KEYS)
        box = Box(
            label=scene.labels.get(label, label),
            score=score if _is_number(score) else None,
            left=round(100 * left / width, 3),
            top=round(100 * top / height, 3),
            width=round(100 * (right - left) / width, 3),
            height=round(100 * (bottom - top) / height, 3),
            hue=sum(map(ord, label)) * 47 % 360,
        )
        boxes.append(box)
    return Drawing(boxes=tuple(boxes[:_MAX_BOXES]), more=max(0, len(boxes) - _MAX_BOXES))
