"""One fault at a time: the check that names it fails, and no other does."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gate.archives import BASE_HANDLER, archive, examine, failures, found, shapes
from gate.broken import FAULTS, Slow

from marpack.gate.verdicts import Verdict

CASES = [  # the first fault of each code by day
    pytest.param(check, code, name, id=f"{check}: {name}", marks=pytest.mark.slow if number else ())
    for (check, code), faults in FAULTS.items()
    for number, name in enumerate(faults)
]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize(("check", "code", "name"), CASES)
def test_only_the_check_that_names_the_fault_fails(check: str, code: str, name: str, tmp_path: Path):
    fault = FAULTS[check, code][name]
    slow = fault if isinstance(fault, Slow) else Slow(fault)
    report = examine(slow.make(tmp_path / "project"), timeout=slow.timeout, startup_timeout=slow.startup_timeout)
    failed = failures(report)
    assert list(failed) == [check]
    assert failed[check][0] == code


MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return self.layer(x) BEHAVIOUR
"""


def modelled(folder: Path, behavior: str = "", *, whole: bool = False, **config: Any) -> Path:
    """Pack a model of two numbers."""
    import torch

    layer = torch.nn.Linear(2, 2, bias=False)
    buffer = io.BytesIO()
    torch.save(torch.nn.Sequential(layer) if whole else {"layer.weight": layer.weight.detach()}, buffer)
    return archive(
        folder,
        BASE_HANDLER,
        samples={"one.json": "[1.0, 2.0]", "two.json": "[3.0, -1.0]"},
        files={"weights.pt": buffer.getvalue(), "model.py": MODEL.replace("BEHAVIOUR", behavior)},
        weights="weights.pt",
        model_file="model.py",
        labels=None,
        config={"batchSize": 2, **config},
    )


COMPILED = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}
GAP = {0: "circle", 1: "cross", 3: "square", 4: "star", 5: "triangle"}
COMPILES = "a compiled model that differs"
LONG = {COMPILES, "noise in training mode", "a backend that the server skips"}
MODELS: dict[str, tuple[str, str, Callable[[Path], Path]]] = {
    "a label that is missing": ("samples", "sample-missed", lambda folder: shapes(folder, GAP)),
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


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if case in LONG else ()) for case in MODELS]
)
def test_only_the_check_that_names_the_fault_of_a_model_fails(case: str, tmp_path: Path):
    check, code, make = MODELS[case]
    failed = failures(examine(make(tmp_path / "project"), timeout=120.0))
    assert list(failed) == [check]
    assert failed[check][0] == code


@pytest.mark.slow
def test_a_compiled_model_that_agrees_passes(tmp_path: Path):
    report = examine(modelled(tmp_path / "project", **COMPILED), timeout=120.0)
    assert failures(report) == {}
    assert found(report, "compiled").verdict is Verdict.PASSED
