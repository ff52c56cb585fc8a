"""An answer → the expectation that it, and every answer close to it, meets."""

import math
from typing import Any

from msgspec import UNSET

from marpack.gate.bodies import NOTHING, value_of
from marpack.gate.comparing import TOLERANCE
from marpack.gate.expectations import shape_of
from marpack.project.schema import RANGE, Expectation, TextExpectation
from marpack.runner.results import Result

_MOST = 24  # values of one answer that are recorded
_DEEPEST = 8
_LONGEST_BODY = 200  # characters recorded as they are; of a longer text, its beginning
_LONGEST_START = 60
_DIGITS = 6  # of a recorded number
_INT64 = 1 << 63
_NO = object()  # nothing can be said of this value


def expectation_of(result: Result) -> Expectation | None:
    """Return what to expect of an answer like this one; None for one that no client could hold on to.

    Whole numbers, text and the like are expected exactly, other numbers within a thousandth. What is too large to be
    written down is expected in its shape, or its beginning.
    """
    if result.reset or not 100 <= result.status <= 599:
        return None
    value = value_of(result)
    if value is not NOTHING:
        return _of_value(result.status, value)
    if result.body_encoding == "base64" or "\0" in result.body:
        return Expectation(status=result.status)
    if len(result.body) <= _LONGEST_BODY:
        return Expectation(status=result.status, body=result.body)
    first = next(iter(result.body.strip().splitlines()), "")
    start = first[:_LONGEST_START].strip()
    return Expectation(status=result.status, text=TextExpectation(contains=start) if start else None)


def _of_value(status: int, value: Any) -> Expectation:  # Any: JSON
    if isinstance(value, dict) and _count(value) > _MOST:
        value = dict(
            list({key: item for key, item in value.items() if not isinstance(item, dict | list)}.items())[:_MOST]
        )
    told = _told(value, 0) if _count(value) <= _MOST else _NO
    shape = list(shape_of(value)) if told is _NO and isinstance(value, list) and value else None
    return Expectation(status=status, json=UNSET if told is _NO else told, shape=shape)


def _count(value: Any, depth: int = 0) -> int:
    """Count the values within a value, as far as it takes to see that they are too many."""
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return 1
    total = 0
    for item in value.values() if isinstance(value, dict) else value:
        total += _count(item, depth + 1)
        if total > _MOST:
            break
    return total


def _told(value: Any, depth: int) -> Any:
    """Return what to expect of a value; of an object, only what can be said, of a list all of it or nothing."""
    if depth > _DEEPEST:
        return _NO
    if isinstance(value, dict):
        told = {key: _told(item, depth + 1) for key, item in value.items() if _is_plain(key)}
        kept = {key: item for key, item in told.items() if item is not _NO}
        return _NO if kept and set(kept) <= RANGE else kept  # it would be read as what stands for a number
    if isinstance(value, list):
        items = [_told(item, depth + 1) for item in value]
        return _NO if any(item is _NO for item in items) else items
    if isinstance(value, str):
        return value if _is_plain(value) else _NO
    if isinstance(value, float) or (isinstance(value, int) and not -_INT64 <= value < _INT64):
        return _near(value)
    return value


def _is_plain(text: str) -> bool:
    """Say whether a text has a form in UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _near(value: float) -> Any:
    """Return a number with the room that rounding needs; nothing for one that a file cannot hold."""
    try:
        number = float(value)
    except OverflowError:
        return _NO
    if not math.isfinite(number):
        return _NO
    tolerance = float(f"{TOLERANCE * max(1.0, abs(number)):.1g}")
    return {"approx": float(f"{number:.{_DIGITS}g}"), "tolerance": tolerance}
