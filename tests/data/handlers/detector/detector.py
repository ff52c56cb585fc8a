import io

import torch
from PIL import Image
from torchvision import transforms
from ts.torch_handler.object_detector import ObjectDetector


class Detector(ObjectDetector):
    threshold = 0.4
    image_processing = transforms.Compose([transforms.Resize((300, 300)), transforms.ToTensor()])

    def preprocess(self, data):
        pictures = [Image.open(io.BytesIO(row.get("data") or row.get("body"))).convert("RGB") for row in data]
        return [self.image_processing(picture).to(self.device) for picture in pictures]

    @torch.inference_mode()
    def inference(self, data, *args, **kwargs):
        return self.model(data)
