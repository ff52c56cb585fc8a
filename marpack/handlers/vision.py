"""VisionHandler: pictures in, one batch tensor out, with Integrated Gradients for explanations (contract §7)."""

from abc import ABC
from typing import Any

import torch
from PIL import Image

from marpack.handlers import explanations, options, pictures
from marpack.handlers.base import BaseHandler
from marpack.handlers.protocol import HandlerContext, Rows
from marpack.handlers.target import better
from marpack.handlers.timer import timed
from marpack.torchserve.targets import Difference


class VisionHandler(BaseHandler, ABC):
    """The base of every picture handler; subclasses set `image_processing`, one picture → [C, H, W]."""

    _marpack_options: tuple[str, ...] = ()  # keys of the config's `handler` section that set attributes
    image_processing: Any  # Any: a transform of marpack's or torchvision's, or a method

    def initialize(self, context: HandlerContext) -> None:
        """Load the model, and lift Pillow's limit on a picture's size if the server is told to."""
        super().initialize(context)
        self.ig: Any = explanations.Deferred("IntegratedGradients", self.model)  # Any: captum has no types
        options.apply(self, *self._marpack_options)
        self.initialized = True
        if not context.system_properties.get("limit_max_image_pixels"):
            Image.MAX_IMAGE_PIXELS = None

    @timed
    def preprocess(self, data: Rows) -> torch.Tensor:
        """Make one tensor [N, C, H, W] of the batch's pictures: bytes, base64 text or nested lists."""
        to_rgb = better(self, Difference.PICTURES_CONVERTED)
        images = []
        for row in data:
            picture = row.get("data") or row.get("body")
            with pictures.explained(picture):
                images.append(pictures.tensor_of(picture, self, to_rgb=to_rgb))
        return pictures.stacked(images).to(self.device)

    def get_insights(self, tensor_data: torch.Tensor, _: Any, target: Any = 0) -> Any:  # Any: Captum's target
        """Return the attributions of every input number, nested as [N, C, H, W]."""
        return self.ig.attribute(tensor_data, target=target, n_steps=15).tolist()
