"""Small nets whose weights are made on the spot, for probes of formats and built-in handlers."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn


class Affine(nn.Module):
    """[N, K] → [N, K]: twice the input plus one; exact in floating point."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.shift = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift


class Shades(nn.Module):
    """[N, 3, H, W] → [N, classes]: scores that depend on the mean of each channel."""

    def __init__(self, classes: int = 6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.0, 1.0, 3 * classes).reshape(3, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) @ self.weight


class Finder(nn.Module):
    """[N, 3, H, W] → per picture boxes [3, 4], labels [3] and scores [3], one of them below 0.5."""

    def forward(self, x: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        found: list[dict[str, torch.Tensor]] = []
        for picture in x:
            mean = picture.mean()
            size = torch.tensor([picture.size(2), picture.size(1)], dtype=torch.float32)
            boxes = torch.stack([torch.cat([size * 0, size]), torch.cat([size / 4, size / 2]), torch.cat([size, size])])
            scores = torch.stack([mean / 4 + 0.5, mean / 4 + 0.25, mean * 0 + 0.5])
            found.append({"boxes": boxes, "labels": torch.tensor([1, 2, 1]), "scores": scores})
        return found


class Segments(nn.Module):
    """[N, 3, H, W] → {"out": [N, 4, H, W]}: the channels and their mean as classes."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": torch.cat([x, x.mean(1, keepdim=True)], 1)}


def seeded(source: str, name: str) -> nn.Module:
    """Return an instance of a class given as source, its weights drawn from a fixed seed."""
    torch.manual_seed(0)
    scope: dict[str, Any] = {}  # Any: whatever the source defines
    exec(source, scope)
    net: nn.Module = scope[name]()
    return net


def script(net: nn.Module, path: Path) -> Path:
    """Save a net as TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch would rather export; the server takes TorchScript
        torch.jit.save(torch.jit.script(net.eval()), str(path))
    return path


def save(value: Any, path: Path) -> Path:  # Any: a state_dict, a net, a vocabulary
    """Save a value with torch.save."""
    torch.save(value, path)
    return path


def onnx(path: Path) -> Path:
    """Save Affine as ONNX, by hand: two nodes."""
    from onnx import TensorProto, helper, save_model

    shape = ["batch", "k"]
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in (("a", 2.0), ("b", 1.0))]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "a"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save_model(model, str(path))
    return path
