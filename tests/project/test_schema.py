"""What is wrong with an expectation by itself is said where it stands, before anything is built."""

import math
from typing import Any

import msgspec
import pytest

from marpack.project.schema import (
    Expectation,
    mistakes,
)

# An expectation → the key and a word of each mistake.
WRONG: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"status": 99}, [("status", "99")]),
    ({"status": 600}, [("status", "600")]),
    ({"text": {"regex": "["}}, [("text.regex", "unterminated")]),
    ({"shape": [2, -1]}, [("shape", "negative")]),
    ({"json": {"cat": {"min": "0.9"}}}, [("json.cat.min", "quotes")]),
    ({"json": {"cat": {"tolerance": 0.1}}}, [("json.cat.tolerance", "approx")]),
    ({"json": {"cat": {"approx": 1, "tolerance": -1}}}, [("json.cat.tolerance", "negative")]),
    ({"json": {"min": math.nan}}, [("json.min", "nan")]),
    ({"json": {"min": 10**400}}, []),
    ({"json": [1, {"min": 2, "max": 1}]}, [("json[1].min", "at least 2")]),
    ({"json": {"min": 2, "max": 1, "approx": 1, "tolerance": 1}}, [("json.min", "at most 1")]),
    ({"json": {"a": [{"b": {"min": "1", "max": "x"}}]}}, [("json.a[0].b.min", "quotes")]),
]
RIGHT: list[dict[str, Any]] = [
    {},
    {"status": 100},
    {"status": 599, "body": "", "text": "x", "shape": [], "json": None},
    {"text": {"regex": ".*", "contains": []}},
    {"json": {"cat": {"min": 0.5, "max": 0.5}}},
    {"json": {"cat": {"approx": 0.5, "tolerance": 0, "min": 0, "max": 1}}},
    {"shape": [0, 3]},
    {"json": {"min": "warm", "max": "hot"}},  # an object that happens to have these keys
    {"json": {"min": 30, "max": "hot"}},
    {"json": {"min": 1, "max": False}},
    {"json": {"min": "0.5", "unit": "K"}},
    {"json": [[], {}, "0.5", True]},
]


@pytest.mark.parametrize(("told", "expected"), WRONG)
def test_mistakes_are_reported_at_their_keys(told: dict[str, Any], expected: list[tuple[str, str]]):
    found = list(mistakes(msgspec.convert(told, Expectation)))
    assert [key for key, _ in found] == [key for key, _ in expected]
    assert all(word in message for (_, message), (_, word) in zip(found, expected, strict=True))


@pytest.mark.parametrize("told", RIGHT)
def test_what_may_be_meant(told: dict[str, Any]):
    assert list(mistakes(msgspec.convert(told, Expectation))) == []
