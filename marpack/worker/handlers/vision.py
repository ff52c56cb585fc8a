"""VisionHandler, ImageClassifier, ImageSegmenter, ObjectDetector; pictures as requests carry them (contract §7)."""

import base64
import binascii
import io
from abc import ABC
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.nn import functional

from marpack.protocol.diagnostics import Explained, note, tell_output
from marpack.protocol.targets import TargetDifference
from marpack.worker.handlers.base import BaseHandler, Deferred
from marpack.worker.handlers.call_diagnostics import explained_output, note_nonfinite
from marpack.worker.handlers.interfaces import HandlerContext, Rows, Value
from marpack.worker.handlers.loading import label_rows
from marpack.worker.handlers.settings import apply, better
from marpack.worker.handlers.timing import timed
from marpack.worker.handlers.transforms import Compose, ImageNet, ToTensor

_RGB_HINT = 'convert it before sending: Image.open(path).convert("RGB"); or in your own preprocess; or target: marpack'
_SEND_HINT = "send the picture's file as the body (curl -T picture.jpg), or as base64 in a JSON string"
_LIST_HINT = "send [C, H, W] numbers as evenly nested lists"
_WIDE = ("I", "F")  # modes with more than 8 bits per channel; I;16 and its kin begin alike
Detections = dict[str, torch.Tensor]  # boxes [M, 4], labels [M], scores [M]


class Processing(Protocol):
    """A handler that makes tensors of pictures."""

    image_processing: Any  # Any: a transform of marpack's or torchvision's, or a method


def tensor_of(value: Value, handler: Processing, *, to_rgb: bool) -> torch.Tensor:
    """Make a tensor of one request's picture.

    Args:
        value: The picture's file as bytes or base64 text, or its numbers as nested lists.
        handler: Whose `image_processing` to use; it need have none for numbers.
        to_rgb: Convert every picture to RGB first; the server does not.

    """
    if isinstance(value, str):
        value = base64.b64decode(value)
    if not isinstance(value, (bytearray, bytes)):
        return torch.FloatTensor(value)
    picture: Image.Image = Image.open(io.BytesIO(value))
    tensor: torch.Tensor = handler.image_processing(rgb(picture) if to_rgb else picture)
    return tensor


def rgb(picture: Image.Image) -> Image.Image:
    """Convert a picture of any mode to RGB; of 16 bits the upper 8 are kept, transparency is dropped."""
    if picture.mode == "RGB":
        return picture
    if picture.mode.startswith("I;16"):
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    elif "transparency" in picture.info:
        picture = picture.convert("RGBA")
    return picture.convert("RGB")


def note_refusal(value: Value, error: Exception) -> None:
    """Note why a request's picture is refused, and what mends it."""
    kind, message, hint = refusal(value, error)
    note(kind, message, stage="preprocess", hint=hint)


def refusal(value: Value, error: Exception) -> tuple[str, str, str]:
    """Return kind, reason and fix for a picture that could not be made a tensor."""
    if value is None or (isinstance(value, (str, bytes, bytearray)) and not value):
        return "empty-body", "the request has no picture: its body is empty, and no field is named data", _SEND_HINT
    if isinstance(value, dict):
        named = ", ".join(map(str, value)) or "no keys"
        return "json-object", f"the body is a JSON object ({named}), not a picture", 'send the bare string: "<base64>"'
    if isinstance(error, binascii.Error) or (isinstance(value, str) and not value.isascii()):
        return "not-base64", f"the body is text, but not base64: {error}", _SEND_HINT
    if isinstance(value, str):
        value = base64.b64decode(value)
    if not isinstance(value, (bytes, bytearray)):
        return "not-numbers", f"the body is a JSON {type(value).__name__} that is no tensor: {error}", _LIST_HINT
    return _file_refusal(bytes(value), error)


def _file_refusal(content: bytes, error: Exception) -> tuple[str, str, str]:
    if isinstance(error, UnidentifiedImageError):
        if content[:1] in {b"{", b"[", b'"'}:
            message = "the body looks like JSON, but it was not sent as application/json, or is not valid"
            return "undecoded-json", message, _SEND_HINT
        start = content[:12]
        message = f"the body ({len(content)} bytes, beginning {start!r}) is no picture that Pillow knows"
        return "not-a-picture", message, _SEND_HINT
    if isinstance(error, Image.DecompressionBombError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        message = f"the picture is larger than the {limit} pixels that Pillow opens: {error}"
        return "picture-too-large", message, "send it smaller, or start the server with limit_max_image_pixels=false"
    if isinstance(error, OSError):
        return "picture-damaged", f"the picture ({len(content)} bytes) cannot be decoded: {error}", "is the file whole?"
    return _mode_refusal(content, error)


def _mode_refusal(content: bytes, error: Exception) -> tuple[str, str, str]:
    with Image.open(io.BytesIO(content)) as picture:
        size, mode, bands = picture.size, picture.mode, len(picture.getbands())
    shape = f"a picture of {size[0]} x {size[1]} in mode {mode}"
    if mode.startswith(_WIDE):
        return "picture-mode", f"{shape} has more than 8 bits per channel; the server takes 8-bit RGB only", _RGB_HINT
    if mode != "RGB":
        return "picture-mode", f"{shape} has {bands} channels; the server takes RGB only", _RGB_HINT
    return "picture-processing", f"{shape} fails in image_processing: {error}", "check the handler's image_processing"


def stacked(images: list[torch.Tensor]) -> torch.Tensor:
    """Return [N, …] of the batch's tensors; note it if their shapes differ, which fails as on the server."""
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        message = f"the batch's pictures have different shapes: {sorted(shapes)}"
        hint = "scale them to one size in image_processing, or set batchSize: 1"
        note("shapes-differ", message, stage="preprocess", hint=hint)
    return torch.stack(images)


class VisionHandler(BaseHandler, ABC):
    """The base of every picture handler; subclasses set `image_processing`, one picture → [C, H, W]."""

    _marpack_options: tuple[str, ...] = ()  # keys of the config's `handler` section that set attributes
    image_processing: Any  # Any: a transform of marpack's or torchvision's, or a method

    def initialize(self, context: HandlerContext) -> None:
        """Load the model, and lift Pillow's limit on a picture's size if the server is told to."""
        super().initialize(context)
        self.ig: Any = Deferred("IntegratedGradients", self.model)  # Any: captum has no types
        apply(self, *self._marpack_options)
        self.initialized = True
        if not context.system_properties.get("limit_max_image_pixels"):
            Image.MAX_IMAGE_PIXELS = None

    @timed
    def preprocess(self, data: Rows) -> torch.Tensor:
        """Make one tensor [N, C, H, W] of the batch's pictures: bytes, base64 text or nested lists."""
        to_rgb = better(self, TargetDifference.PICTURES_CONVERTED)
        images = []
        for row in data:
            picture = row.get("data") or row.get("body")
            with Explained(partial(note_refusal, picture)):
                images.append(tensor_of(picture, self, to_rgb=to_rgb))
        return stacked(images).to(self.device)

    def get_insights(self, tensor_data: torch.Tensor, _: Value, target: Value = 0) -> Value:
        """Return the attributions of every input number, nested as [N, C, H, W]."""
        return self.ig.attribute(tensor_data, target=target, n_steps=15).tolist()


class ImageClassifier(VisionHandler):
    """Answers each picture with `{label: probability}` of its `topk` likeliest classes."""

    _marpack_imports_torchvision = True
    _marpack_options = ("topk", "resize", "crop")
    topk = 5
    image_processing = ImageNet()

    def set_max_result_classes(self, topk: int) -> None:
        """Set how many classes an answer names."""
        self.topk = topk

    def get_max_result_classes(self) -> int:
        """Return how many classes an answer names."""
        return self.topk

    @timed
    def postprocess(self, data: torch.Tensor) -> list[dict[str, Any]]:  # Any: probabilities
        """Turn logits [N, K] into one `{label: probability}` per picture, likeliest first.

        Raises RuntimeError for fewer classes than `topk`; target marpack names as many as there are.
        """
        note_nonfinite(data)
        tell_output(data, classes=True)
        with explained_output("logits [N, K]", data):
            probabilities = functional.softmax(data, dim=1)
        clamp = better(self, TargetDifference.TOPK_CLAMPED)
        values, classes = top(probabilities, self.topk, clamp=clamp)
        return label_rows(values.tolist(), self.mapping, classes.tolist())


def top(probabilities: torch.Tensor, topk: int, *, clamp: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values and indices [N, topk] of the likeliest classes; of all of them, if `clamp` and there are fewer."""
    classes = probabilities.shape[1]
    if topk > classes and not clamp:
        hint = f"call set_max_result_classes({classes}) in your handler's initialize, or set target: marpack"
        note("topk", f"the model has {classes} classes, and topk is {topk}", stage="postprocess", hint=hint)
    values, indices = torch.topk(probabilities, min(topk, classes) if clamp else topk, dim=1)
    return values, indices


class ImageSegmenter(VisionHandler):
    """Answers each picture with `[class, probability]` for every pixel."""

    _marpack_imports_torchvision = True
    _marpack_options = ("resize", "crop")
    image_processing = ImageNet()

    def postprocess(self, data: dict[str, torch.Tensor]) -> Value:
        """Turn `{"out": logits [N, K, H, W]}` into nested lists [N, H, W, 2] of class number and probability."""
        with explained_output('{"out": logits [N, K, H, W]}', data):
            logits = data["out"]
        note_nonfinite(logits)
        best = torch.max(torch.softmax(logits, dim=1), dim=1)
        return torch.stack([best.indices.type(best.values.dtype), best.values], dim=3).tolist()


class ObjectDetector(VisionHandler):
    """Answers each picture with `{label: [x1, y1, x2, y2], "score": s}` for every box of at least `threshold`."""

    _marpack_imports_torchvision = True
    _marpack_options = ("threshold",)
    image_processing = Compose([ToTensor()])
    threshold = 0.5

    def postprocess(self, data: list[Detections]) -> list[list[dict[str, Any]]]:  # Any: boxes and scores
        """Keep each picture's sure detections, in the model's order, and name them."""
        with explained_output("a list of {boxes [M, 4], labels [M], scores [M]}, one per picture", data):
            sure = [found["scores"] >= self.threshold for found in data]
            return [_kept(found, mask, self.mapping) for found, mask in zip(data, sure, strict=False)]


def _kept(found: Detections, sure: torch.Tensor, mapping: dict[str, str] | None) -> list[dict[str, Any]]:
    boxes, labels, scores = (found[key][sure].tolist() for key in ("boxes", "labels", "scores"))
    return [
        label_rows([[box]], mapping, [[label]])[0] | {"score": score}
        for box, label, score in zip(boxes, labels, scores, strict=False)  # as on the server
    ]
