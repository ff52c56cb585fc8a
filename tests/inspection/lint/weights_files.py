"""Real weights of every format, made by the libraries that write them."""

import datetime as dt
import io
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def weights(kind: str) -> Callable[[], bytes]:
    """Return what makes a small file of one format, by the name that tables give it, once a test wants it."""
    return partial(bytes_of, kind)


@cache
def bytes_of(kind: str) -> bytes:
    """Return a small file of one format."""
    net = Net().eval()
    makers = {
        "state_dict": lambda: _saved(net.state_dict()),
        "legacy": lambda: _saved(net.state_dict(), new=False),
        "whole": lambda: _saved(net),
        "checkpoint": lambda: _saved({"epoch": 3, "state_dict": net.state_dict()}),
        "parallel": lambda: _saved(nn.DataParallel(net).state_dict()),
        "script": lambda: _scripted(net),
        "safetensors": lambda: _safetensors(net),
        "export": lambda: _exported(net),
        "onnx": _onnx,
        "elf": lambda: b"\x7fELF" + bytes(60),
        "objects": lambda: _saved({**net.state_dict(), "trained": dt.date(2024, 1, 1)}),
        "vocabulary": lambda: _saved({"a": 0}),
    }
    return makers[kind]()


def _saved(value: object, *, new: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=new)
    return buffer.getvalue()


def _scripted(net: nn.Module) -> bytes:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(net, torch.zeros(1, 2)), buffer)
    return buffer.getvalue()


def _safetensors(net: nn.Module) -> bytes:
    from safetensors.torch import save

    return save(net.state_dict())


def _exported(net: nn.Module) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(net, (torch.zeros(1, 2),)), buffer)
    return buffer.getvalue()


def _onnx() -> bytes:
    import onnx
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [value], [out])
    model: onnx.ModelProto = helper.make_model(graph)
    return model.SerializeToString()
