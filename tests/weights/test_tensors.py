"""Tensors by the calls that rebuild them, from pickles written out by hand; safetensors headers, byte by byte."""

import io
import json
from typing import Any

import msgspec
import pytest
import safetensors.torch
from lazy import torch

from marpack.weights.pickle import Global, Persistent, PickledCall, PickledDict
from marpack.weights.tensors import ITEM_SIZES, Tensor, in_folder, is_safetensors, placed_tensors, read_safetensors

REBUILD = "torch._utils._rebuild_"


def call(path: str, *args: Any, **rest: Any) -> PickledCall:
    module, _, name = path.rpartition(".")
    return PickledCall(Global(module, name), args, **rest)


def storage(kind: str = "FloatStorage", key: str = "0", count: int = 12) -> Persistent:
    return Persistent(("storage", Global("torch", kind), key, "cpu", count))


def tensor(**rest: Any) -> PickledCall:
    return call(f"{REBUILD}tensor_v2", storage(**rest), 2, (2, 3), (3, 1), False, None)


def test_sizes_in_bytes_are_torchs_own() -> None:
    assert {name: getattr(torch, name).itemsize for name in ITEM_SIZES if hasattr(torch, name)} == {
        name: size for name, size in ITEM_SIZES.items() if hasattr(torch, name)
    }
    assert Tensor(name="t", dtype="float16", shape=(2, 3)).bytes == 12
    assert Tensor(name="t", dtype="complex128", shape=()).bytes == 16
    assert Tensor(name="t", dtype="of the future", shape=(2,)).bytes == 0


def test_a_view_has_its_place_in_bytes() -> None:
    (found,) = placed_tensors(tensor(kind="DoubleStorage"))
    assert (found.tensor.dtype, found.tensor.shape, found.stride) == ("float64", (2, 3), (3, 1))
    assert (found.storage, found.storage_bytes, found.offset) == ("0", 96, 16)


TYPED = call(f"{REBUILD}tensor_v3", storage("UntypedStorage"), 2, (3,), (1,), False, None, Global("torch", "uint16"))
META = call(f"{REBUILD}meta_tensor_no_storage", Global("torch", "int8"), (2, 3), (3, 1), False)
SUBCLASS = call(f"{REBUILD}wrapper_subclass", Global("me", "Mine"), Global("torch", "int8"), (2, 3))
SPARSE = call(
    f"{REBUILD}sparse_tensor", Global("torch", "sparse_coo"), (tensor(), tensor(kind="HalfStorage"), (9, 9), True)
)
ANCIENT = call("torch.FloatTensor", state=(storage(), 0, (2, 3), (3, 1)))


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (tensor(), "float32", (2, 3)),
        (TYPED, "uint16", (3,)),
        (META, "int8", (2, 3)),
        (SUBCLASS, "int8", (2, 3)),
        (SPARSE, "float16", (9, 9)),
        (ANCIENT, "float32", (2, 3)),
        (call(f"{REBUILD}parameter", tensor(), True), "float32", (2, 3)),
        (call("torch._tensor._rebuild_from_type_v2", Global(REBUILD[:-10], "_rebuild_meta_tensor_no_storage"),
              Global("me", "Mine"), META.args), "int8", (2, 3)),
        (call(f"{REBUILD}meta_tensor_no_storage", Global("torch", "int8"), call("torch.Size", (4,))), "int8", (4,)),
        (call(f"{REBUILD}meta_tensor_no_storage", Global("torch", "int8"), [4, 0]), "int8", (4, 0)),
    ],
)  # fmt: skip
def test_every_call_that_rebuilds_a_tensor(value: PickledCall, dtype: str, shape: tuple[int, ...]) -> None:
    (found,) = placed_tensors([PickledDict([("a", value)])])
    assert (found.tensor.name, found.tensor.dtype, found.tensor.shape) == ("0.a", dtype, shape)


@pytest.mark.parametrize(
    "value",
    [
        call(f"{REBUILD}tensor_v2", storage(), "2", (2, 3), (3, 1)),
        call(f"{REBUILD}tensor_v2", storage(), 0, (2, -3), (3, 1)),
        call(f"{REBUILD}tensor_v2", storage(), 0, (2, 3), None),
        call(f"{REBUILD}tensor_v2", storage(), 0, ("2", 3), (3, 1)),
        call(f"{REBUILD}tensor_v2", Persistent(("module", 1)), 0, (2, 3), (3, 1)),
        call(f"{REBUILD}meta_tensor_no_storage", Global("torch", "int8"), 3),
        call(f"{REBUILD}parameter"),
        call("torch._tensor._rebuild_from_type_v2", Global("a", "b"), 1),
        call("torch.FloatStorage", state=(storage(), 0, (2, 3), (3, 1))),
        PickledCall(Global(REBUILD[:-10], "_rebuild_tensor_v2"), "no arguments"),
        PickledCall(tensor(), ()),
    ],
)
def test_what_rebuilds_nothing_is_no_tensor(value: PickledCall) -> None:
    assert list(placed_tensors(value)) == []


def test_names_are_paths_in_the_order_of_the_file() -> None:
    layer = call("me.Layer", state=PickledDict([("_buffers", PickledDict([("b", tensor())]))]))
    module = call("me.Net", state=PickledDict([
        ("_parameters", PickledDict([("weight", tensor())])),
        ("_modules", PickledDict([("0", layer)])),
        ("own", (tensor(), [1, tensor()])),
        ("text", "no tensor"),
    ]))  # fmt: skip
    assert [found.tensor.name for found in placed_tensors(module)] == ["weight", "0.b", "own.0", "own.1.1"]
    listed = PickledDict([(7, tensor()), (None, tensor()), (Global("a", "b"), [tensor()])])
    assert [found.tensor.name for found in placed_tensors(listed)] == ["7", "?", "?.0"]


def test_what_a_call_was_given_is_looked_into_behind_what_it_holds() -> None:
    value = call("me.Dict", tensor(key="args"), items=[("a", tensor(key="item"))], values=[tensor(key="value")])
    value.state = PickledDict([("s", tensor(key="state"))])
    assert [(found.tensor.name, found.storage) for found in placed_tensors(value)] == [
        ("a", "item"), ("0", "value"), ("s", "state"), ("0", "args"),
    ]  # fmt: skip


@pytest.mark.parametrize(("depth", "found"), [(99, 1), (100, 1), (101, 0)])
def test_tensors_are_found_as_deep_as_anybody_nests_them(depth: int, found: int) -> None:
    value: Any = tensor()
    for _ in range(depth):
        value = [value]
    assert len(list(placed_tensors(value))) == found


def test_a_storage_of_a_zip_is_a_member() -> None:
    (found,) = placed_tensors(PickledDict([("a", tensor())]))
    moved = in_folder(found, "data/", "constants.")
    assert (moved.tensor.name, moved.storage, moved.inside) == ("constants.a", "data/0", "data/0")
    (found,) = placed_tensors([META])
    assert in_folder(found, "data/").storage is None


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
    assert is_safetensors(io.BytesIO(length.to_bytes(8, "little") + rest)) is known


def test_every_dtype_is_called_as_torch_calls_it() -> None:
    names = {name: str(dtype).removeprefix("torch.") for name, dtype in safetensors.torch._TYPES.items()}
    header = read_safetensors(written({name: described(name) for name in names}))
    assert {placed.tensor.name: placed.tensor.dtype for placed in header.tensors} == names
    assert set(names.values()) <= set(ITEM_SIZES)


def test_a_tensor_is_a_storage_of_its_own() -> None:
    file = written({"a": described(shape=(2, 3, 4), data_offsets=(8, 104)), "b": described("X9", (), (0, 4))})
    begin = 8 + int.from_bytes(file.getvalue()[:8], "little")
    one, other = read_safetensors(file).tensors
    assert (one.storage, one.offset, one.storage_bytes, one.stride) == ("a", begin + 8, 96, (12, 4, 1))
    assert one.contiguous
    assert (other.tensor.dtype, other.stride, other.offset) == ("x9", (), begin)


@pytest.mark.parametrize(
    "wrong", [{"shape": (-1,)}, {"shape": ("2",)}, {"data_offsets": (-1, 4)}, {"data_offsets": (1,)}, {"dtype": 3}]
)
def test_a_header_of_another_form_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        read_safetensors(written({"a": described() | wrong}))


def test_a_tensor_of_nothing_is_one() -> None:
    (placed,) = read_safetensors(written({"a": described(shape=(0, 3), data_offsets=(0, 0))})).tensors
    assert (placed.tensor.shape, placed.storage_bytes) == ((0, 3), 0)
