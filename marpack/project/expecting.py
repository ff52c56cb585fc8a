"""What is wrong with an expectation by itself, before any answer is held against it."""

import math
import re
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from marpack.project.schema import Expectation, TextExpectation

RANGE = frozenset({"min", "max", "approx", "tolerance"})  # keys of a table that stands in a number's place
Mistake = tuple[str, str]  # the key, dotted, and a sentence


def mistakes(expected: Expectation) -> Iterator[Mistake]:
    """Yield what no answer could meet, or what cannot be meant."""
    if expected.status is not None and not 100 <= expected.status <= 599:
        yield "status", f"{expected.status} is no HTTP status"
    if isinstance(expected.text, TextExpectation) and expected.text.regex is not None:
        try:
            re.compile(expected.text.regex)
        except re.error as error:
            yield "text.regex", f"the regular expression does not compile: {error}"
    if any(length < 0 for length in expected.shape or ()):
        yield "shape", "a shape holds lengths, which are not negative"
    if expected.json is not UNSET:
        yield from _in_value(expected.json, "json")


def _in_value(value: Any, key: str) -> Iterator[Mistake]:  # Any: JSON
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _in_value(item, f"{key}[{index}]")
    elif isinstance(value, dict) and value and set(value) <= RANGE:
        yield from _in_range(value, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _in_value(item, f"{key}.{name}")


def _in_range(bounds: dict[str, Any], key: str) -> Iterator[Mistake]:
    quoted = [name for name, bound in bounds.items() if isinstance(bound, str) and _is_number(bound)]
    if quoted:
        yield f"{key}.{quoted[0]}", f"{quoted[0]} is text; a number stands without quotes"
    if not all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in bounds.values()):
        return  # an object that happens to have these keys
    unreal = next((name for name, bound in bounds.items() if isinstance(bound, float) and math.isnan(bound)), None)
    if unreal is not None:
        yield f"{key}.{unreal}", "nan is no number that an answer can be held to"
    if "tolerance" in bounds and "approx" not in bounds:
        yield f"{key}.tolerance", "a tolerance belongs to approx"
    if bounds.get("tolerance", 0) < 0:
        yield f"{key}.tolerance", "a tolerance is not negative"
    if "min" in bounds and "max" in bounds and bounds["min"] > bounds["max"]:
        yield f"{key}.min", f"no number is at least {bounds['min']} and at most {bounds['max']}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
