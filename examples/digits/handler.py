"""A picture of a handwritten digit in, the three likeliest digits out."""

import io

import torch
from PIL import Image
from ts.torch_handler.base_handler import BaseHandler

SIDE = 8  # the net was trained on scans of 8x8 pixels
TOP = 3


class DigitsHandler(BaseHandler):
    """Loading and inference are the base handler's; only what goes in and what comes out is ours."""

    def preprocess(self, data):
        """Decode one picture per request, as `data` of a form or as the body itself: `[N, 1, 8, 8]` in 0…1."""
        scans = b"".join(read_scan(row.get("data") or row.get("body")) for row in data)
        pixels = torch.frombuffer(bytearray(scans), dtype=torch.uint8)
        return pixels.view(-1, 1, SIDE, SIDE) / 255

    def postprocess(self, data):
        """Return `{label: probability}` per request, the likeliest first."""
        return [self.likeliest(row) for row in data.softmax(dim=1).tolist()]

    def likeliest(self, probabilities):
        # Rounded before sorting: the last bits differ between processors, the answer should not.
        named = [(self.mapping[str(index)], round(p, 4)) for index, p in enumerate(probabilities)]
        named.sort(key=lambda pair: -pair[1])
        return dict(named[:TOP])


def read_scan(picture):
    gray = Image.open(io.BytesIO(picture)).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    return gray.tobytes()
