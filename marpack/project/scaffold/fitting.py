"""Which template suits the weights, and which samples go along."""

from typing import Any

import msgspec
from msgspec import Struct

from marpack.project.label_files import count_classes
from marpack.project.scaffold.survey import Survey, Weights
from marpack.project.scaffold.template import Template
from marpack.weights.contents import WeightsSummary
from marpack.weights.kind import WeightsFormat

_MAX_COUNT = 5
_WIDEST = 4096  # numbers in a stand-in
_STAND_IN = "samples/stand-in"


class Fit(Struct, frozen=True, kw_only=True):
    """A template, and what is known of the model that speaks for it."""

    template: str
    pictures: bool = False  # it takes pictures of three channels
    gray: bool = False  # of one
    classes: int | None = None  # that it tells apart


def fit(found: Survey, weights: Weights | None, labels: int | None) -> Fit:
    """Return the template that fits the folder's parts, the weights chosen of them, and the number of labels."""
    if weights is None:
        return Fit(template="image_classifier")
    channels, classes = channels_of(weights.contents), labels or count_classes(weights.contents)
    if weights.kind is WeightsFormat.ONNX:
        return Fit(template="onnx", pictures=channels == 3, gray=channels == 1, classes=classes)
    arguments, result = _signature(weights)
    if found.vocabulary and (arguments > 1 or weights.kind is not WeightsFormat.TORCHSCRIPT):
        return Fit(template="text_classifier", classes=classes)
    if "List[Dict[str, Tensor]]" in result:
        return Fit(template="object_detector")
    if result == "Dict[str, Tensor]":
        return Fit(template="image_segmenter")
    if channels == 3:
        return Fit(template="image_classifier", pictures=True, classes=classes)
    if channels == 1:
        return Fit(template="custom", gray=True, classes=classes)
    return Fit(template="custom", classes=classes)


def channels_of(contents: WeightsSummary) -> int | None:
    """Return how many channels the pictures have that a model begins with; None where it begins otherwise."""
    ports = [port.shape for port in contents.inputs if port.shape and len(port.shape) == 4]
    if ports and isinstance(ports[0][1], int):
        return ports[0][1]
    kernels = (placed.tensor.shape for placed in contents.tensors if len(placed.tensor.shape) == 4)
    return next((shape[1] for shape in kernels), None)


def _signature(weights: Weights) -> tuple[int, str]:
    """Return how many arguments a model's forward takes, and what it returns."""
    forward = next((method for method in weights.contents.methods if method.name == "forward"), None)
    if forward is None:
        return 1, ""
    arguments, _, result = forward.signature.rpartition(" -> ")
    return arguments.count(": "), result


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
        return Chosen(listed=tuple(_answered(name) for name in found.pictures[:_MAX_COUNT]))
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
    row: list[Any] = [0.5] * (width_of(weights.contents) or 3)  # Any: a row of numbers, or a list of such rows
    value = [row, row] if template.name == "streaming" else row
    return f"{_STAND_IN}.json", msgspec.json.encode(value) + b"\n"


def width_of(contents: WeightsSummary) -> int | None:
    """Return how many numbers a model takes, guessed from its first layer."""
    ports = [port.shape[-1] for port in contents.inputs if port.shape]
    layers = [placed.tensor.shape[1] for placed in contents.tensors if len(placed.tensor.shape) == 2]
    return next((size for size in (*ports, *layers) if isinstance(size, int) and 0 < size <= _WIDEST), None)
