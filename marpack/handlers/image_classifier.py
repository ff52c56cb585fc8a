"""ImageClassifier: pictures → the likeliest labels (contract §7); one class, as the server wants of a handler."""

from typing import Any

import torch
from torch.nn import functional

from marpack.handlers.observed import explained_output, note_nonfinite
from marpack.handlers.target import better
from marpack.handlers.timer import timed
from marpack.handlers.transforms import ImageNet
from marpack.handlers.vision import VisionHandler
from marpack.torchserve.diagnostics import note
from marpack.torchserve.labels import named
from marpack.torchserve.targets import Difference


class ImageClassifier(VisionHandler):
    """Answers each picture with `{label: probability}` of its `topk` likeliest classes."""

    _marpack_imports_torchvision = True
    _marpack_options = ("topk", "resize", "crop")
    topk = 5
    image_processing = ImageNet()

    def set_max_result_classes(self, topk: int) -> None:
        """Set how many classes an answer names."""
        self.topk = topk

    def get_max_result_classes(self) -> int:
        """Return how many classes an answer names."""
        return self.topk

    @timed
    def postprocess(self, data: torch.Tensor) -> list[dict[str, Any]]:  # Any: probabilities
        """Turn logits [N, K] into one `{label: probability}` per picture, likeliest first.

        Raises RuntimeError for fewer classes than `topk`; target marpack names as many as there are.
        """
        note_nonfinite(data)
        with explained_output("logits [N, K]", data):
            probabilities = functional.softmax(data, dim=1)
        clamp = better(self, Difference.TOPK_CLAMPED)
        values, classes = top(probabilities, self.topk, clamp=clamp)
        return named(values.tolist(), self.mapping, classes.tolist())


def top(probabilities: torch.Tensor, topk: int, *, clamp: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values and indices [N, topk] of the likeliest classes; of all of them, if `clamp` and there are fewer."""
    classes = probabilities.shape[1]
    if topk > classes and not clamp:
        hint = f"call set_max_result_classes({classes}) in your handler's initialize, or set target: marpack"
        note("topk", f"the model has {classes} classes, and topk is {topk}", stage="postprocess", hint=hint)
    values, indices = torch.topk(probabilities, min(topk, classes) if clamp else topk, dim=1)
    return values, indices
