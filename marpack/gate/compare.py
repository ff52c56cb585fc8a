"""What an answer's bytes say, and whether two answers agree within a tolerance."""

import ast
import json
import math
import struct
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Any

from marpack.errors import shortened
from marpack.runner.results import Result
from marpack.weights.contents import read_contents
from marpack.weights.detect import Recognized, recognize
from marpack.weights.tensors import StoredTensor
from marpack.weights.zip_entries import NotZipError

NOTHING = object()  # no value: the bytes are none that can be read

_NPY = b"\x93NUMPY"
_ZIP = b"PK\x03\x04"
# Type, as numpy and as torch call it → its code for `struct`.
_CODES = {"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}
# Kernels differ with the batch's shape, and compiled ones from eager: answers may differ by rounding, not by meaning.
TOLERANCE = 1e-3  # of a number: absolute, and relative
_MAX_COUNT = 3  # sentences; who has more has seen enough


_CODES |= {"f2": "e", "f4": "f", "f8": "d"}
_TORCH = {"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "int32": "i", "int64": "q"}
_TORCH |= {"float16": "e", "float32": "f", "float64": "d"}


def value_of(result: Result) -> Any:  # Any: JSON
    """Return what a body says: JSON, an array or a tensor as a table; for anything else `NOTHING`."""
    raw = result.raw
    if raw.startswith(_NPY):
        return _array(raw)
    if raw.startswith(_ZIP):
        return _tensor(raw)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return NOTHING


def _array(raw: bytes) -> Any:
    """Return what numpy.save wrote: shape and numbers."""
    length, start = (struct.unpack_from("<H", raw, 8)[0], 10) if raw[6:7] == b"\1" else (None, 12)
    try:
        length = struct.unpack_from("<I", raw, 8)[0] if length is None else length
        header = ast.literal_eval(raw[start : start + length].decode("latin-1"))
        order, code = header["descr"][0], _CODES[header["descr"][1:]]
        count = math.prod(header["shape"])
        numbers = struct.unpack_from(f"{'>' if order == '>' else '<'}{count}{code}", raw, start + length)
    except (struct.error, ValueError, SyntaxError, KeyError, TypeError, IndexError, MemoryError, RecursionError):
        return NOTHING
    return {"shape": list(header["shape"]), "numbers": list(numbers)}


def _tensor(raw: bytes) -> Any:
    """Return the one tensor that torch.save wrote, as the server does of an answer that is one: shape and numbers."""
    found = recognize(BytesIO(raw))
    contents = read_contents(BytesIO(raw), found)
    names = [placed.tensor.name for placed in contents.tensors]
    if names != [""] or contents.problem is not None:  # what lies in a table has other things beside it
        return NOTHING
    return _elements(found, contents.tensors[0])


def _elements(found: Recognized, placed: StoredTensor) -> Any:
    code = _TORCH.get(placed.tensor.dtype)
    if code is None or placed.inside is None or found.zip is None or not placed.contiguous:
        return NOTHING
    try:
        with found.zip.open(placed.inside) as file:
            file.seek(placed.offset)
            numbers = struct.unpack(f"<{placed.tensor.elements}{code}", file.read(placed.tensor.bytes))
    except (struct.error, KeyError, NotZipError, OSError, MemoryError):
        return NOTHING
    return {"shape": list(placed.tensor.shape), "numbers": list(numbers)}


def differences(left: Result, right: Result, tolerance: float = TOLERANCE) -> list[str]:
    """Return the first few places where two answers differ beyond rounding; an empty list if they are alike."""
    if left.status != right.status:
        return [f"the status is {right.status}, not {left.status}"]
    if left.reset != right.reset:
        return ["the connection is reset in one of the answers"]
    if left.content_type != right.content_type:
        return [f"the content type is {right.content_type or 'missing'}, not {left.content_type or 'missing'}"]
    if left.raw == right.raw:
        return []
    first, second = value_of(left), value_of(right)
    if first is NOTHING or second is NOTHING:
        return [_bytes_differ(left, right)]
    try:
        return list(islice(_differ(first, second, "", tolerance), _MAX_COUNT))
    except RecursionError:
        return ["the bodies differ"]


def largest_difference(left: Result, right: Result) -> float | None:
    """Return how far the numbers that two answers share lie apart at most; None if they share none."""
    try:
        return max((abs(a - b) for a, b in _numbers(value_of(left), value_of(right))), default=None)
    except (RecursionError, OverflowError):
        return math.inf


def _bytes_differ(left: Result, right: Result) -> str:
    if "base64" in (left.body_encoding, right.body_encoding):
        return f"the body is other bytes ({len(right.raw)}, not {len(left.raw)})"
    return f"the body is {shortened(right.body, 40)}, not {shortened(left.body, 40)}"


def _differ(left: Any, right: Any, path: str, tolerance: float) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        yield from _tables_differ(left, right, path, tolerance)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (first, second) in enumerate(zip(left, right, strict=True)):
            yield from _differ(first, second, f"{path}[{index}]", tolerance)
    elif isinstance(left, list) and isinstance(right, list):
        yield f"{path or 'the answer'} has {len(right)} items, not {len(left)}"
    elif not _alike(left, right, tolerance):
        yield f"{path or 'the answer'} is {shortened(json.dumps(right), 40)}, not {shortened(json.dumps(left), 40)}"


def _tables_differ(left: dict[str, Any], right: dict[str, Any], path: str, tolerance: float) -> Iterator[str]:
    for key in [*left, *(key for key in right if key not in left)]:
        place = f"{path}.{key}" if path else key
        if key in left and key in right:
            yield from _differ(left[key], right[key], place, tolerance)
        elif not (_at_the_cut(key, left, right, tolerance) or _at_the_cut(key, right, left, tolerance)):
            yield f"{place} is only in one of the answers"


def _at_the_cut(key: str, left: dict[str, Any], right: dict[str, Any], tolerance: float) -> bool:
    """Say whether rounding alone may have pushed a key out of a top-k: its value is what the other's least one is."""
    value = left.get(key)
    if value is None or not _is_number(value) or len(left) != len(right) or not all(map(_is_number, right.values())):
        return False
    return _close(value, min(right.values()), tolerance)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _alike(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, float) or isinstance(right, float):
        return _is_number(left) and _is_number(right) and _close(left, right, tolerance)
    return bool(left == right)  # whole numbers are names and counts: they are not rounded


def _close(left: float, right: float, tolerance: float) -> bool:
    try:
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance) or (
            math.isnan(left) and math.isnan(right)
        )
    except OverflowError:
        return left == right


def _numbers(left: Any, right: Any) -> Iterator[tuple[float, float]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in left.keys() & right.keys():
            yield from _numbers(left[key], right[key])
    elif isinstance(left, list) and isinstance(right, list):
        for first, second in zip(left, right, strict=False):
            yield from _numbers(first, second)
    elif _is_number(left) and _is_number(right) and not (math.isnan(left) or math.isnan(right)):
        yield (0.0, 0.0) if left == right else (float(left), float(right))
