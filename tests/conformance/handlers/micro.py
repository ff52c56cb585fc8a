"""Rows of numbers through MicroBatching, as its documentation shows it."""

import torch
from ts.handler_utils.micro_batching import MicroBatching
from ts.torch_handler.base_handler import BaseHandler


class Micro(BaseHandler):
    def __init__(self):
        super().__init__()
        self.handle = MicroBatching(self)

    def initialize(self, context):
        super().initialize(context)
        section = context.model_yaml_config["micro_batching"]
        self.handle.parallelism = section["parallelism"]
        self.handle.micro_batch_size = section["micro_batch_size"]

    def preprocess(self, data):
        return torch.stack([torch.tensor(row["body"], dtype=torch.float32) for row in data])

    def postprocess(self, data):
        return [{"values": row} for row in data.tolist()]
