"""Weights of real formats, made in a temporary folder."""

import fcntl
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from marpack.project.scaffold.template import templates

Save = Callable[[Path], None]


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return one file per kind of weights, by a name that tells what the model does.

    Only one process of a run makes them: the others need not import torch.
    """
    every = tmp_path_factory.getbasetemp()
    where = (every.parent if "PYTEST_XDIST_WORKER" in os.environ else every) / "weights"
    with Path(f"{where}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not where.exists():
            making = where.with_suffix(".new")
            making.mkdir()
            save_weights(making)
            making.rename(where)
    made = {path.stem: path for path in where.iterdir()}
    return made | {"onnx": templates() / "init" / "onnx" / "model.onnx"}


def save_weights(where: Path) -> None:
    """Save one file per kind of weights."""
    import torch
    from safetensors.torch import save_file
    from torch import nn

    class Segmenter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, pictures: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.conv(pictures)}

    class Detector(nn.Module):
        def forward(self, pictures: torch.Tensor) -> list[dict[str, torch.Tensor]]:
            return [{"boxes": pictures}]

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.EmbeddingBag(5, 2)

        def forward(self, text: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return self.embedding(text, offsets)

    def classifier(channels: int, classes: int) -> nn.Module:
        body = (nn.Conv2d(channels, 2, 3), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(*body, nn.Linear(2, classes))

    def script(name: str, net: nn.Module) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.script(net.eval()).save(str(where / f"{name}.pt"))

    script("pictures", classifier(3, 7))
    script("few", classifier(3, 2))
    script("gray", classifier(1, 10))
    script("numbers", nn.Sequential(nn.Linear(13, 4), nn.ReLU(), nn.Linear(4, 3)))
    script("segmenter", Segmenter())
    script("detector", Detector())
    script("words", Words())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        example, axes = torch.zeros(2, 3, 224, 224), {"x": {0: "n"}, "y": {0: "n"}}
        net = classifier(3, 7).eval()
        names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
        torch.onnx.export(net, (example,), str(where / "pictures_onnx.onnx"), dynamo=False, **names)
    torch.save(classifier(3, 7).state_dict(), where / "state_dict.pt")
    torch.save(nn.Linear(2, 2), where / "pickled.pt")
    save_file({"layer.weight": torch.ones(2, 3), "layer.bias": torch.ones(2)}, where / "safetensors.safetensors")
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.ones(1, 3),)), where / "exported.pt2")
    torch.save({"word": 1}, where / "vocabulary.pt")
