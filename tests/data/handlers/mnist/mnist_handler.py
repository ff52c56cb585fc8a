from torchvision import transforms
from ts.torch_handler.image_classifier import ImageClassifier
from torch.profiler import ProfilerActivity


class DigitClassifier(ImageClassifier):
    """Ten digits, most probable first."""

    image_processing = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.13,), (0.31,))])

    def __init__(self):
        super(DigitClassifier, self).__init__()
        self.profiler_args = {"activities": [ProfilerActivity.CPU], "record_shapes": True}

    def postprocess(self, data):
        return data.argmax(1).tolist()
