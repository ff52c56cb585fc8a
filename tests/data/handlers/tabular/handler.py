"""Scores rows of numbers; every row is one request."""

from __future__ import annotations

import json
from typing import Any

import torch
from schema import Row, parse
from ts.torch_handler.base_handler import BaseHandler


class Scorer(BaseHandler):
    features: list[str] = ["age", "income"]

    def preprocess(self, data: list[dict[str, Any]]) -> torch.Tensor:
        rows: list[Row] = [parse(item.get("body", item)) for item in data]
        return torch.tensor([[row.age, row.income] for row in rows], device=self.device)

    def postprocess(self, data: torch.Tensor) -> list[str]:
        answers = [json.dumps({"score": float(score)}) for score in data[:, 0]]
        for index in range(len(answers)):
            self.context.set_response_content_type(index, "application/json")
        return answers
