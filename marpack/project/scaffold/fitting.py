"""Which template fits the weights that are there, judged by their format, signature and first layer."""

from msgspec import Struct

from marpack.project.scaffold.labelled import count_classes
from marpack.project.scaffold.survey import Survey, Weights
from marpack.weights.kind import Kind

TOPK = 5  # classes that the server's image_classifier names, and fails without


class Fit(Struct, frozen=True, kw_only=True):
    """A template, and what speaks for it."""

    template: str
    reason: str
    pictures: bool = False  # it takes pictures of three channels
    gray: bool = False  # of one
    classes: int | None = None  # that it tells apart


def fit(found: Survey, weights: Weights | None, labels: int | None) -> Fit:
    """Return the template that fits.

    Args:
        found: The folder's parts.
        weights: Those chosen, if any.
        labels: How many labels there are.
    """
    if weights is None:
        return Fit(template="image_classifier", reason="there are no weights yet")
    channels, classes = _channels(weights), labels or count_classes(weights.contents)
    if weights.kind is Kind.ONNX:
        reason = "it is an ONNX model"
        return Fit(template="onnx", reason=reason, pictures=channels == 3, gray=channels == 1, classes=classes)
    arguments, result = _signature(weights)
    if found.vocabulary and (arguments > 1 or weights.kind is not Kind.TORCHSCRIPT):
        return Fit(template="text_classifier", reason=f"there is a {found.vocabulary}", classes=classes)
    if "List[Dict[str, Tensor]]" in result:
        return Fit(template="object_detector", reason=f"its forward returns {result}")
    if result == "Dict[str, Tensor]":
        return Fit(template="image_segmenter", reason=f"its forward returns {result}")
    if channels == 3:
        reason = "its first layer takes pictures of three channels"
        return Fit(template="image_classifier", reason=reason, pictures=True, classes=classes)
    if channels == 1:
        return Fit(template="custom", reason="its first layer takes gray pictures", gray=True, classes=classes)
    return Fit(template="custom", reason="nothing tells what it takes", classes=classes)


def _channels(weights: Weights) -> int | None:
    """Return how many channels the pictures have that a model begins with; None where it begins otherwise."""
    ports = [port.shape for port in weights.contents.inputs if port.shape and len(port.shape) == 4]
    if ports and isinstance(ports[0][1], int):
        return ports[0][1]
    kernels = (placed.tensor.shape for placed in weights.contents.tensors if len(placed.tensor.shape) == 4)
    return next((shape[1] for shape in kernels), None)


def _signature(weights: Weights) -> tuple[int, str]:
    """Return how many arguments a model's forward takes, and what it returns."""
    forward = next((method for method in weights.contents.methods if method.name == "forward"), None)
    if forward is None:
        return 1, ""
    arguments, _, result = forward.signature.rpartition(" -> ")
    return arguments.count(": "), result
