import logging
import zipfile
from abc import ABC

import diffusers
import numpy as np
import torch
from diffusers import StableDiffusionXLPipeline
from ts.torch_handler.base_handler import BaseHandler

logger = logging.getLogger(__name__)


class DiffusersHandler(BaseHandler, ABC):
    def __init__(self):
        self.initialized = False

    def initialize(self, ctx):
        self.context = ctx
        self.manifest = ctx.manifest
        model_dir = ctx.system_properties.get("model_dir")
        with zipfile.ZipFile(model_dir + "/model.zip", "r") as zip_ref:
            zip_ref.extractall(model_dir + "/model")
        self.pipe = StableDiffusionXLPipeline.from_pretrained(model_dir + "/model", torch_dtype=torch.float16)
        logger.info("diffusers %s", diffusers.__version__)
        self.initialized = True

    def preprocess(self, requests):
        inputs = []
        for _, data in enumerate(requests):
            input_text = data.get("data")
            if input_text is None:
                input_text = data.get("body")
            if isinstance(input_text, (bytes, bytearray)):
                input_text = input_text.decode("utf-8")
            inputs.append(input_text)
        return inputs

    def inference(self, inputs):
        return self.pipe(inputs, guidance_scale=7.5, num_inference_steps=50, height=768, width=768).images

    def postprocess(self, outputs):
        images = []
        for image in outputs:
            images.append(np.array(image).tolist())
        return images
