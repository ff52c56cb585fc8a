"""Tensors in requests and responses of KServe's gRPC API."""

import base64
import json
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marpack.serving.grpc_messages import KSERVE, message_classes, methods
from marpack.serving.grpc_tensors import infer_response, request_json
from marpack.torchserve.http import RequestError

Infer, Inferred = message_classes(methods(KSERVE[1])["ModelInfer"])

# The field of the elements, numpy's type, and elements.
DATATYPES: dict[str, tuple[str, str, list[Any]]] = {
    "BOOL": ("bool_contents", "?", [True, False]),
    "INT8": ("int_contents", "i1", [-128, 127]),
    "INT16": ("int_contents", "i2", [-32768, 32767]),
    "INT32": ("int_contents", "i4", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", "i8", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", "u1", [0, 255]),
    "UINT16": ("uint_contents", "u2", [0, 65535]),
    "UINT32": ("uint_contents", "u4", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", "u8", [0, 2**64 - 1]),
    "FP16": ("", "f2", [1.5, -65504.0]),
    "FP32": ("fp32_contents", "f4", [1.5, -0.25]),
    "FP64": ("fp64_contents", "f8", [0.1, -1e300]),
}


def _inputs(request: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(request_json(request))["inputs"]
    return found


@pytest.mark.parametrize("datatype", DATATYPES)
def test_typed_and_raw_elements_are_the_same_numbers(datatype: str):
    field, kind, elements = DATATYPES[datatype]
    tensor = {"name": "x", "datatype": datatype, "shape": [1, 2]}
    raw = Infer(inputs=[tensor], raw_input_contents=[np.array(elements, f"<{kind}").tobytes()])
    expected = [{**tensor, "data": elements}]
    assert _inputs(raw) == expected
    if field:
        assert _inputs(Infer(inputs=[{**tensor, "contents": {field: elements}}])) == expected
    body = json.dumps({"outputs": expected}).encode()
    answer = infer_response(Inferred, body, raw=True)
    assert list(answer.raw_output_contents) == list(raw.raw_input_contents)
    typed = infer_response(Inferred, body, raw=False)
    if field:
        assert list(getattr(typed.outputs[0].contents, field)) == elements
    else:
        assert typed == answer  # this datatype exists only raw


def test_the_upper_half_of_fp32():
    tensor = {"name": "x", "datatype": "BF16", "shape": [2]}
    (given,) = _inputs(Infer(inputs=[tensor], raw_input_contents=[b"\xc0\x3f\x00\xc0"]))
    assert given["data"] == [1.5, -2.0]
    answer = infer_response(Inferred, json.dumps({"outputs": [given]}).encode(), raw=True)
    assert list(answer.raw_output_contents) == [b"\xc0\x3f\x00\xc0"]


def test_byte_strings():
    tensor = {"name": "x", "datatype": "BYTES", "shape": [2]}
    encoded = [base64.b64encode(each).decode() for each in (b"a\xff", b"")]
    raw = b"\2\0\0\0a\xff\0\0\0\0"
    assert _inputs(Infer(inputs=[tensor], raw_input_contents=[raw]))[0]["data"] == encoded
    assert _inputs(Infer(inputs=[{**tensor, "contents": {"bytes_contents": [b"a\xff", b""]}}]))[0]["data"] == encoded
    body = json.dumps({"outputs": [{**tensor, "data": ["é\n", 1.5]}]}).encode()
    assert list(infer_response(Inferred, body, raw=True).raw_output_contents) == [b"\3\0\0\0\xc3\xa9\n\3\0\0\0001.5"]
    typed = infer_response(Inferred, body, raw=False).outputs[0].contents.bytes_contents
    assert list(typed) == ['"é\\n"'.encode(), b"1.5"]


def test_the_rest_of_a_request_and_a_response():
    request = json.loads(request_json(Infer(model_name="m", model_version="2", id="7")))
    assert request == {"id": "7", "model_name": "m", "inputs": []}
    body = json.dumps({"id": "7", "model_name": "m", "model_version": "2", "outputs": []}).encode()
    assert infer_response(Inferred, body, raw=True) == Inferred(id="7", model_name="m", model_version="2")


@given(st.lists(st.floats(width=32), min_size=1))
def test_fp32_elements_have_the_fewest_digits(elements: list[float]):
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(elements)], "contents": {"fp32_contents": elements}}
    (found,) = _inputs(Infer(inputs=[tensor]))
    assert np.array_equal(np.array(found["data"], "<f4"), np.array(elements, "<f4"), equal_nan=True)
    for number, element in zip(found["data"], elements, strict=True):
        if math.isfinite(element) and 1e-6 < abs(element) < 1e6:
            assert repr(number) == repr(float(str(np.float32(element))))


@given(
    st.sampled_from(["BOOL", "INT8", "INT64", "FP16", "BF16", "FP32", "BYTES", "", "FP8"]),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 9), max_size=4),
    st.lists(st.binary(max_size=20), max_size=2),
)
def test_a_tensor_is_read_or_refused(datatype: str, shape: list[int], raw: list[bytes]):
    request = Infer(inputs=[{"name": "x", "datatype": datatype, "shape": shape}], raw_input_contents=raw)
    with suppress(RequestError):
        (tensor,) = _inputs(request)
        assert not raw or len(tensor["data"]) == math.prod(shape)


WRONG_RESPONSES = {
    "no JSON": b"x",
    "not UTF-8": b"\xff",
    "a number": b"1",
    "null": b"null",
    "no outputs": b"{}",
    "an output without data": b'{"outputs": [{"name": "x", "datatype": "FP32", "shape": []}]}',
    "a nested list too deep": b"[" * 100_000,
    "a surrogate": b'{"id": "\\ud800", "outputs": []}',
    **{
        f"{shape} {datatype} {data}": json.dumps(
            {"outputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]}
        ).encode()
        for shape, datatype, data in (
            ([1], "FP128", [1]),
            ([2**64], "FP32", [1]),
            (["1"], "FP32", [1]),
            ([1], "FP32", ["x"]),
            ([1], "FP32", [{}]),
            ([1], "FP32", [[1], [1, 2]]),
            ([1], "INT32", [2**40]),
            ([1], "UINT64", [-1]),
            ([1], "INT8", 3),
            ([1], "BYTES", ["\ud800"]),
        )
    },
}


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("case", WRONG_RESPONSES)
def test_a_wrong_response_is_refused(case: str, raw: bool):
    with pytest.raises(RequestError) as error:
        infer_response(Inferred, WRONG_RESPONSES[case], raw=raw)
    assert error.value.status == 500
