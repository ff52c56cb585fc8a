"""What every test beside the author's code shares: a small model, and the notes that no other test left."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lazy import torch

from marpack.protocol.messages import Trouble
from marpack.worker import notes as collected

MODEL_FILE = """
import torch


class Doubler(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, numbers):
        return self.layer(numbers)
"""


@pytest.fixture(autouse=True)
def _fresh_notes() -> Iterator[None]:
    collected.drain_notes()
    collected.drain_timings()
    collected._outputs.clear()
    yield
    collected.drain_notes()
    collected.drain_timings()
    collected._outputs.clear()


@pytest.fixture
def notes() -> Callable[[], dict[str, Trouble]]:
    """What was noted since the last call, by kind."""
    return lambda: {trouble.kind: trouble for trouble in collected.drain_notes()}


@pytest.fixture
def model_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model folder with `doubler.py`, on sys.path as in the worker."""
    (tmp_path / "doubler.py").write_text(MODEL_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("doubler", None)


@pytest.fixture
def net(model_dir: Path):
    """The model, with weights that can be recognized."""
    from doubler import Doubler

    made = Doubler().eval()
    with torch.no_grad():
        made.layer.weight.copy_(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]))
        made.layer.bias.zero_()
    return made
