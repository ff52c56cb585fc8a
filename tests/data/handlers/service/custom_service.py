import base64
import io
import logging
import os

import torch
from PIL import Image
from torchvision import transforms

logger = logging.getLogger(__name__)


class PictureHandler(object):
    def __init__(self):
        self.model = None
        self.device = None
        self.initialized = False

    def initialize(self, context):
        properties = context.system_properties
        self.device = torch.device("cuda:" + str(properties.get("gpu_id")) if torch.cuda.is_available() else "cpu")
        manifest = context.manifest
        model_dir = properties.get("model_dir")
        path = os.path.join(model_dir, manifest["model"]["serializedFile"])
        from model import Net

        state = torch.load(path, map_location=self.device)
        self.model = Net()
        self.model.load_state_dict(state)
        self.model.to(self.device).eval()
        self.initialized = True

    def preprocess(self, data):
        image = data[0].get("data") or data[0].get("body")
        if isinstance(image, str):
            image = base64.b64decode(image)
        return transforms.ToTensor()(Image.open(io.BytesIO(image))).unsqueeze(0)

    def inference(self, image):
        return self.model(image.to(self.device))

    def postprocess(self, output):
        return [output.argmax().item()]


_service = PictureHandler()


def handle(data, context):
    if not _service.initialized:
        _service.initialize(context)
    if data is None:
        return None
    data = _service.preprocess(data)
    data = _service.inference(data)
    return _service.postprocess(data)
