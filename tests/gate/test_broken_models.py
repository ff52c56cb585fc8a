"""Faults that only show with a real model: labels, compiling, whole pickled models."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from days import by_day
from gate.archives import archive, examine, failures, found, shapes

from marpack.gate.verdicts import Verdict

MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return self.layer(x) BEHAVIOUR
"""
HANDLER = """
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def preprocess(self, data):
        return super().preprocess([row.get("data") or row.get("body") for row in data])
"""


def modelled(folder: Path, behaviour: str = "", *, whole: bool = False, **config: Any) -> Path:
    """Pack a model of two numbers."""
    import torch

    layer = torch.nn.Linear(2, 2, bias=False)
    buffer = io.BytesIO()
    torch.save(torch.nn.Sequential(layer) if whole else {"layer.weight": layer.weight.detach()}, buffer)
    return archive(
        folder,
        HANDLER,
        samples={"one.json": "[1.0, 2.0]", "two.json": "[3.0, -1.0]"},
        files={"weights.pt": buffer.getvalue(), "model.py": MODEL.replace("BEHAVIOUR", behaviour)},
        weights="weights.pt",
        model_file="model.py",
        labels=None,
        config={"batchSize": 2, **config},
    )


COMPILED = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}
GAP = dict(enumerate(["circle", "cross", "ring", "square", "star", "triangle"]))
COMPILES = "a compiled model that differs"
CASES: dict[str, tuple[str, str, Callable[[Path], Path]]] = {
    "a label that is missing": (
        "samples", "sample-missed", lambda folder: shapes(folder, {k: v for k, v in GAP.items() if k != 2})
    ),
    COMPILES: (
        "compiled", "compiled-differs",
        lambda folder: modelled(folder, "+ (1 if torch.compiler.is_compiling() else 0)", **COMPILED),
    ),
    "a backend that the server skips": (
        "loads", "not-compiled",
        lambda folder: modelled(folder, pt2={"compile": {"enable": True, "backend": "cudagraphs"}}),
    ),
    "weights that are a whole model": (
        "pickles", "untrusted-pickle", lambda folder: modelled(folder, whole=True)
    ),
    "noise in training mode": (
        "repeatable", "not-repeatable", lambda folder: modelled(folder, "+ torch.rand(2)")
    ),
    "statistics over the batch": (
        "batch-contract", "batch-differs", lambda folder: modelled(folder, "- x.mean(0)")
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", by_day(CASES, *(CASES.keys() - {COMPILES})))
def test_only_the_check_that_names_the_fault_fails(case: str, tmp_path: Path):
    check, code, make = CASES[case]
    found = failures(examine(make(tmp_path / "project"), timeout=120.0))
    assert list(found) == [check]
    assert found[check][0] == code


@pytest.mark.nightly
def test_a_compiled_model_that_agrees_passes(tmp_path: Path):
    report = examine(modelled(tmp_path / "project", **COMPILED), timeout=120.0)
    assert failures(report) == {}
    assert found(report, "compiled").verdict is Verdict.PASSED
