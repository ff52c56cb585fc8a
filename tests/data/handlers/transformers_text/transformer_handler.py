import ast
import json
import logging
import os
from abc import ABC

import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from ts.torch_handler.base_handler import BaseHandler

logger = logging.getLogger(__name__)
logger.info("Transformers version %s", transformers.__version__)


class TransformersSeqClassifierHandler(BaseHandler, ABC):
    def __init__(self):
        super(TransformersSeqClassifierHandler, self).__init__()
        self.initialized = False

    def initialize(self, ctx):
        self.manifest = ctx.manifest
        properties = ctx.system_properties
        model_dir = properties.get("model_dir")
        serialized_file = self.manifest["model"]["serializedFile"]
        model_pt_path = os.path.join(model_dir, serialized_file)
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        setup_config_path = os.path.join(model_dir, "setup_config.json")
        if os.path.isfile(setup_config_path):
            with open(setup_config_path) as setup_config_file:
                self.setup_config = json.load(setup_config_file)
        if self.setup_config["save_mode"] == "torchscript":
            self.model = torch.jit.load(model_pt_path, map_location=self.device)
        else:
            self.model = AutoModelForSequenceClassification.from_pretrained(model_dir)
        self.tokenizer = AutoTokenizer.from_pretrained(model_dir)
        mapping_file_path = os.path.join(model_dir, "index_to_name.json")
        if os.path.isfile(mapping_file_path):
            with open(mapping_file_path) as f:
                self.mapping = json.load(f)
        self.initialized = True

    def preprocess(self, requests):
        ids = None
        for data in requests:
            text = data.get("data") or data.get("body")
            if isinstance(text, (bytes, bytearray)):
                text = text.decode("utf-8")
            inputs = self.tokenizer(text, return_tensors="pt")["input_ids"].to(self.device)
            ids = inputs if ids is None else torch.cat((ids, inputs), 0)
        return ids, None

    def inference(self, input_batch):
        ids, _ = input_batch
        logits = self.model(ids)[0]
        return [self.mapping[str(torch.argmax(row).item())] for row in logits]

    def postprocess(self, inference_output):
        return inference_output

    def get_insights(self, input_batch, text, target):
        if isinstance(text, bytes):
            text = ast.literal_eval(text.decode())
        return [{"words": text, "target": target}]


def construct_input_ref(text, tokenizer, device, mode):
    text_ids = tokenizer.encode(text, add_special_tokens=False)
    return torch.tensor([text_ids], device=device)
