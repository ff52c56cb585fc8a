"""Make tests/handlers/pictures: real photos in odd sizes, modes and formats. Run where scikit-learn is installed."""

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

FOLDER = Path(__file__).parent / "pictures"
ROTATED = 6  # EXIF: turn by 90 degrees to view


def photos() -> tuple[Image.Image, Image.Image]:
    china, flower = (Image.fromarray(pixels) for pixels in load_sample_images().images)
    return china.crop((170, 60, 471, 259)), flower.crop((260, 90, 391, 187))


def main() -> None:
    china, flower = photos()
    small = china.resize((150, 99))
    exif = Image.Exif()
    exif[0x0112] = ROTATED
    alpha = Image.linear_gradient("L").resize(flower.size)
    gray = flower.convert("L")
    wide = np.asarray(gray, dtype=np.uint16) * 257
    files: dict[str, tuple[Image.Image, dict[str, object]]] = {
        "photo-301x199.jpg": (china, {"quality": 85}),
        "photo-131x97-progressive.jpg": (flower, {"quality": 85, "progressive": True}),
        "photo-rotated-by-exif.jpg": (flower, {"quality": 85, "exif": exif}),
        "photo-gray.jpg": (flower.convert("L"), {"quality": 85}),
        "photo-cmyk.jpg": (flower.convert("CMYK"), {"quality": 85}),
        "photo-rgb.png": (flower, {}),
        "photo-palette.png": (flower.quantize(32), {}),
        "photo-1bit.png": (flower.convert("1"), {}),
        "photo-gray.png": (gray, {}),
        "photo-la.png": (Image.merge("LA", (gray, alpha)), {}),
        "photo-rgba.png": (Image.merge("RGBA", (*flower.split(), alpha)), {}),
        "photo-16bit.png": (Image.fromarray(wide), {}),
        "photo-32bit.tiff": (Image.fromarray(wide.astype(np.int32) * 70), {"compression": "tiff_lzw"}),
        "photo-float.tiff": (Image.fromarray(wide.astype(np.float32) / 65535), {"compression": "tiff_lzw"}),
        "photo-16bit-big-endian.tiff": (Image.frombytes("I;16B", gray.size, wide.astype(">u2").tobytes()), {}),
        "photo-cmyk.tiff": (small.convert("CMYK"), {"compression": "tiff_lzw"}),
        "photo-150x99.webp": (small, {"quality": 80}),
        "photo-alpha.webp": (Image.merge("RGBA", (*flower.split(), alpha)), {"quality": 80}),
        "photo.gif": (flower.quantize(64), {}),
        "photo.bmp": (small, {}),
        "photo-256x256.png": (china.crop((20, 0, 219, 199)).resize((256, 256)).quantize(200).convert("RGB"), {}),
        "strip-3x190.png": (china.crop((100, 0, 103, 190)), {}),
        "strip-190x2.png": (china.crop((50, 60, 240, 62)), {}),
        "dot.png": (china.crop((150, 100, 151, 101)), {}),
    }
    for name, (picture, options) in files.items():
        picture.save(FOLDER / name, **options)
    (FOLDER / "palette-transparent.gif").write_bytes(_transparent_gif(flower))
    whole = (FOLDER / "photo-301x199.jpg").read_bytes()
    (FOLDER / "truncated.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    (FOLDER / "bomb-300-megapixels.png").write_bytes(_bomb(20_000, 15_000))
    (FOLDER / "not-a-picture.jpg").write_bytes(b"<!doctype html><title>404</title>")


def _transparent_gif(picture: Image.Image) -> bytes:
    out = BytesIO()
    picture.quantize(15).save(out, "gif", transparency=3)
    return out.getvalue()


def _bomb(width: int, height: int) -> bytes:
    """Return a gray PNG whose header promises far more pixels than its few bytes hold."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(width + 1))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


if __name__ == "__main__":
    main()
