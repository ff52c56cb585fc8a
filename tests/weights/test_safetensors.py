"""Safetensors headers, byte by byte."""

import io
import json
from typing import Any

import msgspec
import pytest
import safetensors.torch

from marpack.weights.safetensors import looks_like, read_header
from marpack.weights.tensors import ITEM_SIZES


def written(header: Any, *, numbers: int = 0) -> io.BytesIO:
    text = json.dumps(header).encode()
    return io.BytesIO(len(text).to_bytes(8, "little") + text + bytes(numbers))


def described(
    dtype: str = "F32", shape: tuple[int, ...] = (2,), data_offsets: tuple[int, int] = (0, 8)
) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


@pytest.mark.parametrize(
    ("length", "rest", "known"),
    [
        (2, b"{}", True),
        (2, b"{}more", True),
        (3, b"{}", False),
        (1, b"{}", False),
        (2, b"[]", False),
        (2, b"", False),
        (100_000_000, b"{}", False),
    ],
)
def test_a_file_is_known_by_a_length_that_fits(length: int, rest: bytes, known: bool) -> None:
    assert looks_like(io.BytesIO(length.to_bytes(8, "little") + rest)) is known


def test_every_dtype_is_called_as_torch_calls_it() -> None:
    names = {name: str(dtype).removeprefix("torch.") for name, dtype in safetensors.torch._TYPES.items()}
    header = read_header(written({name: described(name) for name in names}))

    assert {placed.tensor.name: placed.tensor.dtype for placed in header.tensors} == names
    assert set(names.values()) <= set(ITEM_SIZES)


def test_a_tensor_is_a_storage_of_its_own() -> None:
    file = written({"a": described(shape=(2, 3, 4), data_offsets=(8, 104)), "b": described("X9", (), (0, 4))})
    begin = 8 + int.from_bytes(file.getvalue()[:8], "little")
    one, other = read_header(file).tensors

    assert (one.storage, one.offset, one.storage_bytes, one.stride) == ("a", begin + 8, 96, (12, 4, 1))
    assert one.contiguous
    assert (other.tensor.dtype, other.stride, other.offset) == ("x9", (), begin)


@pytest.mark.parametrize(
    "wrong", [{"shape": (-1,)}, {"shape": ("2",)}, {"data_offsets": (-1, 4)}, {"data_offsets": (1,)}, {"dtype": 3}]
)
def test_a_header_of_another_form_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        read_header(written({"a": described() | wrong}))


def test_a_tensor_of_nothing_is_one() -> None:
    (placed,) = read_header(written({"a": described(shape=(0, 3), data_offsets=(0, 0))})).tensors
    assert (placed.tensor.shape, placed.storage_bytes) == ((0, 3), 0)
