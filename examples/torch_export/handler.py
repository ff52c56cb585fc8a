"""Return how much an image differs from handwritten digits."""

import io

import torch
from PIL import Image
from ts.torch_handler.base_handler import BaseHandler

SIDE = 8  # pixels of the scans that the model was trained on


class StrangenessHandler(BaseHandler):
    """Define the input and the output; the base handler loads the model and runs it."""

    def preprocess(self, data):
        """Decode one image per request: `[N, 64]` in 0…1."""
        return torch.stack([read_scan(row.get("data") or row.get("body")) for row in data]).to(self.device)

    def postprocess(self, data):
        """Return the difference per request; over 1, the image is not a digit."""
        return [{"digit": value <= 1, "strangeness": round(value, 3)} for value in data.tolist()]


def read_scan(picture):
    gray = Image.open(io.BytesIO(picture)).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    return torch.frombuffer(bytearray(gray.tobytes()), dtype=torch.uint8) / 255
