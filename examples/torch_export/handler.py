"""A picture in, how much it looks like a handwritten digit out."""

import io

import torch
from PIL import Image
from ts.torch_handler.base_handler import BaseHandler

SIDE = 8  # the net was trained on scans of 8x8 pixels


class StrangenessHandler(BaseHandler):
    """Loading and inference are the base handler's; only what goes in and what comes out is ours."""

    def preprocess(self, data):
        """Decode one picture per request: `[N, 64]` in 0…1."""
        return torch.stack([read_scan(row.get("data") or row.get("body")) for row in data]).to(self.device)

    def postprocess(self, data):
        """Return per request how strange its picture is: over 1 it is no digit."""
        return [{"digit": value <= 1, "strangeness": round(value, 3)} for value in data.tolist()]


def read_scan(picture):
    gray = Image.open(io.BytesIO(picture)).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    return torch.frombuffer(bytearray(gray.tobytes()), dtype=torch.uint8) / 255
