"""Draw the pictures that probes send, of every mode and format: `python tests/conformance/draw_pictures.py`.

They are committed, because encoders change: a recording holds for the very bytes that were sent.
"""

import io
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent / "pictures"


def gradient(width: int = 60, height: int = 52, mode: str = "RGB") -> Image.Image:
    """Return a picture whose colours run smoothly and differ per channel."""
    bands = [Image.linear_gradient("L"), Image.radial_gradient("L"), Image.linear_gradient("L").rotate(90)]
    return Image.merge("RGB", [band.resize((width, height)) for band in bands]).convert(mode)


def encoded(picture: Image.Image, form: str = "PNG", **options: object) -> bytes:
    """Return a picture as a file's bytes."""
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def turned() -> bytes:
    """Return a JPEG that asks to be turned by a quarter."""
    picture = gradient()
    exif = picture.getexif()
    exif[0x0112] = 6
    return encoded(picture, "JPEG", quality=90, exif=exif)


def pictures() -> dict[str, bytes]:
    """Return the bytes of a file for every name."""
    rgb = gradient()
    modes = {f"mode-{mode}.png": encoded(gradient(mode=mode)) for mode in ("L", "LA", "RGBA", "P", "1", "RGB")}
    forms = {
        "plain.jpg": encoded(rgb, "JPEG", quality=90),
        "cmyk.jpg": encoded(gradient(mode="CMYK"), "JPEG", quality=90),
        "gray.jpg": encoded(gradient(mode="L"), "JPEG", quality=90),
        "progressive.jpg": encoded(rgb, "JPEG", quality=50, progressive=True),
        "turned.jpg": turned(),
        "plain.webp": encoded(rgb, "WEBP", quality=80),
        "alpha.webp": encoded(gradient(mode="RGBA"), "WEBP", lossless=True),
        "plain.gif": encoded(gradient(mode="P"), "GIF"),
        "plain.bmp": encoded(rgb, "BMP"),
        "plain.tiff": encoded(rgb, "TIFF", compression="tiff_deflate"),
        "plain.ppm": encoded(gradient(16, 12), "PPM"),
        "sixteen-bit.png": encoded(Image.frombytes("I;16", (64, 64), bytes(range(256)) * 32)),
    }
    sizes = {
        f"{w}x{h}.png": encoded(gradient(w, h)) for w, h in ((1, 1), (256, 256), (224, 300), (255, 257), (320, 49))
    }
    broken = {
        "cut.jpg": forms["plain.jpg"][: len(forms["plain.jpg"]) // 2],
        "cut.png": modes["mode-RGB.png"][: len(modes["mode-RGB.png"]) // 2],
        "head-alone.png": modes["mode-RGB.png"][:24],
        "huge.png": encoded(Image.new("1", (20_000, 10_000)), optimize=True),  # 200 megapixels
    }
    return modes | forms | sizes | broken


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, data in pictures().items():
        FOLDER.joinpath(name).write_bytes(data)
