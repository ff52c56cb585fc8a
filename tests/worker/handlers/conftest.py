"""A handler initialized on real weights, a request to ask it with, and the notes it leaves."""

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from marpack.protocol.targets import HandlerSettings, Target, keep_settings
from marpack.torchserve.context import Context, RequestProcessor


class Metrics:
    """Remembers what was added, in order."""

    def __init__(self) -> None:
        self.times: list[tuple[Any, ...]] = []

    def add_time(self, *arguments: Any) -> None:
        self.times.append(arguments)


class Averages(torch.nn.Module):
    """Pictures [N, 3, H, W] → logits [N, classes]: the mean color, again and again."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        scale = torch.arange(self.classes, dtype=torch.float32)
        return pictures.mean((1, 2, 3))[:, None] * scale[None, :]


@pytest.fixture
def make_context(tmp_path: Path) -> Callable[..., Context]:
    """A context of the model folder `tmp_path`, with one request."""

    def make(
        weights: str | None = "model.pt",
        model_file: str | None = None,
        *,
        target: Target = Target.TORCHSERVE,
        config: Any = None,
        headers: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Context:
        named = {"modelName": "m", "serializedFile": weights, "modelFile": model_file}
        manifest = {"model": {key: value for key, value in named.items() if value is not None}}
        context = Context(
            "m", str(tmp_path), manifest, 1, None, "0.12.0", True, Metrics(), {} if config is None else config
        )
        keep_settings(context, HandlerSettings(target, **settings))
        context.request_processor = [RequestProcessor(headers or {})]
        return context

    return make


@cache
def traced(classes: int) -> bytes:
    """Return TorchScript weights with so many classes."""
    torch.jit.save(torch.jit.trace(Averages(classes), torch.zeros(1, 3, 2, 2)), buffer := io.BytesIO())
    return buffer.getvalue()


@pytest.fixture
def save_averages(tmp_path: Path) -> Callable[[int], Path]:
    """Write TorchScript weights `model.pt` with so many classes."""

    def save(classes: int = 6) -> Path:
        (tmp_path / "model.pt").write_bytes(traced(classes))
        return tmp_path / "model.pt"

    return save
