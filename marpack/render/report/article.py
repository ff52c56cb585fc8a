"""One input with its answer, as HTML: in the report of a run, and on the page that a model is tried on."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from marpack.errors import printable, shortened
from marpack.project.scaffold.template import templates
from marpack.render.layout import clean
from marpack.render.report.drawings import DrawingContext, drawing_of
from marpack.render.report.pictures import SIDE, Picture, picture_of
from marpack.render.run import told_frames
from marpack.runner.results import AnsweredInput, Result
from marpack.torchserve.http import Part
from marpack.torchserve.server_modules import BUILT_INS

_TEXT = 1_500  # characters of an input
_LINE = 300  # characters of a name or a sentence
_TINY = 96  # pixels: pictures below are shown larger
_DRAWN_ON = 240  # pixels: those that something is drawn on, below this
_STAGES = ("preprocess", "inference", "postprocess", "explain_handle", "describe_handle")


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
    """Return a text of unknown origin on one line, no longer than anybody reads, every letter of it visible."""
    return clean(shortened(text, _LINE))


def visible(text: str) -> str:
    """Return a text of several lines, with a mark in the place of what would be obeyed instead of shown."""
    return printable(text, keep="\n\t", stand_in="\N{REPLACEMENT CHARACTER}")


@cache
def article_css() -> str:
    """Return the style sheet of an article, but for its colours."""
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
    """Return the HTML of one input with its answer.

    Args:
        answered: What was asked and answered.
        labels: The model's: {class index: label}.
        handler: As the manifest names it.
        side: Pixels of a picture's longer side, at most.
        style: The attribute that places and colours stand in; a page that forbids the one of that name
            copies them from another.
        rows: Troubles that are told, and lines of the way to each, at most.
    """
    parts, result = answered.input.request.parts, answered.result
    picture = next(filter(None, (_picture(part, side) for part in parts)), None)
    built_in = BUILT_INS.get(handler)
    scene = DrawingContext(picture, labels, built_in.crop if built_in else None)
    drawing = drawing_of(result, _json(result), scene)
    width = _width(picture, _DRAWN_ON if drawing.boxes or drawing.overlay else _TINY)
    template = page_templates().get_template("input.html.j2")
    return template.render(
        result=result,
        picture=picture,
        picture_width=width,
        picture_height=round(width * picture.height / picture.width) if picture else 0,
        parts=[{"name": part.name, "text": _text(part)} for part in parts],
        drawing=drawing,
        strip=_strip(result.stages),
        stages_told=_stage_times(result.stages),
        told_frames=told_frames,
        style=style,
        rows=rows,
    )


def _picture(part: Part, side: int) -> Picture | None:
    kind = part.content_type.partition("/")[0]
    if kind != "image" and part.content_type not in {"", "application/octet-stream"}:
        return None
    return picture_of(part.value, side=side)


def _width(picture: Picture | None, minimum: int) -> int:
    """Return the width that a picture is shown with: enlarged by a whole number, if it is small."""
    if picture is None:
        return 0
    grown = -(-minimum // picture.width) if picture.width < minimum else 1
    return min(picture.width * grown, SIDE)


def _text(part: Part) -> str:
    try:
        text = part.value[: 4 * _TEXT].decode("utf-8", "strict" if len(part.value) <= 4 * _TEXT else "ignore")
    except UnicodeDecodeError:
        return f"{len(part.value):,} bytes {part.content_type}".rstrip()
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _json(result: Result) -> Any:  # Any: JSON
    if result.body_encoding != "text":
        return None
    try:
        return msgspec.json.decode(result.body)
    except (msgspec.DecodeError, ValueError, RecursionError):  # the second for letters that UTF-8 has not
        return None


def _strip(stages: Mapping[str, float]) -> list[dict[str, object]]:
    """Return the stages as shares of the whole call, what is left of it last."""
    whole = stages.get("handle", 0.0)
    named = [(name, stages[name]) for name in _STAGES if name in stages]
    if not named or whole <= 0:
        return []
    parts = [{"css": _css_of(name), "share": round(100 * elapsed / whole, 2)} for name, elapsed in named]
    rest = 100 - 100 * sum(elapsed for _, elapsed in named) / whole
    return [*parts, {"css": _css_of("handle"), "share": round(max(rest, 0), 2)}]


def _css_of(stage: str) -> str:
    """Return the class that colours a stage, wherever it is drawn; the whole call and what is left of it are grey."""
    return f"s{_STAGES.index(stage)}" if stage in _STAGES else "rest"


def _stage_times(stages: Mapping[str, float]) -> str:
    if "handle" not in stages:
        return ""
    named = [f"{name} {stages[name]:.1f}" for name in _STAGES if name in stages]
    return f"{' + '.join(named)}{' of ' if named else ''}{stages['handle']:.1f} ms"
