"""Two answers to one input: the same, the same but for rounding, or different, and where."""

import json
import math
from collections.abc import Iterator
from typing import Any

from marpack.worker.results import Result

# Kernels differ with the batch's shape, and compiled ones from eager: answers may differ by rounding, not by meaning.
RELATIVE = 1e-3
ABSOLUTE = 1e-3


def differences(one: Result, other: Result) -> list[str]:
    """Return where two answers differ beyond rounding; an empty list if they are alike."""
    if one.status != other.status:
        return [f"the status is {other.status}, not {one.status}"]
    if one.raw == other.raw:
        return []
    values = _json(one), _json(other)
    if None in values:
        return ["the bodies differ"]
    return list(_differ(*values, ""))


def largest_difference(one: Result, other: Result) -> float:
    """Return how far the numbers of two answers alike lie apart at most."""
    return max((abs(a - b) for a, b in _numbers(_json(one), _json(other))), default=0.0)


def _json(result: Result) -> Any:  # Any: JSON, or None where it is none
    try:
        return json.loads(result.raw)
    except ValueError:
        return None


def _differ(one: Any, other: Any, path: str) -> Iterator[str]:
    place = path or "the answer"
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if key in one and key in other:
                yield from _differ(one[key], other[key], f"{path}.{key}" if path else key)
            elif not _vanishing(one.get(key, other.get(key))):
                yield f"{path}.{key} is only in one of the answers" if path else f"{key} is only in one of the answers"
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differ(left, right, f"{path}[{index}]")
    elif not _alike(one, other):
        yield f"{place} is {_shortened(other)}, not {_shortened(one)}"


def _vanishing(value: Any) -> bool:
    """Say whether a value is next to nothing: the last of a top-k may change places by rounding."""
    return isinstance(value, float) and abs(value) <= ABSOLUTE


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        same = math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        return same or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _numbers(one: Any, other: Any) -> Iterator[tuple[float, float]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() & other.keys():
            yield from _numbers(one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list):
        for left, right in zip(one, other, strict=False):
            yield from _numbers(left, right)
    elif isinstance(one, int | float) and isinstance(other, int | float):
        yield float(one), float(other)


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
