import os
from collections import Counter

import torch
from torchvision import transforms
from ts.torch_handler.object_detector import ObjectDetector

try:
    from ultralytics import YOLO
except ImportError as error:
    print(f"ultralytics could not be imported: {error}")


class Yolo(ObjectDetector):
    image_processing = transforms.Compose([transforms.Resize((640, 640)), transforms.ToTensor()])

    def __init__(self):
        super(Yolo, self).__init__()

    def initialize(self, context):
        if torch.cuda.is_available():
            self.device = torch.device("cuda")
        else:
            self.device = torch.device("cpu")
        properties = context.system_properties
        self.manifest = context.manifest
        self.model_pt_path = os.path.join(properties.get("model_dir"), self.manifest["model"]["serializedFile"])
        self.model = self._load_torchscript_model(self.model_pt_path)
        self.initialized = True

    def _load_torchscript_model(self, model_pt_path):
        model = YOLO(model_pt_path)
        model.to(self.device)
        return model

    def postprocess(self, res):
        output = []
        for data in res:
            classes = data.boxes.cls.tolist()
            output.append(dict(Counter(data.names[index] for index in classes)))
        return output
