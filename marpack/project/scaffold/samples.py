"""The samples of a project to be: the toy model's, the author's pictures, or stand-ins that the model can take."""

from typing import Any

import msgspec
from msgspec import Struct

from marpack.project.scaffold.fitting import Fit
from marpack.project.scaffold.survey import Survey, Weights
from marpack.project.scaffold.template import Template

_MOST = 5
_WIDEST = 4096  # numbers in a stand-in
_STAND_IN = "samples/stand-in"


class Chosen(Struct, frozen=True, kw_only=True):
    """Samples as marpack.yaml lists them, and the files that have to be brought for them."""

    listed: tuple[dict[str, Any], ...]  # Any: an expectation
    brought: dict[str, bytes] = {}
    stand_ins: bool = False  # they only show that the model answers


def toy_samples(template: Template) -> Chosen:
    """Return the samples of a template's own model, with the answers that they must get."""
    brought = {sample["input"]: template.read(sample["input"]) for sample in template.samples}
    return Chosen(listed=tuple(template.samples), brought=brought)


def own_samples(template: Template, found: Survey, weights: Weights, fitting: Fit) -> Chosen:
    """Return samples for a model of the author's: pictures that are there, else one stand-in that it can take."""
    picture = _picture(template, fitting)
    if picture and found.pictures:
        return Chosen(listed=tuple(_answered(name) for name in found.pictures[:_MOST]))
    name, content = _stand_in(template, weights, picture)
    return Chosen(listed=(_answered(name),), brought={name: content}, stand_ins=True)


def _picture(template: Template, fitting: Fit) -> str | None:
    """Return the stand-in that is a picture, if the template's handler takes one."""
    if template.takes == "picture":
        return "red.png"
    if not template.reads_pictures:
        return None
    return "gray.png" if fitting.gray else "red.png" if fitting.pictures else None


def _answered(name: str) -> dict[str, Any]:  # Any: an expectation
    return {"input": name, "expect": {"status": 200}}


def _stand_in(template: Template, weights: Weights, picture: str | None) -> tuple[str, bytes]:
    if picture:
        return f"{_STAND_IN}.png", (template.folder.parent / picture).read_bytes()
    if template.takes != "numbers":
        name = template.samples[0]["input"]
        return f"{_STAND_IN}.{name.rpartition('.')[2]}", template.read(name)
    row: list[Any] = [0.5] * (_width(weights) or 3)  # Any: a row of numbers, or a list of such rows
    value = [row, row] if template.name == "streaming" else row
    return f"{_STAND_IN}.json", msgspec.json.encode(value) + b"\n"


def _width(weights: Weights) -> int | None:
    """Return how many numbers a model takes, guessed from its first layer."""
    ports = [port.shape[-1] for port in weights.contents.inputs if port.shape]
    layers = [placed.tensor.shape[1] for placed in weights.contents.tensors if len(placed.tensor.shape) == 2]
    return next((size for size in (*ports, *layers) if isinstance(size, int) and 0 < size <= _WIDEST), None)
