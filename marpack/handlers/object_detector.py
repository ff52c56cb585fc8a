"""ObjectDetector: pictures → labelled boxes (contract §7); one class, as the server wants of a handler."""

from typing import Any

from marpack.handlers.observed import explained_output
from marpack.handlers.transforms import Compose, ToTensor
from marpack.handlers.vision import VisionHandler
from marpack.torchserve.labels import named

# Any: tensors boxes [M, 4], labels [M], scores [M]
Detections = dict[str, Any]


class ObjectDetector(VisionHandler):
    """Answers each picture with `{label: [x1, y1, x2, y2], "score": s}` for every box of at least `threshold`."""

    _marpack_imports_torchvision = True
    _marpack_options = ("threshold",)
    image_processing = Compose([ToTensor()])
    threshold = 0.5

    def postprocess(self, data: list[Detections]) -> list[list[dict[str, Any]]]:  # Any: boxes and scores
        """Keep each picture's sure detections, in the model's order, and name them."""
        with explained_output("a list of {boxes [M, 4], labels [M], scores [M]}, one per picture", data):
            sure = [found["scores"] >= self.threshold for found in data]
            return [_kept(found, mask, self.mapping) for found, mask in zip(data, sure, strict=False)]


def _kept(found: Detections, sure: Any, mapping: dict[str, str] | None) -> list[dict[str, Any]]:  # Any: a mask [M]
    boxes, labels, scores = (found[key][sure].tolist() for key in ("boxes", "labels", "scores"))
    return [
        named([[box]], mapping, [[label]])[0] | {"score": score}
        for box, label, score in zip(boxes, labels, scores, strict=False)  # as on the server
    ]
