"""Return the three likeliest digits in an image of a handwritten digit."""

import io

import torch
from PIL import Image
from ts.torch_handler.base_handler import BaseHandler

SIDE = 8  # pixels of the scans that the model was trained on
TOP = 3


class DigitsHandler(BaseHandler):
    """Define the input and the output; the base handler loads the model and runs it."""

    def preprocess(self, data):
        """Decode one image per request, from the form field `data` or the body: `[N, 1, 8, 8]` in 0…1."""
        scans = b"".join(read_scan(row.get("data") or row.get("body")) for row in data)
        pixels = torch.frombuffer(bytearray(scans), dtype=torch.uint8)
        return pixels.view(-1, 1, SIDE, SIDE) / 255

    def postprocess(self, data):
        """Return `{label: probability}` per request, the likeliest first."""
        return [self.likeliest(row) for row in data.softmax(dim=1).tolist()]

    def likeliest(self, probabilities):
        # Round before sorting, because the last bits differ between processors.
        named = [(self.mapping[str(index)], round(p, 4)) for index, p in enumerate(probabilities)]
        named.sort(key=lambda pair: -pair[1])
        return dict(named[:TOP])


def read_scan(picture):
    gray = Image.open(io.BytesIO(picture)).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    return gray.tobytes()
