"""Whether two responses agree, whether one is as expected, and how the responses of two variants compare."""

import json
import math
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice
from statistics import median
from tokenize import TokenError
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from marpack.archive.zip_format import NotZipError
from marpack.errors import pluralize, shortened
from marpack.findings import Finding
from marpack.gate.verdicts import Comparison, InputComparison, Similarity, Variant
from marpack.json_text import is_number
from marpack.project.schema import RANGE, Expectation, TextExpectation
from marpack.runner.inputs import Input
from marpack.runner.results import Result, answered_inputs
from marpack.runner.session import Session
from marpack.weights.contents import read_contents, recognize

NOTHING = object()  # the value of a body in no known format

# Kernels differ with the batch's shape, and compiled ones from eager ones: responses may differ by rounding.
TOLERANCE = 1e-3  # of a number: absolute, and relative
_MAX_COUNT = 3  # differences reported
_NPY = b"\x93NUMPY"
_ZIP = b"PK\x03\x04"
_MAX_HEADER = 10_000  # characters of an array's header, which numpy evaluates as a Python literal
_MAX_NUMBER = 8  # bytes of one number
# What numpy raises for the headers of arrays that it did not write.
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, ArithmeticError, EOFError, SyntaxError, TokenError),
    *(MemoryError, RecursionError),
)
# Type, as torch names it → its code for `struct`.
_TORCH = {"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "int32": "i", "int64": "q"}
_TORCH |= {"float16": "e", "float32": "f", "float64": "d"}
_LABEL_KEYS = ("label", "class", "prediction", "category", "answer")


def value_of(result: Result) -> Any:  # Any: JSON
    """Return a body's value: JSON, an array or a tensor as an object; for anything else `NOTHING`."""
    raw = result.raw
    if raw.startswith(_NPY):
        return _parse_array(raw)
    if raw.startswith(_ZIP):
        return _parse_tensor(raw)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return NOTHING


def _parse_array(raw: bytes) -> Any:  # Any: as above
    """Return shape and numbers of what numpy.save wrote, unless they are of a kind that JSON lacks."""
    import numpy as np  # noqa: PLC0415 - few responses need it, and importing it takes long

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers of Python 2
            array = np.load(BytesIO(raw), allow_pickle=False, max_header_size=_MAX_HEADER)
    except _UNREADABLE:
        return NOTHING
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > _MAX_NUMBER:
        return NOTHING
    return {"shape": list(array.shape), "numbers": array.ravel().tolist()}


def _parse_tensor(raw: bytes) -> Any:  # Any: as above
    """Return shape and numbers of the one tensor that torch.save wrote, as the server does for a tensor."""
    found = recognize(BytesIO(raw))
    contents = read_contents(BytesIO(raw), found)
    if [stored.tensor.name for stored in contents.tensors] != [""] or contents.problem is not None or found.zip is None:
        return NOTHING  # a named tensor is one of an object, which may hold other things
    stored = contents.tensors[0]
    code = _TORCH.get(stored.tensor.dtype)
    if code is None or stored.inside is None or not stored.contiguous:
        return NOTHING
    try:
        with found.zip.open(stored.inside) as file:
            file.seek(stored.offset)
            numbers = struct.unpack(f"<{stored.tensor.elements}{code}", file.read(stored.tensor.bytes))
    except (struct.error, KeyError, NotZipError, OSError, MemoryError):
        return NOTHING
    return {"shape": list(stored.tensor.shape), "numbers": list(numbers)}


def find_differences(left: Result, right: Result, tolerance: float = TOLERANCE) -> list[str]:
    """Return the first few places where two responses differ beyond rounding; an empty list if they agree."""
    if left.status != right.status:
        return [f"the status is {right.status}, not {left.status}"]
    if left.reset != right.reset:
        return ["the connection is reset in one of the responses"]
    if left.content_type != right.content_type:
        return [f"the content type is {right.content_type or 'missing'}, not {left.content_type or 'missing'}"]
    if left.raw == right.raw:
        return []
    first, second = value_of(left), value_of(right)
    if first is not NOTHING and second is not NOTHING:
        try:
            return list(islice(_compare_values(first, second, "", tolerance), _MAX_COUNT))
        except RecursionError:
            return ["the bodies differ"]
    if "base64" in (left.body_encoding, right.body_encoding):
        return [f"the body has other bytes ({len(right.raw)}, not {len(left.raw)})"]
    return [f"the body is {shortened(right.body, 40)}, not {shortened(left.body, 40)}"]


def _compare_values(left: Any, right: Any, path: str, tolerance: float) -> Iterator[str]:  # Any: JSON
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            place = f"{path}.{key}" if path else key
            if key in left and key in right:
                yield from _compare_values(left[key], right[key], place, tolerance)
            elif not (_at_the_cut(key, left, right, tolerance) or _at_the_cut(key, right, left, tolerance)):
                yield f"{place} is only in one of the responses"
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (first, second) in enumerate(zip(left, right, strict=True)):
            yield from _compare_values(first, second, f"{path}[{index}]", tolerance)
    elif isinstance(left, list) and isinstance(right, list):
        yield f"{path or 'the response'} has {pluralize(len(right), 'item')}, not {len(left)}"
    elif not _agree(left, right, tolerance):
        yield f"{path or 'the response'} is {shortened(json.dumps(right), 40)}, not {shortened(json.dumps(left), 40)}"


def _at_the_cut(key: str, left: dict[str, Any], right: dict[str, Any], tolerance: float) -> bool:
    """Return whether rounding alone may have pushed a key out of a top-k: its value is close to the other's least."""
    value = left.get(key)
    if value is None or not is_number(value) or len(left) != len(right) or not all(map(is_number, right.values())):
        return False
    return _is_close(value, min(right.values()), tolerance)


def _agree(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, float) or isinstance(right, float):
        return is_number(left) and is_number(right) and _is_close(left, right, tolerance)
    return bool(left == right)  # whole numbers are names and counts: they are not rounded


def _is_close(left: float, right: float, tolerance: float) -> bool:
    try:
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:
        return left == right


def largest_difference(left: Result, right: Result) -> float | None:
    """Return the largest difference between the numbers that two responses share; None if they share none."""
    try:
        return max((abs(a - b) for a, b in _pair_numbers(value_of(left), value_of(right))), default=None)
    except (RecursionError, OverflowError):
        return math.inf


def _pair_numbers(left: Any, right: Any) -> Iterator[tuple[float, float]]:  # Any: JSON
    if isinstance(left, dict) and isinstance(right, dict):
        for key in left.keys() & right.keys():
            yield from _pair_numbers(left[key], right[key])
    elif isinstance(left, list) and isinstance(right, list):
        for first, second in zip(left, right, strict=False):
            yield from _pair_numbers(first, second)
    elif is_number(left) and is_number(right) and not (math.isnan(left) or math.isnan(right)):
        yield (0.0, 0.0) if left == right else (float(left), float(right))


# --- what a sample expects: regular expressions run in a process of their own, as they may never end -----------------

_SECONDS = 5.0
_FOUND, _ABSENT = 0, 1
_PROGRAM = """
import re, sys
size = int(sys.stdin.buffer.readline())
pattern = sys.stdin.buffer.read(size).decode("utf-8", "surrogatepass")
text = sys.stdin.buffer.read().decode("utf-8", "replace")
sys.exit(0 if re.search(pattern, text) else 1)
"""
_APPROX = 1e-6  # tolerance of `approx` without one of its own: absolute below 1, relative above


def search(pattern: str, text: bytes) -> str | None:
    """Search UTF-8 text for a pattern; return why it is not found, as the end of a sentence, or None if it is."""
    encoded = pattern.encode("utf-8", "surrogatepass")
    try:
        done = subprocess.run(  # noqa: S603 - our own program, no shell
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=b"%d\n%b%b" % (len(encoded), encoded, text),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"takes over {_SECONDS:.0f} s to search for"
    if done.returncode == _FOUND:
        return None
    if done.returncode == _ABSENT and not done.stderr:
        return "is not in the body"
    reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"does not compile: {reason.partition(': ')[2] or reason}"


def find_shortfalls(expected: Expectation, result: Result) -> list[str]:
    """Return one sentence per point in which a response is not as expected; an empty expectation expects a 2xx."""
    short = find_status_shortfalls(expected.status, result)
    if expected.body is not None and result.raw != expected.body.encode():
        short.append(f"the body is {shortened(result.body)}, expected exactly {shortened(expected.body)}")
    if expected.text is not None:
        short += _check_text(expected.text, result.raw)
    if expected.json is not UNSET or expected.shape is not None:
        value = value_of(result)
        if value is NOTHING:
            return [*short, f"the body is not JSON: {shortened(result.body)}"]
        try:
            if expected.json is not UNSET:
                short += _check_value(expected.json, value, "")
            shape = list(shape_of(value))
            if expected.shape is not None and shape != expected.shape:
                short.append(f"the shape is {shape}, expected {expected.shape}")
        except RecursionError:
            short.append("the body nests too deeply to compare")
    return short


def _check_text(expected: str | TextExpectation, raw: bytes) -> Iterator[str]:
    body = raw.decode("utf-8", "replace")
    wanted = TextExpectation(contains=expected) if isinstance(expected, str) else expected
    contains = wanted.contains or []
    for piece in [contains] if isinstance(contains, str) else contains:
        if piece not in body:
            yield f"the body does not contain {shortened(piece)!r}: {shortened(body)}"
    why = search(wanted.regex, raw) if wanted.regex is not None else None
    if why is not None:
        yield f"the regular expression {shortened(str(wanted.regex))!r} {why}: {shortened(body)}"


def find_status_shortfalls(status: int | None, result: Result) -> list[str]:
    """Return in which ways a response has another status than expected; None expects a 2xx."""
    short = ["the connection was reset"] if result.reset else []
    if status is None and not 200 <= result.status < 300:
        short.append(f"the status is {result.status}, expected 2xx")
    elif status is not None and result.status != status:
        short.append(f"the status is {result.status}, expected {status}")
    return short


def shape_of(value: Any) -> tuple[int, ...]:  # Any: JSON
    """Return the shape of nested lists, as deep as their lengths agree."""
    if not isinstance(value, list):
        return ()
    inner = {shape_of(item) for item in value}
    return (len(value), *(inner.pop() if len(inner) == 1 else ()))


def _check_value(expected: Any, value: Any, path: str) -> Iterator[str]:  # Any: JSON
    """Yield where a value is not as expected: objects may have more keys, lists are as long, numbers may be ranges."""
    place = path or "the body"
    if isinstance(expected, dict) and isinstance(value, dict):
        for key, inner in expected.items():
            inside = f"{path}.{key}" if path else str(key)
            if key in value:
                yield from _check_value(inner, value[key], inside)
            else:
                yield f"{inside} is missing; the keys are {shortened(', '.join(value)) or 'none'}"
    elif isinstance(expected, list) and isinstance(value, list) and len(value) == len(expected):
        for index, (inner, item) in enumerate(zip(expected, value, strict=True)):
            yield from _check_value(inner, item, f"{path}[{index}]")
    elif isinstance(expected, list):
        what = pluralize(len(value), "item") if isinstance(value, list) else shortened(json.dumps(value))
        yield f"{place} is {what}, expected a list of {len(expected)}"
    elif isinstance(expected, dict):
        yield from _check_range(expected, value, f"{place} is {shortened(json.dumps(value))}, expected")
    elif (isinstance(value, bool) != isinstance(expected, bool) or expected != value) and not all(
        isinstance(each, float) and math.isnan(each) for each in (expected, value)
    ):
        yield f"{place} is {shortened(json.dumps(value))}, expected {shortened(json.dumps(expected))}"


def _check_range(expected: dict[str, Any], value: Any, found: str) -> Iterator[str]:
    """Compare with `min`, `max`, or `approx` with its `tolerance`, which describe a number."""
    if not expected or not set(expected) <= RANGE or not all(map(is_number, expected.values())):
        yield f"{found} an object"
        return
    if not is_number(value):
        yield f"{found} a number"
        return
    if "min" in expected and not value >= expected["min"]:
        yield f"{found} at least {expected['min']}"
    if "max" in expected and not value <= expected["max"]:
        yield f"{found} at most {expected['max']}"
    if "approx" in expected:
        wanted = expected["approx"]
        tolerance = expected.get("tolerance", _APPROX * max(1.0, abs(wanted)))
        try:
            near = abs(value - wanted) <= tolerance
        except OverflowError:
            near = value == wanted
        if not near:
            yield f"{found} {wanted} ± {tolerance:g}"


def compare(one: Result, other: Result, tolerance: float = TOLERANCE) -> InputComparison:
    """Compare two responses to one input."""
    found = find_differences(one, other, tolerance)
    labels = label_of(one), label_of(other)
    if one.status != other.status:
        likeness = Similarity.STATUS
    elif not found:
        likeness = Similarity.EXACT if one.raw == other.raw else Similarity.ROUNDED
    else:
        likeness = Similarity.LABEL if labels[0] is not None and labels[0] == labels[1] else Similarity.DIFFERENT
    return InputComparison(
        input=one.input,
        likeness=likeness,
        statuses=(one.status, other.status),
        labels=labels,
        largest=largest_difference(one, other),
        differences=tuple(found),
    )


def label_of(result: Result) -> str | None:
    """Return the label that a response gives: its likeliest class, or the labels it lists; None if it gives none."""
    value = value_of(result)
    try:
        named = _find_label(value) if value is not NOTHING else None
    except RecursionError:
        return None
    if isinstance(named, list):
        return ", ".join(map(str, named)) if all(item is not None for item in named) else None
    return named


def _find_label(value: Any) -> Any:  # Any: JSON in; text, a list of texts, or None out
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return [_find_label(item) for item in value] if value and isinstance(value[0], dict | str) else None
    if not isinstance(value, dict) or not value:
        return None
    if all(map(is_number, value.values())):
        return max(value, key=lambda key: value[key])
    named = next((value[key] for key in _LABEL_KEYS if isinstance(value.get(key), str)), None)
    boxes = [key for key, box in value.items() if isinstance(box, list)]
    return named or (boxes[0] if len(boxes) == 1 else None)


class VariantRunner:
    """Compares the responses of two variants as they come."""

    def __init__(self, one: Session, other: Session, names: tuple[str, str], tolerance: float = TOLERANCE) -> None:
        self._pools = one.pool, other.pool
        self._sides = [  # read now: an interrupt must not read digests later
            Variant(
                name=name,
                archive=str(session.resolved.path),
                content_digest=session.content_digest,
                handler=session.loaded.handler,
                device=session.loaded.device,
            )
            for name, session in zip(names, (one, other), strict=True)
        ]
        self._tolerance = tolerance
        self._seconds: tuple[list[float], list[float]] = [], []  # of each response
        self._done: list[InputComparison] = []

    def run(self, inputs: Sequence[Input]) -> Iterator[InputComparison]:
        """Yield one comparison per input; both variants work at the same time.

        Raises LoadError and WorkerError when a worker that died cannot be started again.
        """
        pairs = zip(*(answered_inputs(pool, inputs) for pool in self._pools), strict=True)
        for one, other in ((one.result, other.result) for one, other in pairs):
            for seconds, result in zip(self._seconds, (one, other), strict=True):
                seconds.append(result.seconds)
            self._done.append(compare(one, other, self._tolerance))
            yield self._done[-1]

    def stop(self) -> None:
        """End the workers of both variants at once."""
        for pool in self._pools:
            pool.kill()

    def comparison(self, *, findings: tuple[Finding, ...] = (), interrupted: bool = False) -> Comparison:
        """Return the sum of the comparisons so far."""
        one, other = (
            replace(side, milliseconds=median_milliseconds(seconds))
            for side, seconds in zip(self._sides, self._seconds, strict=True)
        )
        found = sum_up((one, other), self._done, self._tolerance)
        return replace(found, findings=findings, interrupted=interrupted)


def median_milliseconds(seconds: Sequence[float]) -> float:
    """Return the median of some durations."""
    return round(median(seconds) * 1000, 3) if seconds else 0.0


def sum_up(sides: tuple[Variant, Variant], results: Sequence[InputComparison], tolerance: float) -> Comparison:
    """Return what the comparisons of single inputs add up to."""
    return Comparison(
        sides=sides,
        tolerance=tolerance,
        alike=all(each.alike for each in results),
        proved=any(status // 100 == 2 for each in results for status in each.statuses),
        counts={str(kind): sum(each.likeness is kind for each in results) for kind in Similarity},
        largest=max((each.largest for each in results if each.largest is not None), default=None),
        results=tuple(results),
    )
