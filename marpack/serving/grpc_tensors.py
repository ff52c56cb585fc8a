"""Tensors of KServe's gRPC API: requests as the JSON that handlers read, and the JSON of handlers as responses."""

import base64
import json
import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec
import numpy as np

from marpack.archive.protocol import quoted
from marpack.errors import first_line
from marpack.torchserve.http import RequestError

# The field of a datatype's elements, empty if they exist only raw, and numpy's type of the raw ones.
_DATATYPES = {
    "BOOL": ("bool_contents", "?"),
    **{f"INT{bits}": ("int_contents", f"<i{bits // 8}") for bits in (8, 16, 32)},
    **{f"UINT{bits}": ("uint_contents", f"<u{bits // 8}") for bits in (8, 16, 32)},
    "INT64": ("int64_contents", "<i8"),
    "UINT64": ("uint64_contents", "<u8"),
    "FP16": ("", "<f2"),
    "BF16": ("", "<u2"),  # the upper half of FP32
    "FP32": ("fp32_contents", "<f4"),
    "FP64": ("fp64_contents", "<f8"),
    "BYTES": ("bytes_contents", ""),
}


# Any stands for protobuf's types, which are not declared, and for JSON.
def request_json(request: Any) -> bytes:
    """Return a ModelInferRequest as JSON of KServe's v2 protocol; raise RequestError for a wrong tensor."""
    raw, inputs, is_finite = request.raw_input_contents, list[Any](), True
    if raw and len(raw) != len(request.inputs):
        raise RequestError(f"raw_input_contents has {len(raw)} tensors, inputs has {len(request.inputs)}", kind="")
    for tensor, content in zip_longest(request.inputs, raw):
        name, datatype = quoted(tensor.name), tensor.datatype
        if datatype not in _DATATYPES:
            raise RequestError(f"the input {name} has the unknown datatype {quoted(datatype)}", kind="")
        elements = _typed_elements(name, tensor) if content is None else _raw_elements(name, tensor, content)
        if datatype == "BYTES":  # as on TorchServe
            elements = [base64.b64encode(element).decode() for element in elements]
        elif datatype in {"BF16", "FP16", "FP32", "FP64"}:
            is_finite = is_finite and bool(np.isfinite(elements).all())
        inputs.append({"name": tensor.name, "shape": list(tensor.shape), "datatype": datatype, "data": elements})
    body = {"id": request.id, "model_name": request.model_name, "inputs": inputs}
    return msgspec.json.encode(body) if is_finite else json.dumps(body).encode()  # msgspec writes null for NaN


def _typed_elements(name: str, tensor: Any) -> list[Any]:
    """Return the elements in the field of their type; as on TorchServe, the handler compares them with the shape."""
    field = _DATATYPES[tensor.datatype][0]
    if not field or any(given.name != field for given, _ in tensor.contents.ListFields()):
        raise RequestError(f"the input {name} needs its elements in {field or 'raw_input_contents'}", kind="")
    elements = list(getattr(tensor.contents, field))
    return _shortest(elements) if tensor.datatype == "FP32" else elements


def _shortest(elements: list[float]) -> list[Any]:
    """Return numbers with the fewest digits that are the same FP32, as on TorchServe: 0.1, not 0.10000000149."""
    found = exact = np.asarray(elements, "<f8")
    with np.errstate(all="ignore"):  # for 0, infinity and NaN, which stay
        exponents = np.floor(np.log10(np.abs(exact)))
        for digits in (9, 8, 7, 6):
            scale = 10.0 ** (digits - 1 - exponents)
            rounded = np.rint(exact * scale) / scale
            is_same = (rounded.astype("<f4") == exact) & (scale >= 1) & (scale <= 1e22)  # such powers are exact
            found = np.where(is_same, rounded, found)
    return list(found.tolist())


def _raw_elements(name: str, tensor: Any, content: bytes) -> list[Any]:
    if tensor.HasField("contents") or len(tensor.shape) > 32 or min(tensor.shape, default=0) < 0:
        raise RequestError(f"the input {name} has an invalid shape, or contents beside raw_input_contents", kind="")
    if tensor.datatype == "BYTES":
        elements: list[Any] = list(_split_bytes(name, content))
    else:
        kind = np.dtype(_DATATYPES[tensor.datatype][1])
        if len(content) % kind.itemsize:
            raise RequestError(f"the input {name} ends within an element", kind="")
        array = np.frombuffer(content, kind)
        elements = ((array.astype("<u4") << 16).view("<f4") if tensor.datatype == "BF16" else array).tolist()
    if len(elements) != math.prod(tensor.shape):
        raise RequestError(f"the input {name} has {len(elements):,} elements, not {math.prod(tensor.shape):,}", kind="")
    return elements


def _split_bytes(name: str, content: bytes) -> Iterator[bytes]:
    """Yield the elements of a raw BYTES tensor: each has its length in 4 bytes before it."""
    start = 0
    while start < len(content):
        begin, start = start + 4, start + 4 + int.from_bytes(content[start : start + 4], "little")
        if max(begin, start) > len(content):
            raise RequestError(f"the input {name} ends within an element", kind="")
        yield content[begin:start]


def infer_response(kind: Any, body: bytes, *, raw: bool) -> Any:
    """Return a ModelInferResponse, `kind`, of a handler's JSON, in raw contents if `raw`; raise RequestError."""
    try:
        given = json.loads(body)
        response = kind(**{name: given.get(name, "") for name in ("id", "model_name", "model_version")})
        raw = raw or any(not _DATATYPES[output["datatype"]][0] for output in given["outputs"])
        for output in given["outputs"]:
            described = {name: output[name] for name in ("name", "datatype", "shape")}
            contents = response.outputs.add(**described).contents
            (field, letters), data = _DATATYPES[output["datatype"]], list(output["data"])
            if not letters:  # as on TorchServe, a string outside raw contents is JSON
                elements = [
                    each if raw and isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in data
                ]
                data = [element.encode() for element in elements]
            if raw:
                response.raw_output_contents.append(_raw_content(output["datatype"], data))
            else:
                getattr(contents, field).extend(np.asarray(data, letters).ravel().tolist() if letters else data)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        message = f"the handler's response is not a response of KServe's v2 protocol: {first_line(error)}"
        raise RequestError(message, status=500, kind="InternalServerException") from None
    return response


def _raw_content(datatype: str, data: list[Any]) -> bytes:
    if datatype == "BYTES":
        return b"".join(len(element).to_bytes(4, "little") + element for element in data)
    if datatype == "BF16":
        return (np.asarray(data, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return np.asarray(data, _DATATYPES[datatype][1]).tobytes()
