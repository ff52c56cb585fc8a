"""Classify measured cells as benign or malignant: any number per request, one model call per batch."""

import json

import torch
from ts.torch_handler.base_handler import BaseHandler

FEATURES = 30


class CellsHandler(BaseHandler):
    """Call the model once per batch; a bad request does not affect the others."""

    def handle(self, data, context):
        """Return the classes of each request's cells, or an error."""
        requests = [read_cells(row.get("data") or row.get("body")) for row in data]
        verdicts = self.judge([cell for cells in requests for cell in cells or []])
        parts = verdicts.split([len(cells or []) for cells in requests])
        self.measure(context.metrics, requests)
        return [self.answer(context, index, requests[index], part) for index, part in enumerate(parts)]

    def judge(self, cells):
        """Return how likely each cell is malignant: `[N]`."""
        return self.inference(torch.tensor(cells).view(-1, FEATURES)).sigmoid()[:, 0].cpu()

    def answer(self, context, index, cells, probabilities):
        context.set_response_content_type(index, "application/json")
        if cells is None:
            context.set_response_status(400, "Bad Request", index)
            return {"error": f"send a JSON list of cells, {FEATURES} numbers each"}
        malignant = (probabilities >= 0.5).tolist()
        context.set_response_header(index, "x-malignant", str(sum(malignant)))
        return {"cells": [self.mapping[str(int(verdict))] for verdict in malignant], "malignant": sum(malignant)}

    def measure(self, metrics, requests):
        """Add metrics; the server collects them, and `marpack run --json` prints them."""
        metrics.add_counter("CellsJudged", sum(len(cells or []) for cells in requests))
        metrics.add_counter("RequestsRefused", requests.count(None))
        metrics.add_percent("BatchFill", 100 * len(requests) / self.model_yaml_config["batchSize"])


def read_cells(body):
    """Return a JSON list of cells, or None for another body; a body of type JSON arrives decoded."""
    try:
        cells = json.loads(body) if isinstance(body, (str, bytes, bytearray)) else body
        sound = isinstance(cells, list) and all(len(cell) == FEATURES for cell in cells)
        return [[float(value) for value in cell] for cell in cells] if sound else None
    except (TypeError, ValueError):
        return None
