"""What a sample's answer must be, and where it falls short."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from marpack.worker.results import Result

_NUMERIC = {"min", "max", "approx", "tolerance"}
_TOLERANCE = 1e-6  # of `approx` without a tolerance of its own


def shortfalls(expected: dict[str, Any], result: Result) -> list[str]:
    """Return one sentence per point in which an answer is not what was expected.

    Args:
        expected: `status`, `body`, `json`, `text` and `shape`, as in marpack.yaml; a sample without any expects 2xx.
        result: The answer.
    """
    short = list(_status(expected.get("status"), result))
    if "body" in expected and result.raw != str(expected["body"]).encode():
        short.append(f"the body is {_shortened(result.body)}, expected exactly {_shortened(expected['body'])}")
    if "text" in expected:
        short += _text(expected["text"], result)
    if "json" in expected or "shape" in expected:
        short += _structured(expected, result)
    return short


def _status(status: int | None, result: Result) -> Iterator[str]:
    if result.reset:
        yield "the connection was reset"
    if status is None and not 200 <= result.status < 300:
        yield f"the status is {result.status}, expected 2xx"
    elif status is not None and result.status != status:
        yield f"the status is {result.status}, expected {status}"


def _text(expected: Any, result: Result) -> Iterator[str]:
    body = result.raw.decode("utf-8", "replace")
    wanted = {"contains": expected} if isinstance(expected, str) else expected
    contains = wanted.get("contains") or []
    for piece in [contains] if isinstance(contains, str) else contains:
        if piece not in body:
            yield f"the body does not contain {piece!r}"
    pattern = wanted.get("regex")
    if pattern is not None and re.search(pattern, body) is None:
        yield f"the body does not match {pattern!r}"


def _structured(expected: dict[str, Any], result: Result) -> Iterator[str]:
    try:
        value = json.loads(result.raw)
    except ValueError:
        yield f"the body is no JSON: {_shortened(result.body)}"
        return
    if "json" in expected:
        yield from _subset(expected["json"], value, "")
    if "shape" in expected:
        shape = shape_of(value)
        if list(shape) != list(expected["shape"]):
            yield f"the shape is {list(shape)}, expected {list(expected['shape'])}"


def shape_of(value: Any) -> tuple[int, ...]:  # Any: JSON
    """Return the shape of nested lists, as deep as their lengths agree."""
    if not isinstance(value, list):
        return ()
    inner = {shape_of(item) for item in value}
    return (len(value), *(inner.pop() if len(inner) == 1 else ()))


def _subset(expected: Any, value: Any, path: str) -> Iterator[str]:
    """Yield where a value falls short: it may have more keys, its lists are as long, numbers may be ranges."""
    if isinstance(expected, dict) and set(expected) <= _NUMERIC and expected and not isinstance(value, dict):
        yield from _number(expected, value, path)
    elif isinstance(expected, dict):
        yield from _object(expected, value, path)
    elif isinstance(expected, list):
        yield from _list(expected, value, path)
    elif not _same(expected, value):
        yield f"{path or 'the body'} is {_shortened(json.dumps(value))}, expected {_shortened(json.dumps(expected))}"


def _same(expected: Any, value: Any) -> bool:
    if isinstance(expected, float) and isinstance(value, float) and math.isnan(expected):
        return math.isnan(value)
    return isinstance(value, bool) == isinstance(expected, bool) and expected == value


def _object(expected: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path or 'the body'} is {_shortened(json.dumps(value))}, expected an object"
        return
    for key, inner in expected.items():
        place = f"{path}.{key}" if path else str(key)
        if str(key) in value:
            yield from _subset(inner, value[str(key)], place)
        else:
            yield f"{place} is missing: there are {', '.join(list(value)[:5]) or 'no keys'}"


def _list(expected: list[Any], value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list) or len(value) != len(expected):
        what = f"{len(value)} items" if isinstance(value, list) else _shortened(json.dumps(value))
        yield f"{path or 'the body'} is {what}, expected a list of {len(expected)}"
        return
    for index, (inner, item) in enumerate(zip(expected, value, strict=True)):
        yield from _subset(inner, item, f"{path}[{index}]")


def _number(expected: dict[str, float], value: Any, path: str) -> Iterator[str]:
    place = path or "the body"
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield f"{place} is {_shortened(json.dumps(value))}, expected a number"
        return
    if not value >= expected.get("min", -math.inf):
        yield f"{place} is {value}, expected at least {expected['min']}"
    if not value <= expected.get("max", math.inf):
        yield f"{place} is {value}, expected at most {expected['max']}"
    if "approx" in expected:
        tolerance = expected.get("tolerance", _TOLERANCE * max(1.0, abs(expected["approx"])))
        if not abs(value - expected["approx"]) <= tolerance:
            yield f"{place} is {value}, expected {expected['approx']} ± {tolerance:g}"


def _shortened(text: object) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 80 else f"{line[:79]}…"
