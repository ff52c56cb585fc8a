"""What a sample's answer must be, and what it falls short of; regular expressions cannot hang."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from marpack.errors import shortened
from marpack.gate.compare import NOTHING, value_of
from marpack.project.schema import RANGE, Expectation, TextExpectation
from marpack.runner.results import Result

_SECONDS = 5.0
_FOUND, _ABSENT = 0, 1
_PROGRAM = """
import re, sys
size = int(sys.stdin.buffer.readline())
pattern = sys.stdin.buffer.read(size).decode("utf-8", "surrogatepass")
text = sys.stdin.buffer.read().decode("utf-8", "replace")
sys.exit(0 if re.search(pattern, text) else 1)
"""
_TOLERANCE = 1e-6  # of `approx` without a tolerance of its own: absolute below 1, relative above


def unmatched(pattern: str, text: bytes) -> str | None:
    """Return why a pattern is not found in a text in UTF-8, as the end of a sentence; None if it is."""
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
        return f"takes over {_SECONDS:.0f} s to be searched for"
    if done.returncode == _FOUND:
        return None
    if done.returncode == _ABSENT and not done.stderr:
        return "is not in the body"
    reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"does not compile: {reason.partition(': ')[2] or reason}"


def shortfalls(expected: Expectation, result: Result) -> list[str]:
    """Return one sentence per point in which an answer is not what was expected; no expectation expects 2xx."""
    short = list(status_shortfalls(expected.status, result))
    if expected.body is not None and result.raw != expected.body.encode():
        short.append(f"the body is {shortened(result.body)}, expected exactly {shortened(expected.body)}")
    if expected.text is not None:
        short += _text(expected.text, result)
    if expected.json is not UNSET or expected.shape is not None:
        short += _structured(expected, result)
    return short


def status_shortfalls(status: int | None, result: Result) -> Iterator[str]:
    """Yield in which ways an answer has another status than expected; None expects a 2xx."""
    if result.reset:
        yield "the connection was reset"
    if status is None and not 200 <= result.status < 300:
        yield f"the status is {result.status}, expected 2xx"
    elif status is not None and result.status != status:
        yield f"the status is {result.status}, expected {status}"


def _text(expected: str | TextExpectation, result: Result) -> Iterator[str]:
    body = result.raw.decode("utf-8", "replace")
    wanted = TextExpectation(contains=expected) if isinstance(expected, str) else expected
    contains = wanted.contains or []
    for piece in [contains] if isinstance(contains, str) else contains:
        if piece not in body:
            yield f"the body does not contain {shortened(piece)!r}: {shortened(body)}"
    why = unmatched(wanted.regex, result.raw) if wanted.regex is not None else None
    if why is not None:
        yield f"the regular expression {shortened(str(wanted.regex))!r} {why}: {shortened(body)}"


def _structured(expected: Expectation, result: Result) -> Iterator[str]:
    value = value_of(result)
    if value is NOTHING:
        yield f"the body is no JSON: {shortened(result.body)}"
        return
    try:
        if expected.json is not UNSET:
            yield from _subset(expected.json, value, "")
        shape = list(shape_of(value))
        if expected.shape is not None and shape != expected.shape:
            yield f"the shape is {shape}, expected {expected.shape}"
    except RecursionError:
        yield "the body nests too deeply to be compared"


def shape_of(value: Any) -> tuple[int, ...]:  # Any: JSON
    """Return the shape of nested lists, as deep as their lengths agree."""
    if not isinstance(value, list):
        return ()
    inner = {shape_of(item) for item in value}
    return (len(value), *(inner.pop() if len(inner) == 1 else ()))


def is_range(expected: Any) -> bool:  # Any: JSON, as an author wrote it
    """Say whether a table describes a number: `min`, `max`, or `approx` with its `tolerance`."""
    return (
        isinstance(expected, dict)
        and bool(expected)
        and set(expected) <= RANGE
        and all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in expected.values())
    )


def _subset(expected: Any, value: Any, path: str) -> Iterator[str]:
    """Yield where a value falls short: it may have more keys, its lists are as long, numbers may be ranges."""
    if is_range(expected) and not isinstance(value, dict):
        yield from _number(expected, value, path)
    elif isinstance(expected, dict):
        yield from _object(expected, value, path)
    elif isinstance(expected, list):
        yield from _list(expected, value, path)
    elif not _same(expected, value):
        yield f"{path or 'the body'} is {_shown(value)}, expected {_shown(expected)}"


def _same(expected: Any, value: Any) -> bool:
    if isinstance(expected, float) and isinstance(value, float) and math.isnan(expected):
        return math.isnan(value)
    return isinstance(value, bool) == isinstance(expected, bool) and bool(expected == value)


def _object(expected: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path or 'the body'} is {_shown(value)}, expected an object"
        return
    for key, inner in expected.items():
        place = f"{path}.{key}" if path else str(key)
        if key in value:
            yield from _subset(inner, value[key], place)
        else:
            yield f"{place} is missing: there are {shortened(', '.join(value)) or 'no keys'}"


def _list(expected: list[Any], value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list) or len(value) != len(expected):
        what = f"{len(value)} items" if isinstance(value, list) else _shown(value)
        yield f"{path or 'the body'} is {what}, expected a list of {len(expected)}"
        return
    for index, (inner, item) in enumerate(zip(expected, value, strict=True)):
        yield from _subset(inner, item, f"{path}[{index}]")


def _number(expected: dict[str, float], value: Any, path: str) -> Iterator[str]:
    place = path or "the body"
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield f"{place} is {_shown(value)}, expected a number"
        return
    if "min" in expected and not value >= expected["min"]:
        yield f"{place} is {_shown(value)}, expected at least {expected['min']}"
    if "max" in expected and not value <= expected["max"]:
        yield f"{place} is {_shown(value)}, expected at most {expected['max']}"
    if "approx" in expected and not _near(value, expected["approx"], tolerance_of(expected)):
        yield f"{place} is {_shown(value)}, expected {expected['approx']} ± {tolerance_of(expected):g}"


def tolerance_of(expected: dict[str, float]) -> float:
    """Return how far a number may lie from `approx`."""
    return expected.get("tolerance", _TOLERANCE * max(1.0, abs(expected["approx"])))


def _near(value: float, wanted: float, tolerance: float) -> bool:
    try:
        return abs(value - wanted) <= tolerance
    except OverflowError:
        return value == wanted


def _shown(value: Any) -> str:
    return shortened(json.dumps(value))
