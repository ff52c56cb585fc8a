"""What an answer's bytes say: JSON, or the arrays of numpy and torch, as values that can be compared."""

import ast
import json
import math
import struct
from io import BytesIO
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
