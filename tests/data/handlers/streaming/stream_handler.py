import logging
from abc import ABC
from threading import Thread

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
from ts.context import Context
from ts.handler_utils.hf_batch_streamer import TextIteratorStreamerBatch
from ts.handler_utils.utils import send_intermediate_predict_response
from ts.torch_handler.base_handler import BaseHandler

logger = logging.getLogger(__name__)


class StreamHandler(BaseHandler, ABC):
    def __init__(self):
        super().__init__()
        self.max_length = None

    def initialize(self, ctx: Context):
        seed = ctx.model_yaml_config["handler"]["manual_seed"]
        torch.manual_seed(seed)
        transformers.set_seed(seed)
        path = ctx.model_yaml_config["handler"]["model_path"]
        self.model = AutoModelForCausalLM.from_pretrained(path, device_map="balanced")
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.output_streamer = TextIteratorStreamerBatch(self.tokenizer, batch_size=ctx.model_yaml_config["batchSize"])
        self.initialized = True

    def preprocess(self, requests):
        texts = [self.text_of(request) for request in requests]
        return self.tokenizer(texts, return_tensors="pt", padding=True)

    @staticmethod
    def text_of(request):
        text = request.get("data") or request.get("body")
        return text.decode("utf-8") if isinstance(text, (bytes, bytearray)) else text

    def inference(self, inputs):
        thread = Thread(target=self.model.generate, kwargs={**inputs, "streamer": self.output_streamer})
        thread.start()
        for new_text in self.output_streamer:
            send_intermediate_predict_response(
                new_text, self.context.request_ids, "Intermediate Prediction success", 200, self.context
            )
        thread.join()
        return [""] * len(inputs["input_ids"])

    def postprocess(self, data):
        return data
