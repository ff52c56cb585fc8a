"""Pictures as requests carry them: bytes, base64 text or lists of numbers; and why one is refused (contract §7)."""

import base64
import binascii
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from marpack.torchserve.diagnostics import note

_RGB_HINT = 'convert it before sending: Image.open(path).convert("RGB"); or in your own preprocess; or target: marpack'
_WIDE = ("I", "F")  # modes with more than 8 bits per channel; I;16 and its kin begin alike
Value = Any  # what a field of a row holds: bytearray, str, or decoded JSON


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


@contextmanager
def explained(value: Value) -> Iterator[None]:
    """Note why a request's picture is refused, and what mends it."""
    try:
        yield
    except Exception as error:
        kind, message, hint = refusal(value, error)
        note(kind, message, stage="preprocess", hint=hint)
        raise


def refusal(value: Value, error: Exception) -> tuple[str, str, str]:
    """Return kind, reason and fix for a picture that could not be made a tensor."""
    if value is None or (isinstance(value, (str, bytes, bytearray)) and not value):
        return "empty-body", "the request has no picture: its body is empty, and no field is named data", _send_hint()
    if isinstance(value, dict):
        named = ", ".join(map(str, value)) or "no keys"
        return "json-object", f"the body is a JSON object ({named}), not a picture", 'send the bare string: "<base64>"'
    if isinstance(error, binascii.Error) or (isinstance(value, str) and not value.isascii()):
        return "not-base64", f"the body is text, but not base64: {error}", _send_hint()
    if isinstance(value, str):
        value = base64.b64decode(value)
    if not isinstance(value, (bytes, bytearray)):
        return "not-numbers", f"the body is a JSON {type(value).__name__} that is no tensor: {error}", _list_hint()
    return _file_refusal(bytes(value), error)


def _send_hint() -> str:
    return "send the picture's file as the body (curl -T picture.jpg), or as base64 in a JSON string"


def _list_hint() -> str:
    return "send [C, H, W] numbers as evenly nested lists"


def _file_refusal(content: bytes, error: Exception) -> tuple[str, str, str]:
    if isinstance(error, UnidentifiedImageError):
        if content[:1] in {b"{", b"[", b'"'}:
            message = "the body looks like JSON, but it was not sent as application/json, or is not valid"
            return "undecoded-json", message, _send_hint()
        start = content[:12]
        message = f"the body ({len(content)} bytes, beginning {start!r}) is no picture that Pillow knows"
        return "not-a-picture", message, _send_hint()
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
