"""Pictures → tensors, bit for bit as torchvision's transforms do it on Pillow images, without torchvision."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

# Pillow mode → the dtype its pixels are read as; everything else is read as bytes.
_DTYPES = {"I": np.int32, "I;16" if sys.byteorder == "little" else "I;16B": np.int16, "F": np.float32}

# Any: pictures go in, tensors come out, and each step passes on what the one before made
Step = Callable[[Any], Any]


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
        wanted = resized(picture.size, self.size)
        return picture if wanted == picture.size else picture.resize(wanted, Image.Resampling.BILINEAR)


def resized(size: tuple[int, int], shorter: int) -> tuple[int, int]:
    """Return the (width, height) that a picture's shorter edge of so many pixels gives it."""
    width, height = size
    if width <= height:
        return shorter, int(shorter * height / width)
    return int(shorter * width / height), shorter


class CenterCrop:
    """Cut a square of `size` pixels from a picture's middle; a smaller picture is first put on black."""

    def __init__(self, size: int) -> None:
        self.size = (size, size)  # height and width, as torchvision keeps them

    def __call__(self, picture: Image.Image) -> Image.Image:
        """Return the middle of the picture."""
        height, width = self.size
        picture = _padded(picture, width, height)
        if picture.size == (width, height):
            return picture
        # round() goes to the even neighbour at .5, as torchvision's does
        left, top = round((picture.width - width) / 2.0), round((picture.height - height) / 2.0)
        return picture.crop((left, top, left + width, top + height))


def _padded(picture: Image.Image, wide: int, high: int) -> Image.Image:
    width, height = max(wide - picture.width, 0), max(high - picture.height, 0)
    if not width and not height:
        return picture
    border = (width // 2, height // 2, (width + 1) // 2, (height + 1) // 2)
    padded = ImageOps.expand(picture, border=border, fill=_black(picture))
    if picture.mode == "P":
        padded.putpalette(picture.getpalette() or [])
    return padded


def _black(picture: Image.Image) -> int | tuple[int, ...]:
    bands = len(picture.getbands())
    return 0 if bands == 1 else (0,) * bands


class ToTensor:
    """A picture as a tensor [C, H, W]: bytes become floats in 0…1, wider pixels keep their numbers."""

    def __call__(self, picture: Image.Image | np.ndarray[Any, Any]) -> torch.Tensor:  # Any: shape and dtype
        """Return the pixels of a picture, or of an array [H, W] or [H, W, C]."""
        pixels = torch.from_numpy(picture if isinstance(picture, np.ndarray) else _pixels(picture))
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        pixels = pixels.permute((2, 0, 1)).contiguous()
        return pixels.to(torch.get_default_dtype()).div(255) if pixels.dtype is torch.uint8 else pixels


def _pixels(picture: Image.Image) -> np.ndarray[Any, Any]:  # Any: as above
    pixels = np.array(picture, _DTYPES.get(picture.mode, np.uint8), copy=True)
    return pixels * np.uint8(255) if picture.mode == "1" else pixels


class Normalize:
    """Subtract `mean` and divide by `std`, one number per channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = mean
        self.std = std

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a normalised copy of [C, H, W].

        Raises:
            TypeError: The pixels are no floats: the picture had more than 8 bits per channel.
            RuntimeError: The picture has another number of channels.

        """
        if not tensor.is_floating_point():
            raise TypeError(f"pixels must be floats to be normalised, not {tensor.dtype}")
        mean, std = (torch.as_tensor(each, dtype=tensor.dtype).view(-1, 1, 1) for each in (self.mean, self.std))
        return tensor.clone().sub_(mean).div_(std)


class ImageNet(Compose):
    """The steps for nets trained on ImageNet: to [3, crop, crop], normalised by its mean and deviation."""

    def __init__(self, resize: int = 256, crop: int = 224) -> None:
        self.sizes = {"resize": resize, "crop": crop}
        normalize = Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        super().__init__([Resize(resize), CenterCrop(crop), ToTensor(), normalize])

    def resized(self, **sizes: int) -> "ImageNet":
        """Return the same steps with other sizes, in pixels."""
        return ImageNet(**(self.sizes | sizes))
