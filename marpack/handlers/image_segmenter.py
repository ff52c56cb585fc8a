"""ImageSegmenter: pictures → a class for every pixel (contract §7); one class, as the server wants of a handler."""

from typing import Any

import torch

from marpack.handlers.observed import explained_output, note_nonfinite
from marpack.handlers.transforms import ImageNet
from marpack.handlers.vision import VisionHandler


class ImageSegmenter(VisionHandler):
    """Answers each picture with `[class, probability]` for every pixel."""

    _marpack_imports_torchvision = True
    _marpack_options = ("resize", "crop")
    image_processing = ImageNet()

    def postprocess(self, data: Any) -> Any:  # Any: the model's {"out": logits}; nested lists
        """Turn `{"out": logits [N, K, H, W]}` into nested lists [N, H, W, 2] of class number and probability."""
        with explained_output('{"out": logits [N, K, H, W]}', data):
            logits = data["out"]
        note_nonfinite(logits)
        best = torch.max(torch.softmax(logits, dim=1), dim=1)
        return torch.stack([best.indices.type(best.values.dtype), best.values], dim=3).tolist()
