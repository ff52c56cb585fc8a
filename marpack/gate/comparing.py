"""Two answers to one input: the same, the same but for rounding, or different, and where."""

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from marpack.gate.bodies import NOTHING, value_of
from marpack.runner.results import Result

# Kernels differ with the batch's shape, and compiled ones from eager: answers may differ by rounding, not by meaning.
TOLERANCE = 1e-3  # of a number: absolute, and relative
_MOST = 3  # sentences; who has more has seen enough


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
