"""Rows of numbers through a model; explanations and descriptions of its own."""

import torch
from ts.torch_handler.base_handler import BaseHandler


class Rows(BaseHandler):
    def preprocess(self, data):
        return super().preprocess([row.get("data") or row.get("body") for row in data]).to(torch.float32)

    def postprocess(self, data):
        return [{"values": row, "labels": self.mapping} for row in super().postprocess(data)]

    def get_insights(self, tensor_data, inputs, target):
        return [{"shape": list(tensor_data.shape), "inputs": inputs, "target": target}]

    def describe_handle(self):
        return {"file": self.model_pt_path and self.model_pt_path.rsplit("/", 1)[-1], "device": str(self.device)}
