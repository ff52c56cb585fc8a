"""Weights files changed at random: whatever they say, looking into them ends, and never with an error."""

import io
import random
import warnings
from collections.abc import Callable

import joblib
import msgspec
import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from safetensors.torch import save
from torch import nn

from marpack.inspection.diff import tensor_digest
from marpack.inspection.inspect import weights_facts
from marpack.inspection.nested import NestedScan
from marpack.weights.contents import read_contents
from marpack.weights.detect import recognize


def script() -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(nn.Linear(2, 3)), buffer)
    return buffer.getvalue()


def exported() -> bytes:
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(nn.Linear(2, 3), (torch.zeros(1, 2),)), buffer)
    return buffer.getvalue()


def onnx_model() -> bytes:
    weight = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    ports = [helper.make_tensor_value_info(name, 1, ["batch", 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    model: onnx.ModelProto = helper.make_model(graph)
    return bytes(model.SerializeToString())


def arrays() -> bytes:
    buffer = io.BytesIO()
    joblib.dump({"a": np.zeros((3, 4)), "b": np.array(["x", 1], dtype=object)}, buffer)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def files(saved: Callable[..., bytes]) -> list[bytes]:
    state = nn.Linear(2, 3).state_dict()
    return [
        saved(state),
        saved(state, _use_new_zipfile_serialization=False),
        saved(nn.Linear(2, 3)),
        script(),
        exported(),
        save(state),
        onnx_model(),
        arrays(),
    ]


def mutated(content: bytes, dice: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 5, 20])):
        at = dice.randrange(len(data))
        match dice.randrange(5):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                data[at] = dice.choice(b"\0\1\x7f\x80\xff")
            case 2:
                del data[at : at + dice.randrange(1, 30)]
                data = data or bytearray(b"x")
            case 3:
                data[at:at] = dice.randbytes(dice.randrange(1, 9))
            case _:
                other = dice.randrange(len(data))
                data[at : at + 8] = data[other : other + 8]
    return bytes(data[: dice.randrange(len(data)) + 1] if dice.random() < 0.1 else data)


def look(content: bytes) -> None:
    file = io.BytesIO(content)
    found = recognize(file)
    contents = read_contents(file, found)
    seen = list(NestedScan(opcodes=100_000).file("weights", file, found))
    msgspec.json.encode((weights_facts("weights", contents), seen))
    for placed in contents.tensors:
        tensor_digest(file, found, placed)


@pytest.mark.parametrize("seed", range(8))
def test_no_change_of_a_file_is_an_error(seed: int, files: list[bytes]) -> None:
    dice = random.Random(seed)
    for _ in range(400):
        look(mutated(files[seed], dice))


@pytest.mark.parametrize("number", range(8))
def test_no_truncation_is_an_error(number: int, files: list[bytes]) -> None:
    content = files[number]
    for length in range(0, len(content), max(1, len(content) // 60)):
        look(content[:length])
