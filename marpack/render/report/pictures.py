"""Pictures as data URIs: small ones as they are, large ones shrunk; whatever is no picture is None."""

import base64
import io
import struct
import warnings
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from PIL import Image as PillowImage

_AS_IT_IS = 16 << 10  # bytes: smaller pictures are not worth shrinking
SIDE = 384  # pixels: of a shrunk picture at most
_SHOWN_BY_BROWSERS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
# What Pillow raises for files that are broken, each in its own way.
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, struct.error)


class Picture(Struct, frozen=True):
    """One picture for a page."""

    uri: str
    width: int  # pixels, of the original as it is stored: handlers ignore its orientation, and so does the page
    height: int


def picture_of(data: bytes, *, side: int = SIDE) -> Picture | None:
    """Return a picture that browsers show, or None for what is no picture, or a broken or monstrous one.

    Args:
        data: A file of any kind that Pillow reads.
        side: Pixels that its longer side may have.
    """
    # Imported where it is needed: a run without pictures does without.
    from PIL import Image  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                return _shown(image, data, side)
    except (*_BROKEN, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return None


def _shown(image: "PillowImage.Image", data: bytes, side: int) -> Picture:
    width, height = image.size
    kind = _SHOWN_BY_BROWSERS.get(image.format or "")
    if kind is not None and len(data) <= _AS_IT_IS:
        image.load()  # raises if it is broken
        return Picture(_uri(kind, data), width, height)
    image.draft("RGB", (side, side))
    shrunk = image if image.mode in {"RGB", "RGBA", "L"} else image.convert("RGBA" if _is_clear(image) else "RGB")
    shrunk.thumbnail((side, side))
    buffer = io.BytesIO()
    shrunk.save(buffer, "WEBP", quality=70, method=2)
    return Picture(_uri("image/webp", buffer.getvalue()), width, height)


def _is_clear(image: "PillowImage.Image") -> bool:
    return "transparency" in image.info or image.mode.endswith(("A", "a"))


def png_of(levels: bytes, width: int, height: int, palette: bytes, clear: bytes) -> str:
    """Return a PNG of palette indices as a data URI.

    Args:
        levels: One byte per pixel, row by row.
        width: Pixels.
        height: Pixels.
        palette: Red, green and blue of each index.
        clear: How opaque each index is.
    """
    from PIL import Image  # noqa: PLC0415

    image = Image.frombytes("P", (width, height), levels)
    image.putpalette(palette)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=clear, optimize=False)
    return _uri("image/png", buffer.getvalue())


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
