"""ONNX headers, held against what onnx itself writes."""

import io

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    ProtobufError,
    ProtoField,
    WeightsSummary,
    fields,
    is_onnx,
    read_onnx,
)

NAMES = {
    "float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz", "float4e2m1": "float4_e2m1",
    "float8e8m0": "float8_e8m0fnu", "float6e2m3": "float6_e2m3", "float6e3m2": "float6_e3m2",
}  # fmt: skip
EMPTY = helper.make_graph([], "g", [], [])


def header(model: onnx.ModelProto) -> WeightsSummary:
    return read_onnx(io.BytesIO(model.SerializeToString()))


def test_every_element_type_has_its_name() -> None:
    types = {number: name.lower() for name, number in TensorProto.DataType.items() if number}
    inputs = [helper.make_tensor_value_info(str(number), number, [1]) for number in types]
    found = header(helper.make_model(helper.make_graph([], "g", inputs, [])))
    assert {int(port.name): port.dtype for port in found.inputs} == {
        number: NAMES.get(name, name) for number, name in types.items()
    }


def test_what_a_model_says_of_itself() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = helper.make_model(
        helper.make_graph([node, node, node], "g", [], []), ir_version=9, producer_name="me", producer_version="2"
    )
    found = header(model)
    assert found.facts.items() >= {"IR version": "9", "nodes": "3", "producer": "me 2"}.items()
    assert header(onnx.ModelProto(graph=EMPTY)) == WeightsSummary(
        kind=WeightsFormat.ONNX, facts={"IR version": "0", "opsets": "", "nodes": "0"}
    )


def test_an_initializer_is_a_tensor_whose_numbers_have_a_place() -> None:
    weight = np.arange(300 * 129, dtype=np.float32).reshape(300, 129)
    tensors = [
        numpy_helper.from_array(weight, "weight"),
        helper.make_tensor("listed", TensorProto.INT64, [2], [1, 2]),
        helper.make_tensor("scalar", TensorProto.FLOAT, [], [1.0]),
    ]
    fed = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [300, 129]) for name in ("weight", "x")]
    model = helper.make_model(helper.make_graph([], "g", fed, [], tensors))
    found = header(model)
    assert [(placed.tensor.name, placed.tensor.shape) for placed in found.tensors] == [
        ("weight", (300, 129)), ("listed", (2,)), ("scalar", ()),
    ]  # fmt: skip
    placed, listed, _ = found.tensors
    data = model.SerializeToString()
    assert placed.storage == "weight"
    assert data[placed.offset : placed.offset + placed.storage_bytes] == weight.tobytes()
    assert listed.storage is None
    assert [port.name for port in found.inputs] == ["x"]  # the other is fed by the file


def test_sizes_may_be_packed_into_one_field() -> None:
    """Proto3 writers other than onnx's pack them."""
    dims = bytes([1, 0x80 | 44, 2, 0x80, 3])  # 1, 300, 384
    tensor = b"\x0a" + bytes([len(dims)]) + dims + b"\x10\x01" + b"\x42\x01w"
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    found = read_onnx(io.BytesIO(b"\x3a" + bytes([len(graph)]) + graph))
    assert [(placed.tensor.name, placed.tensor.shape) for placed in found.tensors] == [("w", (1, 300, 384))]


def test_a_model_with_every_field_is_known_as_one() -> None:
    model = helper.make_model(EMPTY, producer_name="me", producer_version="2", domain="d", model_version=3)
    model.doc_string = "words"
    model.training_info.add()
    model.functions.add().name = "f"
    model.configuration.add().name = "c"
    helper.set_model_props(model, {"author": "tests"})
    assert {field.number for field, _ in model.ListFields()} == {
        field.number for field in onnx.ModelProto.DESCRIPTOR.fields
    }
    assert is_onnx(io.BytesIO(model.SerializeToString()))


VERSION, GRAPH = b"\x08\x09", b"\x3a\x00"


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (VERSION + GRAPH, True),
        (GRAPH + VERSION, True),
        (GRAPH, False),
        (VERSION, False),
        (VERSION + GRAPH + GRAPH, False),
        (VERSION + GRAPH + b"\x10\x01", False),  # a producer that is a number
        (VERSION + GRAPH + b"\x78\x01", False),  # field 15
        (VERSION + GRAPH + b"\x12\x02a", False),  # a producer cut off
        (VERSION + GRAPH + b"\x12\x01a", True),
        (VERSION + GRAPH * 0 + b"\x3d" + bytes(4), False),  # a graph of four bytes
        (VERSION + GRAPH + b"\x12\x00" * 9_999, True),
        (VERSION + GRAPH + b"\x12\x00" * 10_000, False),  # no model has so many
    ],
)
def test_a_file_is_a_model_if_all_of_it_reads_as_one(data: bytes, known: bool) -> None:
    assert is_onnx(io.BytesIO(data)) is known


def test_fields_are_numbers_or_places() -> None:
    data = b"?" + b"\x08\x96\x01" + b"\x11" + bytes(8) + b"\x1a\x02ab" + b"\x25" + bytes(4) + b"?"
    assert list(fields(io.BytesIO(data), 1, len(data) - 1)) == [
        ProtoField(1, VARINT, 150), ProtoField(2, FIXED64, 8, 5), ProtoField(3, BYTES, 2, 15),
        ProtoField(4, FIXED32, 4, 18),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x08", "middle of a field"),
        (b"\x00\x01", "field 0"),
        (b"\x0b", "does not fit"),  # a group, which no reader knows any more
        (b"\x0a\x03ab", "does not fit"),
        (b"\x09" + bytes(7), "does not fit"),
        (b"\x0d" + bytes(3), "does not fit"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "ten bytes"),
    ],
)
def test_what_is_no_message_says_why(data: bytes, why: str) -> None:
    with pytest.raises(ProtobufError, match=why):
        list(fields(io.BytesIO(data), 0, len(data)))


@pytest.mark.parametrize("data", [b"", VERSION, b"\x38\x01", b"\x3a\x02\x58\x01"])
def test_a_header_without_a_graph_is_none(data: bytes) -> None:
    with pytest.raises(ProtobufError):
        read_onnx(io.BytesIO(data))
