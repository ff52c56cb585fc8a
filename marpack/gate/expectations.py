"""The responses that samples expect, and how a response differs from them; regular expressions cannot hang."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from marpack.errors import shortened
from marpack.gate.compare import NOTHING, is_number, value_of
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
        short += _compare_text(expected.text, result)
    if expected.json is not UNSET or expected.shape is not None:
        value = value_of(result)
        if value is NOTHING:
            return [*short, f"the body is not JSON: {shortened(result.body)}"]
        try:
            if expected.json is not UNSET:
                short += _compare(expected.json, value, "")
            shape = list(shape_of(value))
            if expected.shape is not None and shape != expected.shape:
                short.append(f"the shape is {shape}, expected {expected.shape}")
        except RecursionError:
            short.append("the body nests too deeply to compare")
    return short


def _compare_text(expected: str | TextExpectation, result: Result) -> Iterator[str]:
    body = result.raw.decode("utf-8", "replace")
    wanted = TextExpectation(contains=expected) if isinstance(expected, str) else expected
    contains = wanted.contains or []
    for piece in [contains] if isinstance(contains, str) else contains:
        if piece not in body:
            yield f"the body does not contain {shortened(piece)!r}: {shortened(body)}"
    why = search(wanted.regex, result.raw) if wanted.regex is not None else None
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


def _shown(value: Any) -> str:
    return shortened(json.dumps(value))


def _compare(expected: Any, value: Any, path: str) -> Iterator[str]:  # Any: JSON
    """Yield where a value is not as expected: objects may have more keys, lists are as long, numbers may be ranges."""
    place = path or "the body"
    if isinstance(expected, dict):
        yield from _compare_object(expected, value, path)
    elif isinstance(expected, list):
        if not isinstance(value, list) or len(value) != len(expected):
            what = f"{len(value)} items" if isinstance(value, list) else _shown(value)
            yield f"{place} is {what}, expected a list of {len(expected)}"
            return
        for index, (inner, item) in enumerate(zip(expected, value, strict=True)):
            yield from _compare(inner, item, f"{path}[{index}]")
    elif isinstance(value, bool) != isinstance(expected, bool) or expected != value:
        both_nan = (
            isinstance(expected, float) and isinstance(value, float) and math.isnan(expected) and math.isnan(value)
        )
        if not both_nan:
            yield f"{place} is {_shown(value)}, expected {_shown(expected)}"


def _compare_object(expected: dict[str, Any], value: Any, path: str) -> Iterator[str]:  # Any: JSON
    place = path or "the body"
    if not isinstance(value, dict):
        # `min`, `max`, or `approx` with its `tolerance` describe a number
        if expected and set(expected) <= RANGE and all(map(is_number, expected.values())):
            yield from _compare_number(expected, value, f"{place} is {_shown(value)}")
        else:
            yield f"{place} is {_shown(value)}, expected an object"
        return
    for key, inner in expected.items():
        inside = f"{path}.{key}" if path else str(key)
        if key in value:
            yield from _compare(inner, value[key], inside)
        else:
            yield f"{inside} is missing; the keys are {shortened(', '.join(value)) or 'none'}"


def _compare_number(expected: dict[str, float], value: Any, found: str) -> Iterator[str]:
    if not is_number(value):
        yield f"{found}, expected a number"
        return
    if "min" in expected and not value >= expected["min"]:
        yield f"{found}, expected at least {expected['min']}"
    if "max" in expected and not value <= expected["max"]:
        yield f"{found}, expected at most {expected['max']}"
    if "approx" in expected:
        wanted = expected["approx"]
        tolerance = expected.get("tolerance", _TOLERANCE * max(1.0, abs(wanted)))
        try:
            near = abs(value - wanted) <= tolerance
        except OverflowError:
            near = value == wanted
        if not near:
            yield f"{found}, expected {wanted} ± {tolerance:g}"
