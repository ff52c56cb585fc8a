"""VisionHandler, ImageClassifier, ImageSegmenter, ObjectDetector; pictures → tensors (contract §7).

The transforms compute bit for bit what torchvision's do on Pillow images, without torchvision.
"""

import base64
import binascii
import io
import sys
from abc import ABC
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch.nn import functional

from marpack.protocol.targets import TargetDifference
from marpack.torchserve.labels import map_class_to_label
from marpack.worker.handlers import base
from marpack.worker.handlers.base import BaseHandler, HandlerContext, Rows, Value, improves
from marpack.worker.notes import Explained, note, record_output
from marpack.worker.stages import timed

_RGB_HINT = 'Convert it with Image.open(path).convert("RGB"), before sending or in preprocess; or set target: marpack.'
_SEND_HINT = "Send the picture's file as the body (curl -T picture.jpg), or as base64 in a JSON string."
_DAMAGED_HINT = "Open the file in an image viewer, and copy or export it again."
_LIST_HINT = "Send [C, H, W] numbers as evenly nested lists."
_WIDE = ("I", "F")  # modes with more than 8 bits per channel; I;16 and its kin begin alike
# Pillow mode → the dtype its pixels are read as; everything else is read as bytes.
_DTYPES = {"I": np.int32, "I;16" if sys.byteorder == "little" else "I;16B": np.int16, "F": np.float32}
Detections = dict[str, torch.Tensor]  # boxes [M, 4], labels [M], scores [M]
Step = Callable[[Any], Any]  # Any: pictures go in, tensors come out, and each step takes what the one before returned


class Compose:
    """Steps in a row; `transforms` may be read and changed like torchvision's."""

    def __init__(self, transforms: Sequence[Step]) -> None:
        self.transforms = transforms

    def __call__(self, picture: Any) -> Any:  # Any: as Step
        """Apply every step in turn."""
        for step in self.transforms:
            picture = step(picture)
        return picture


class Resize:
    """Scale a picture until its shorter edge has `size` pixels, bilinear and antialiased; round the longer down."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, picture: Image.Image) -> Image.Image:
        """Return the picture scaled, or itself if it has that size already."""
        width, height = picture.size
        wanted = (self.size, int(self.size * height / width))
        if width > height:
            wanted = (int(self.size * width / height), self.size)
        return picture if wanted == picture.size else picture.resize(wanted, Image.Resampling.BILINEAR)


class CenterCrop:
    """Cut a square of `size` pixels from a picture's middle; a smaller picture is first put on black."""

    def __init__(self, size: int) -> None:
        self.size = (size, size)  # height and width, as torchvision keeps them

    def __call__(self, picture: Image.Image) -> Image.Image:
        """Return the middle of the picture."""
        height, width = self.size
        wide, high = max(width - picture.width, 0), max(height - picture.height, 0)
        if wide or high:
            border = (wide // 2, high // 2, (wide + 1) // 2, (high + 1) // 2)
            bands = len(picture.getbands())
            padded = ImageOps.expand(picture, border=border, fill=0 if bands == 1 else (0,) * bands)
            if picture.mode == "P":
                padded.putpalette(picture.getpalette() or [])
            picture = padded
        if picture.size == (width, height):
            return picture
        # round() goes to the even neighbour at .5, as torchvision's does
        left, top = round((picture.width - width) / 2.0), round((picture.height - height) / 2.0)
        return picture.crop((left, top, left + width, top + height))


class ToTensor:
    """A picture as a tensor [C, H, W]: bytes become floats in 0…1, wider pixels keep their numbers."""

    def __call__(self, picture: Image.Image | np.ndarray[Any, Any]) -> torch.Tensor:  # Any: shape and dtype
        """Return the pixels of a picture, or of an array [H, W] or [H, W, C]."""
        if isinstance(picture, np.ndarray):
            array = picture
        else:
            array = np.array(picture, _DTYPES.get(picture.mode, np.uint8), copy=True)
            if picture.mode == "1":
                array *= np.uint8(255)
        pixels = torch.from_numpy(array)
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        pixels = pixels.permute((2, 0, 1)).contiguous()
        return pixels.to(torch.get_default_dtype()).div(255) if pixels.dtype is torch.uint8 else pixels


class Normalize:
    """Subtract `mean` and divide by `std`, one number per channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = mean
        self.std = std

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a normalized copy of [C, H, W]; raises TypeError for integers, RuntimeError for other channels."""
        if not tensor.is_floating_point():
            raise TypeError(f"pixels must be floats to be normalized, not {tensor.dtype}")
        mean, std = (torch.as_tensor(each, dtype=tensor.dtype).view(-1, 1, 1) for each in (self.mean, self.std))
        return tensor.clone().sub_(mean).div_(std)


class ImageNet(Compose):
    """The steps for nets trained on ImageNet: to [3, crop, crop], normalized by its mean and deviation."""

    def __init__(self, resize: int = 256, crop: int = 224) -> None:
        self.sizes = {"resize": resize, "crop": crop}
        normalize = Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        super().__init__([Resize(resize), CenterCrop(crop), ToTensor(), normalize])


class VisionHandler(BaseHandler, ABC):
    """The base of every picture handler; subclasses set `image_processing`, one picture → [C, H, W]."""

    _marpack_options: tuple[str, ...] = ()  # keys of the config's `handler` section that set attributes
    image_processing: Any  # Any: a transform of marpack's or torchvision's, or a method

    def initialize(self, context: HandlerContext) -> None:
        """Load the model, and lift Pillow's limit on a picture's size if the server's setting lifts it."""
        super().initialize(context)
        self.ig: Any = base.Deferred("IntegratedGradients", self.model)  # Any: captum has no types
        options = base.read_options(self, self._marpack_options)
        sizes = {key: int(options.pop(key)) for key in ("resize", "crop") if key in options}
        for key, value in options.items():
            setattr(self, key, value)
        if sizes and isinstance(self.image_processing, ImageNet):  # not an author's own steps
            self.image_processing = ImageNet(**(self.image_processing.sizes | sizes))
        self.initialized = True
        if not context.system_properties.get("limit_max_image_pixels"):
            Image.MAX_IMAGE_PIXELS = None

    @timed
    def preprocess(self, data: Rows) -> torch.Tensor:
        """Make one tensor [N, C, H, W] of the batch's pictures: files as bytes or base64 text, or nested lists."""
        convert = improves(self, TargetDifference.PICTURES_CONVERTED)
        images: list[torch.Tensor] = []
        for row in data:
            value = row.get("data") or row.get("body")
            with Explained(partial(_note_refusal, value)):
                value = base64.b64decode(value) if isinstance(value, str) else value
                if isinstance(value, (bytearray, bytes)):
                    picture: Image.Image = Image.open(io.BytesIO(value))
                    images.append(self.image_processing(to_rgb(picture) if convert else picture))
                else:
                    images.append(torch.FloatTensor(value))
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) > 1:
            message = f"the batch's pictures have different shapes: {sorted(shapes)}"
            hint = "Scale them to one size in image_processing, or set batchSize: 1."
            note("shapes-differ", message, stage="preprocess", hint=hint)
        return torch.stack(images).to(self.device)

    def get_insights(self, tensor_data: torch.Tensor, _: Value, target: Value = 0) -> Value:
        """Return the attributions of every input number, nested as [N, C, H, W]."""
        return self.ig.attribute(tensor_data, target=target, n_steps=15).tolist()


def to_rgb(picture: Image.Image) -> Image.Image:
    """Convert a picture of any mode to RGB; of 16 bits the upper 8 are kept, transparency is dropped."""
    if picture.mode == "RGB":
        return picture
    if picture.mode.startswith("I;16"):
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    elif "transparency" in picture.info:
        picture = picture.convert("RGBA")
    return picture.convert("RGB")


def _note_refusal(value: Value, error: Exception) -> None:
    if value is None or (isinstance(value, (str, bytes, bytearray)) and not value):
        reason = "the request has no picture: its body is empty, and no field is named data"
        kind, hint = "empty-body", _SEND_HINT
    elif isinstance(value, dict):
        reason = f"the body is a JSON object ({', '.join(map(str, value)) or 'no keys'}), not a picture"
        kind, hint = "json-object", 'Send only the string: "<base64>"'
    elif isinstance(error, binascii.Error) or (isinstance(value, str) and not value.isascii()):
        kind, reason, hint = "not-base64", f"the body is text, but not base64: {error}", _SEND_HINT
    elif not isinstance(value, (str, bytes, bytearray)):
        reason = f"the body is a JSON {type(value).__name__} that is not a tensor: {error}"
        kind, hint = "not-numbers", _LIST_HINT
    else:
        content = base64.b64decode(value) if isinstance(value, str) else bytes(value)
        kind, reason, hint = _refusal_of_file(content, error)
    note(kind, reason, stage="preprocess", hint=hint)


def _refusal_of_file(content: bytes, error: Exception) -> tuple[str, str, str]:
    """Return kind, reason and hint for a picture's file that does not become a tensor."""
    if isinstance(error, UnidentifiedImageError) and content[:1] in {b"{", b"[", b'"'}:
        reason = "the body looks like JSON, but it was not sent as application/json, or is not valid"
        return "undecoded-json", reason, _SEND_HINT
    if isinstance(error, UnidentifiedImageError):
        reason = f"the body ({len(content)} bytes, beginning {content[:12]!r}) is not a picture that Pillow knows"
        return "not-a-picture", reason, _SEND_HINT
    if isinstance(error, Image.DecompressionBombError):
        reason = f"the picture is larger than the {2 * (Image.MAX_IMAGE_PIXELS or 0)} pixels that Pillow opens: {error}"
        return (
            "picture-too-large",
            reason,
            "Send a smaller picture, or start the server with limit_max_image_pixels=false.",
        )
    if isinstance(error, OSError):
        return "picture-damaged", f"the picture ({len(content)} bytes) cannot be decoded: {error}", _DAMAGED_HINT
    with Image.open(io.BytesIO(content)) as picture:
        mode, bands = picture.mode, len(picture.getbands())
        shape = f"a picture of {picture.width} x {picture.height} in mode {mode}"
    if mode == "RGB":
        hint = "Fix image_processing in the handler."
        return "picture-processing", f"{shape} fails in image_processing: {error}", hint
    has = "more than 8 bits per channel" if mode.startswith(_WIDE) else f"{bands} channels"
    return "picture-mode", f"{shape} has {has}; the server takes 8-bit RGB only", _RGB_HINT


class ImageClassifier(VisionHandler):
    """Responds to each picture with `{label: probability}` of its `topk` likeliest classes."""

    _marpack_imports_torchvision = True
    _marpack_options = ("topk", "resize", "crop")
    topk = 5
    image_processing = ImageNet()

    def set_max_result_classes(self, topk: int) -> None:
        """Set the number of classes in a response."""
        self.topk = topk

    def get_max_result_classes(self) -> int:
        """Return the number of classes in a response."""
        return self.topk

    @timed
    def postprocess(self, data: torch.Tensor) -> list[dict[str, Any]]:  # Any: probabilities
        """Turn logits [N, K] into one `{label: probability}` per picture, likeliest first.

        Raises RuntimeError for fewer classes than `topk`; target marpack names as many as there are.
        """
        base.note_nonfinite(data)
        record_output(data, classes=True)
        with base.explained_output("logits [N, K]", data):
            probabilities = functional.softmax(data, dim=1)
        topk, classes = self.topk, probabilities.shape[1]
        if topk > classes and improves(self, TargetDifference.TOPK_CLAMPED):
            topk = classes
        elif topk > classes:
            hint = f"Call set_max_result_classes({classes}) in your handler's initialize, or set target: marpack."
            note("topk", f"topk is {topk}, but the model has {classes} classes", stage="postprocess", hint=hint)
        values, indices = torch.topk(probabilities, topk, dim=1)
        return map_class_to_label(values.tolist(), self.mapping, indices.tolist())


class ImageSegmenter(VisionHandler):
    """Responds to each picture with `[class, probability]` for every pixel."""

    _marpack_imports_torchvision = True
    _marpack_options = ("resize", "crop")
    image_processing = ImageNet()

    def postprocess(self, data: dict[str, torch.Tensor]) -> Value:
        """Turn `{"out": logits [N, K, H, W]}` into nested lists [N, H, W, 2] of class number and probability."""
        with base.explained_output('{"out": logits [N, K, H, W]}', data):
            logits = data["out"]
        base.note_nonfinite(logits)
        best = torch.max(torch.softmax(logits, dim=1), dim=1)
        return torch.stack([best.indices.type(best.values.dtype), best.values], dim=3).tolist()


class ObjectDetector(VisionHandler):
    """Responds to each picture with `{label: [x1, y1, x2, y2], "score": s}` for every box of at least `threshold`."""

    _marpack_imports_torchvision = True
    _marpack_options = ("threshold",)
    image_processing = Compose([ToTensor()])
    threshold = 0.5

    def postprocess(self, data: list[Detections]) -> list[list[dict[str, Any]]]:  # Any: boxes and scores
        """Keep each picture's detections above the threshold, in the model's order, and label them."""
        with base.explained_output("a list of {boxes [M, 4], labels [M], scores [M]}, one per picture", data):
            masks = [found["scores"] >= self.threshold for found in data]
            responses = []
            for found, mask in zip(data, masks, strict=False):
                columns = (found[key][mask].tolist() for key in ("boxes", "labels", "scores"))
                boxes = zip(*columns, strict=False)  # as on the server
                named = [
                    (map_class_to_label([[box]], self.mapping, [[label]])[0], score) for box, label, score in boxes
                ]
                responses.append([label | {"score": score} for label, score in named])
            return responses
