"""What an answer's bytes say, and whether two answers agree within a tolerance."""

import ast
import json
import math
import struct
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Any

from marpack.runner.results import Result
from marpack.weights.contents import read_contents
from marpack.weights.detect import Recognized, recognize
from marpack.weights.tensors import Placed
from marpack.weights.zip_entries import NotZipError

NOTHING = object()  # no value: the bytes are none that can be read

_NPY = b"\x93NUMPY"
_ZIP = b"PK\x03\x04"
# Type, as numpy and as torch call it → its code for `struct`.
_CODES = {"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}
# Kernels differ with the batch's shape, and compiled ones from eager: answers may differ by rounding, not by meaning.
TOLERANCE = 1e-3  # of a number: absolute, and relative
_MOST = 3  # sentences; who has more has seen enough


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


def _elements(found: Recognized, placed: Placed) -> Any:
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


def differences(one: Result, other: Result, tolerance: float = TOLERANCE) -> list[str]:
    """Return the first few places where two answers differ beyond rounding; an empty list if they are alike."""
    if one.status != other.status:
        return [f"the status is {other.status}, not {one.status}"]
    if one.reset != other.reset:
        return ["the connection is reset in one of the answers"]
    if one.content_type != other.content_type:
        return [f"the content type is {other.content_type or 'missing'}, not {one.content_type or 'missing'}"]
    if one.raw == other.raw:
        return []
    left, right = value_of(one), value_of(other)
    if left is NOTHING or right is NOTHING:
        return [_bytes_differ(one, other)]
    try:
        return list(islice(_differ(left, right, "", tolerance), _MOST))
    except RecursionError:
        return ["the bodies differ"]


def largest_difference(one: Result, other: Result) -> float | None:
    """Return how far the numbers that two answers share lie apart at most; None if they share none."""
    try:
        return max((abs(a - b) for a, b in _numbers(value_of(one), value_of(other))), default=None)
    except (RecursionError, OverflowError):
        return math.inf


def _bytes_differ(one: Result, other: Result) -> str:
    if "base64" in (one.body_encoding, other.body_encoding):
        return f"the body is other bytes ({len(other.raw)}, not {len(one.raw)})"
    return f"the body is {_shortened(other.body)}, not {_shortened(one.body)}"


def _differ(one: Any, other: Any, path: str, tolerance: float) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        yield from _tables_differ(one, other, path, tolerance)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differ(left, right, f"{path}[{index}]", tolerance)
    elif isinstance(one, list) and isinstance(other, list):
        yield f"{path or 'the answer'} has {len(other)} items, not {len(one)}"
    elif not _alike(one, other, tolerance):
        yield f"{path or 'the answer'} is {_shortened(json.dumps(other))}, not {_shortened(json.dumps(one))}"


def _tables_differ(one: dict[str, Any], other: dict[str, Any], path: str, tolerance: float) -> Iterator[str]:
    for key in [*one, *(key for key in other if key not in one)]:
        place = f"{path}.{key}" if path else key
        if key in one and key in other:
            yield from _differ(one[key], other[key], place, tolerance)
        elif not (_at_the_cut(key, one, other, tolerance) or _at_the_cut(key, other, one, tolerance)):
            yield f"{place} is only in one of the answers"


def _at_the_cut(key: str, one: dict[str, Any], other: dict[str, Any], tolerance: float) -> bool:
    """Say whether rounding alone may have pushed a key out of a top-k: its value is what the other's least one is."""
    value = one.get(key)
    if value is None or not _is_number(value) or len(one) != len(other) or not all(map(_is_number, other.values())):
        return False
    return _close(value, min(other.values()), tolerance)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _alike(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        return _is_number(one) and _is_number(other) and _close(one, other, tolerance)
    return bool(one == other)  # whole numbers are names and counts: they are not rounded


def _close(one: float, other: float, tolerance: float) -> bool:
    try:
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(one) and math.isnan(other))
    except OverflowError:
        return one == other


def _numbers(one: Any, other: Any) -> Iterator[tuple[float, float]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() & other.keys():
            yield from _numbers(one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list):
        for left, right in zip(one, other, strict=False):
            yield from _numbers(left, right)
    elif _is_number(one) and _is_number(other) and not (math.isnan(one) or math.isnan(other)):
        yield (0.0, 0.0) if one == other else (float(one), float(other))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:39]}…"
