"""Two answers to one input: alike, alike but for rounding, or different, and where."""

import json
import math
from typing import Any

import pytest
from gate.archives import result
from hypothesis import given
from hypothesis import strategies as st

from marpack.gate.compare import Similarity, compare, find_differences, label_of, largest_difference

ALIKE: list[tuple[str | bytes, str | bytes]] = [
    ("text", "text"),
    (b"\xff\x00", b"\xff\x00"),
    ("0.5", "0.5004"),
    ("1e9", "1.0005e9"),
    ("[1, 2.0]", "[1, 2.0001]"),
    ('{"a": 0.9, "b": 0.1}', '{"b": 0.1, "a": 0.9}'),
    ('{"a": [NaN, Infinity]}', '{"a": [NaN, Infinity]}'),
    ("5", "5.0"),
    # of a top-k, the last one may change places by rounding
    ('{"a": 0.5, "b": 0.3, "c": 0.1}', '{"a": 0.5, "b": 0.3, "d": 0.1004}'),
    ('{"a": 0.9995, "b": 0.0003}', '{"a": 0.9995, "c": 0.0002}'),
    ("[" * 300 + "]" * 300, "[" * 300 + " ]" * 300),
]
DIFFERENT: list[tuple[str | bytes, str | bytes, str]] = [
    ("text", "other", "the body is other, not text"),
    (b"\xff\x00", b"\xff", "the body has other bytes (1, not 2)"),
    ("text", "5", "the body is 5, not text"),
    ("0.5", "0.51", "the response is 0.51, not 0.5"),
    ("100001", "100002", "the response is 100002, not 100001"),  # whole numbers are names and counts
    ("1", "true", "the response is true, not 1"),
    ("0.5", "null", "the response is null, not 0.5"),
    ("[1, 2]", "[1]", "the response has 1 items, not 2"),
    ('{"a": {"b": [1, 2]}}', '{"a": {"b": [1, 3]}}', "a.b[1] is 3, not 2"),
    ('{"a": 1.0}', '{"b": 5.0}', "a is only in one of the responses"),
    ('{"a": 0.5, "b": 0.3, "c": 0.2}', '{"a": 0.5, "b": 0.3, "d": 0.1}', "c is only in one of the responses"),
    ('{"a": 0.9}', '{"a": 0.9, "b": 0.1}', "b is only in one of the responses"),
    ("[]", "{}", "the response is {}, not []"),
    ("0.5", "1" + "0" * 400, "the response is 1000"),
    ("[" * 50_000 + "]" * 50_000, "[" * 50_000 + " ]" * 50_000, ""),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_is_alike(one: str | bytes, other: str | bytes):
    assert find_differences(result(one), result(other)) == []
    assert find_differences(result(other), result(one)) == []


@pytest.mark.parametrize(("one", "other", "said"), DIFFERENT)
def test_what_is_different(one: str | bytes, other: str | bytes, said: str):
    assert find_differences(result(one), result(other))[0].startswith(said)
    assert find_differences(result(other), result(one))


def test_more_than_the_body_is_compared():
    one = result("x", content_type="text/plain")
    for other, facts in (
        (result("x", status=400, content_type="text/plain"), {"status", "400", "200"}),
        (result("x", reset=True, content_type="text/plain"), {"connection", "reset"}),
        (result("x"), {"content", "type", "missing", "text/plain"}),
    ):
        (found,) = find_differences(one, other)
        assert facts <= set(found.replace(",", "").split())


def test_the_tolerance_is_the_callers():
    assert find_differences(result("0.5"), result("0.58"), 0.1) == []
    assert find_differences(result("0.5"), result("0.5001"), 0.0) != []


def test_only_the_first_few_places_are_told():
    assert len(find_differences(result(json.dumps([0.0] * 100)), result(json.dumps([1.0] * 100)))) == 3


@pytest.mark.parametrize(
    ("one", "other", "largest"),
    [
        ("0.5", "0.75", 0.25),
        ('{"a": [1, 5]}', '{"a": [1, 2], "b": 9}', 3),
        ("[NaN]", "[1]", None),
        ("text", "text", None),
        ("[1]", "[1]", 0),
        ('{"a": 1}', '{"b": 1}', None),
        ("1", "1" + "0" * 400, math.inf),
    ],
)
def test_how_far_numbers_lie_apart(one: str, other: str, largest: float | None):
    assert largest_difference(result(one), result(other)) == largest


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(value=VALUES, other=VALUES)
def test_an_answer_is_like_itself_and_likeness_goes_both_ways(value: Any, other: Any):
    one, two = result(json.dumps(value)), result(json.dumps(other))
    assert find_differences(one, result(json.dumps(value, indent=1))) == []
    assert bool(find_differences(one, two)) == bool(find_differences(two, one))
    assert compare(one, two).likeness == compare(two, one).likeness


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ('{"cat": 0.9, "dog": 0.1}', "cat"),
        ('{"label": "cat", "score": 0.9}', "cat"),
        ('{"prediction": "cat", "took": 3, "also": "x"}', "cat"),
        ('"cat"', "cat"),
        ('["cat", "dog"]', "cat, dog"),
        ('[{"cat": [1, 2, 3, 4], "score": 0.9}, {"dog": [1, 2, 3, 4], "score": 0.8}]', "cat, dog"),
        ("cat", None),
        ("[0.1, 0.9]", None),
        ("{}", None),
        ("[]", None),
        ('[{"cat": "x"}, 5]', None),
        ('{"on": true}', None),
    ],
)
def test_what_an_answer_calls_its_input(body: str, label: str | None):
    assert label_of(result(body)) == label


@pytest.mark.parametrize(
    ("one", "other", "likeness"),
    [
        ('{"cat": 0.9, "dog": 0.1}', '{"cat": 0.9, "dog": 0.1}', Similarity.EXACT),
        ('{"cat": 0.9, "dog": 0.1}', '{"cat": 0.9001, "dog": 0.0999}', Similarity.ROUNDED),
        ('{"cat": 0.9, "dog": 0.1}', '{"cat": 0.7, "dog": 0.3}', Similarity.LABEL),
        ('{"cat": 0.9, "dog": 0.1}', '{"cat": 0.2, "dog": 0.8}', Similarity.DIFFERENT),
        ("[0.1]", "[0.2]", Similarity.DIFFERENT),
        ("text", "other", Similarity.DIFFERENT),
    ],
)
def test_how_much_alike_two_answers_are(one: str, other: str, likeness: Similarity):
    assert compare(result(one), result(other)).likeness is likeness


def test_another_status_is_the_least_alike():
    compared = compare(result("x"), result("x", status=503))
    assert (compared.likeness, compared.statuses, compared.alike) == (Similarity.STATUS, (200, 503), False)
