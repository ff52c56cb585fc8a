"""What an answer's bytes say, and that hostile ones say nothing rather than break the reader."""

import io
from functools import cache
from typing import Any

import numpy as np
import pytest
from gate.archives import result
from hypothesis import given
from hypothesis import strategies as st

from marpack.gate.compare import NOTHING, find_differences, value_of


def saved(value: Any) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "i", "q", "e", "f", "d", ">f", ">i"])
def test_an_array_of_numpys(dtype: str):
    array = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    assert value_of(result(npy(array))) == {"shape": [2, 3], "numbers": array.ravel().tolist()}


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float64"])
def test_a_tensor_of_torchs(dtype: str):
    import torch

    tensor = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, dtype))
    assert value_of(result(saved(tensor))) == {"shape": [2, 3], "numbers": tensor.flatten().tolist()}


def test_numbers_may_differ_by_rounding_there_as_well():
    import torch

    for pack, one in ((saved, torch.tensor([0.5, 0.25])), (npy, np.array([0.5, 0.25]))):
        assert find_differences(result(pack(one)), result(pack(one + 1e-4))) == []
        assert find_differences(result(pack(one)), result(pack(one + 1.0))) != []
        assert find_differences(result(pack(one)), result(pack(one[:1]))) != []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"text",
        b"\xff\xfe",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x01\x00\x06\x00[1, 2]",
        npy(np.array([1.0]))[:-1],
        npy(np.array(["text"])),
        npy(np.array([1j])),
        npy(np.zeros(1)).replace(b"(1,)", b"(9" + b"9" * 18 + b",)"),
        b"PK\x03\x04",
        b"[" * 100_000,
    ],
)
def test_what_says_nothing(raw: bytes):
    assert value_of(result(raw)) is NOTHING


def test_what_torch_saves_beside_one_tensor_says_nothing():
    import torch

    assert value_of(result(saved(torch.zeros(3))[:200])) is NOTHING
    others = (
        {"a": 1},
        {"a": torch.zeros(1), "label": "cat"},
        torch.zeros(4, 4).t()[1:],
        torch.zeros(2, dtype=torch.bfloat16),
    )
    assert [value_of(result(saved(other))) for other in others] == [NOTHING] * len(others)


@cache
def honest() -> tuple[bytes, bytes]:
    import torch

    return saved(torch.arange(3.0)), npy(np.arange(3.0))


@given(st.sampled_from([0, 1]), st.integers(0, 2000), st.binary(max_size=4))
def test_no_bytes_break_the_reader(form: int, place: int, other: bytes):
    raw = honest()[form]
    place %= len(raw)
    value_of(result(raw[:place] + other + raw[place + len(other) :]))
