"""What an answer shows: class bars, boxes, a mask, a heat map, a picture, or its text."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from marpack.render.report.pictures import Overlay, Picture, heat_of, mask_of, picture_of
from marpack.runner.results import Result

_MAX_BARS = 12
_MAX_BOXES = 200
_MAX_TEXT = 4_000  # characters
_LABEL_KEYS, _SCORE_KEYS = ("label", "class", "name"), ("score", "probability", "confidence")


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
    """Everything that can be shown of one answer; what is empty is left out."""

    bars: tuple[Bar, ...] = ()
    boxes: tuple[Box, ...] = ()
    overlay: Overlay | None = None
    picture: Picture | None = None
    text: str = ""
    more: int = 0  # of bars, boxes or characters, beyond those shown


class DrawingContext(Struct, frozen=True):
    """What an answer has to be understood by."""

    picture: Picture | None  # that was asked about
    labels: Mapping[str, str]  # {class index: label}
    crop: float | None  # share of the picture's shorter side that the handler looks at, in the middle; None: all of it


def drawing_of(result: Result, answer: Any, scene: DrawingContext) -> Drawing:  # Any: JSON
    """Return what there is to see of a result; `answer` is its body's JSON, or None where it is none."""
    if result.body_encoding == "base64":
        picture = picture_of(result.raw)
        return Drawing(picture=picture) if picture else Drawing(text=f"{len(result.raw):,} bytes")
    if not result.ok or answer is None:
        return _text(result.body)
    return _boxes(answer, scene) or _bars(answer, scene) or _overlay(answer, scene) or _text(result.body)


def _text(text: str) -> Drawing:
    return Drawing(text=text[:_MAX_TEXT], more=max(0, len(text) - _MAX_TEXT))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bars(answer: Any, scene: DrawingContext) -> Drawing | None:
    """Draw `{label: probability}`, a list of {label, score}, or one of probabilities."""
    pairs = _pairs(answer) or _numbered(answer, scene)
    if not pairs or any(not 0 <= value <= 1.001 for _, value in pairs):
        return None
    bars = tuple(Bar(label, value, round(100 * min(value, 1), 2)) for label, value in pairs[:_MAX_BARS])
    return Drawing(bars=bars, more=max(0, len(pairs) - _MAX_BARS))


def _pairs(answer: Any) -> list[tuple[str, float]]:
    if isinstance(answer, dict):
        if not answer or not all(_is_number(value) for value in answer.values()):
            return []
        return sorted(((str(label), float(value)) for label, value in answer.items()), key=lambda pair: -pair[1])
    if isinstance(answer, list) and answer and all(isinstance(item, dict) for item in answer):
        pairs = [(_first(item, _LABEL_KEYS), _first(item, _SCORE_KEYS)) for item in answer]
        if all(label is not None and _is_number(score) for label, score in pairs):
            return [(str(label), float(score)) for label, score in pairs]
    return []


def _numbered(answer: Any, scene: DrawingContext) -> list[tuple[str, float]]:
    if not isinstance(answer, list) or len(answer) < 2 or not all(map(_is_number, answer)):
        return []
    if not abs(sum(answer) - 1) < 0.01:
        return []
    pairs = [(scene.labels.get(str(index), str(index)), float(value)) for index, value in enumerate(answer)]
    return sorted(pairs, key=lambda pair: -pair[1])


def _first(item: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((item[key] for key in keys if key in item), None)


def _boxes(answer: Any, scene: DrawingContext) -> Drawing | None:
    """Draw what a detector found: `[{label: [x1, y1, x2, y2], "score": s}, …]`."""
    if scene.picture is None:
        return None
    found = _listed(answer)
    if not found:
        return None
    boxes = tuple(_box(*thing, scene.picture, scene.labels) for thing in found[:_MAX_BOXES])
    return Drawing(boxes=boxes, more=max(0, len(found) - _MAX_BOXES))


def _listed(answer: Any) -> list[tuple[str, float | None, list[float]]]:
    """Return label, score and corners of each thing found."""
    if not isinstance(answer, list) or not answer or not all(isinstance(item, dict) for item in answer):
        return []
    found = []
    for item in answer:
        named = [(key, value) for key, value in item.items() if _is_box(value)]
        score = _first(item, _SCORE_KEYS)
        if len(named) != 1:
            return []
        key, corners = named[0]
        label = str(_first(item, _LABEL_KEYS) or "") if key in {"box", "bbox"} else key
        found.append((label, score if _is_number(score) else None, corners))
    return found


def _is_box(value: object) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(_is_number(number) for number in value)


def _box(label: str, score: float | None, corners: list[float], picture: Picture, labels: Mapping[str, str]) -> Box:
    left, top, right, bottom = corners
    return Box(
        label=labels.get(label, label),
        score=score,
        left=_percent(left, picture.width),
        top=_percent(top, picture.height),
        width=_percent(right - left, picture.width),
        height=_percent(bottom - top, picture.height),
        hue=sum(map(ord, label)) * 47 % 360,
    )


def _percent(value: float, whole: int) -> float:
    return round(100 * value / max(whole, 1), 3)


def _overlay(answer: Any, scene: DrawingContext) -> Drawing | None:
    if scene.picture is None:
        return None
    overlay = mask_of(answer, scene.labels, scene.picture, scene.crop) or heat_of(answer, scene.picture, scene.crop)
    return None if overlay is None else Drawing(overlay=overlay)
