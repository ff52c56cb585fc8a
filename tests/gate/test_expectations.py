"""Expectations of a sample's response: met, missed and recorded."""

import json
from typing import Any

import msgspec
import pytest
import yaml
from gate.archives import result
from hypothesis import given
from hypothesis import strategies as st

from marpack.gate.compare import find_shortfalls
from marpack.gate.recording import expectation_of
from marpack.project.schema import Expectation, mistakes

CAT = '{"cat": 0.9, "dog": 0.1, "box": [1, 2, 3, 4], "alive": true, "name": null}'
# expectation, answer's body
MET: list[tuple[dict[str, Any], str | bytes]] = [
    ({}, "anything"),
    ({"status": 200}, "anything"),
    ({"body": "exactly"}, "exactly"),
    ({"body": ""}, ""),
    ({"text": "a part"}, "this is a part of it"),
    ({"text": {"contains": ["part", "this"]}}, "this is a part of it"),
    ({"text": {"regex": r"^this .* it$"}}, "this is a part of it"),
    ({"text": {"regex": r"p.rt", "contains": "of"}}, "this is a part of it"),
    ({"json": {"cat": 0.9}}, CAT),
    ({"json": {"cat": {"min": 0.5}}}, CAT),
    ({"json": {"cat": {"min": 0.9, "max": 0.9}}}, CAT),
    ({"json": {"cat": {"approx": 0.9}}}, CAT),
    ({"json": {"cat": {"approx": 0.8, "tolerance": 0.1001}}}, CAT),
    ({"json": {"box": [1, {"min": 1}, 3, {"approx": 4}]}}, CAT),
    ({"json": {"alive": True, "name": None}}, CAT),
    ({"json": [{"cat": {"min": 0.5}}, 2]}, f"[{CAT}, 2]"),
    ({"json": {"min": 1}}, "2"),
    ({"json": {"min": {"max": 3}}}, '{"min": 2}'),
    ({"json": {"min": 1}}, '{"min": 1, "max": 2}'),
    ({"json": 5}, "5.0"),
    ({"json": {"approx": 1e20}}, "100000000000000000000"),
    ({"json": None}, "null"),
    ({"json": {"max": 5}}, "-Infinity"),
    ({"shape": [2, 3]}, "[[1, 2, 3], [4, 5, 6]]"),
    ({"shape": [2]}, "[[1], [2, 3]]"),
    ({"shape": [2]}, "[[1], 2]"),
    ({"shape": [0]}, "[]"),
    ({"shape": [1, 2]}, "[[{}, {}]]"),
    ({"shape": []}, "5"),
    ({"text": "�"}, b"\x00\xff"),
    ({"json": [[1, 2]], "shape": [1, 2], "text": "[["}, "[[1, 2]]"),
]
# expectation, answer's body, what is said
MISSED: list[Any] = [
    ({"status": 404}, "", "the status is 200, expected 404"),
    ({"body": "exactly"}, "exactly ", "the body is exactly, expected exactly exactly"),
    ({"text": "other"}, "this", "the body does not contain 'other': this"),
    ({"text": {"contains": ["this", "that"]}}, "this", "the body does not contain 'that': this"),
    ({"text": {"regex": "^h"}}, "this", "the regular expression '^h' is not in the body: this"),
    ({"text": {"regex": "("}}, "this", "the regular expression '(' does not compile: missing )"),
    pytest.param({"text": {"regex": "(a+)+$"}}, "a" * 40 + "!", "takes over 5 s", marks=pytest.mark.slow),
    ({"json": {"cat": {"min": 0.95}}}, CAT, "cat is 0.9, expected at least 0.95"),
    ({"json": {"cat": {"max": 0.5}}}, CAT, "cat is 0.9, expected at most 0.5"),
    ({"json": {"cat": {"approx": 0.8, "tolerance": 0.05}}}, CAT, "cat is 0.9, expected 0.8 ± 0.05"),
    ({"json": {"bird": 1}}, CAT, "bird is missing; the keys are cat, dog, box, alive, name"),
    ({"json": {"box": [1, 2]}}, CAT, "box is 4 items, expected a list of 2"),
    ({"json": {"box": [1, 2, 3, 5]}}, CAT, "box[3] is 4, expected 5"),
    ({"json": {"alive": 1}}, CAT, "alive is true, expected 1"),
    ({"json": {"alive": {"min": 0}}}, CAT, "alive is true, expected a number"),
    ({"json": {"cat": {"min": "0.5"}}}, CAT, "cat is 0.9, expected an object"),
    ({"json": {"cat": True}}, CAT, "cat is 0.9, expected true"),
    ({"json": {"name": {"deeper": 1}}}, CAT, "name is null, expected an object"),
    ({"json": {"min": 1}}, "NaN", "the body is NaN, expected at least 1"),
    ({"json": [1]}, '{"a": 1}', 'the body is {"a": 1}, expected a list of 1'),
    ({"json": {"a": 1}}, "no JSON", "the body is not JSON: no JSON"),
    ({"json": {"a": 1}}, "{}", "a is missing; the keys are none"),
    ({"shape": [3, 2]}, "[[1, 2, 3], [4, 5, 6]]", "the shape is [2, 3], expected [3, 2]"),
    ({"shape": [2, 3]}, "text", "the body is not JSON: text"),
    ({"json": {"approx": 1.5}}, "1" + "0" * 400, "expected 1.5 ± 1.5e-06"),
    ({"json": 1}, "[" * 100_000, "the body is not JSON"),
    ({"body": "AP8="}, b"\x00\xff", ""),
]


def expected(told: dict[str, Any]) -> Expectation:
    """Return an expectation as it comes out of an archive: through YAML and JSON."""
    return msgspec.convert(json.loads(json.dumps(yaml.safe_load(yaml.safe_dump(told)))), Expectation)


@pytest.mark.parametrize(("told", "body"), MET)
def test_a_response_that_meets_its_expectation(told: dict[str, Any], body: str | bytes):
    assert find_shortfalls(expected(told), result(body)) == []


@pytest.mark.parametrize(("told", "body", "said"), MISSED)
def test_a_response_that_misses_its_expectation(told: dict[str, Any], body: str | bytes, said: str):
    (sentence,) = find_shortfalls(expected(told), result(body))
    assert said in sentence
    assert len(sentence) < 300
    every = {"status": 201, "body": "x", "text": "y", "json": {"a": 1}, "shape": [1]}
    assert len(find_shortfalls(expected(every), result('{"b": 1}'))) == 5


@pytest.mark.parametrize("values", [{"status": 300}, {"status": 503}, {"status": 0}, {"reset": True}])
def test_without_an_expectation_only_a_complete_2xx_passes(values: dict[str, Any]):
    assert len(find_shortfalls(Expectation(), result("x", **values))) == 1
    same = find_shortfalls(Expectation(status=values.get("status", 200)), result("x", **values))
    assert len(same) == ("reset" in values)


def deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


# answer's body, what is recorded
RECORDED: list[tuple[str | bytes, dict[str, Any]]] = [
    ("hello", {"body": "hello"}),
    ("", {"body": ""}),
    ("two\nlines\n", {"body": "two\nlines\n"}),
    ("word " * 100, {"text": {"contains": ("word " * 12).strip()}}),
    (" \n" * 200, {}),
    (b"\x89PNG\xff", {}),
    ("a\0b", {}),
    ("0.123456789", {"json": {"approx": 0.123457, "tolerance": 0.001}}),
    ("264.123", {"json": {"approx": 264.123, "tolerance": 0.3}}),
    ('{"cat": 0.25, "n": 3, "ok": true}', {"json": {"cat": {"approx": 0.25, "tolerance": 0.001}, "n": 3, "ok": True}}),
    ('{"a": NaN, "b": 1}', {"json": {"b": 1}}),
    ('{"a": {"min": "5"}, "b": 1}', {"json": {"b": 1}}),
    ("[NaN, 1]", {"shape": [2]}),
    (json.dumps([[0.5] * 10] * 10), {"shape": [10, 10]}),
    (json.dumps({"big": [1] * 100, "n": 1}), {"json": {"n": 1}}),
    ("1" + "0" * 30, {"json": {"approx": 1e30, "tolerance": 1e27}}),
    # the limits of an exact expectation
    ("x" * 200, {"body": "x" * 200}),
    ("x" * 201, {"text": {"contains": "x" * 60}}),
    ("\n  first  \n" + "x" * 200, {"text": {"contains": "first"}}),
    (json.dumps([1] * 24), {"json": [1] * 24}),
    (json.dumps([1] * 25), {"shape": [25]}),
    (json.dumps({str(key): key for key in range(24)}), {"json": {str(key): key for key in range(24)}}),
    (json.dumps({str(key): key for key in range(25)}), {"json": {str(key): key for key in range(24)}}),
    (json.dumps({"list": [1] * 24, "n": 1}), {"json": {"n": 1}}),
    (json.dumps({"a": {"b": [1] * 25}}), {"json": {}}),
    (json.dumps(deep(1, 8)), {"json": deep(1, 8)}),
    (json.dumps(deep(1, 9)), {"shape": [1] * 9}),
    (json.dumps(deep(list(range(25)), 7)), {"shape": [1] * 7 + [25]}),
    (json.dumps([]), {"json": []}),
    (str((1 << 63) - 1), {"json": (1 << 63) - 1}),
    (str(-(1 << 63)), {"json": -(1 << 63)}),
    (str(1 << 63), {"json": {"approx": 9.22337e18, "tolerance": 9e15}}),
    (str(-(1 << 63) - 1), {"json": {"approx": -9.22337e18, "tolerance": 9e15}}),
    ('{"\\ud800": 1, "a": "\\udfff", "b": "\\ud7ff\\ue000"}', {"json": {"b": "\ud7ff\ue000"}}),
    ('{"min": 1, "max": 2}', {}),  # it would be read as a range
    ('{"min": 1, "other": 2}', {"json": {"min": 1, "other": 2}}),
]


@pytest.mark.parametrize(("body", "told"), RECORDED)
def test_the_expectation_that_is_recorded_of_a_response(body: str | bytes, told: dict[str, Any]):
    found = expectation_of(result(body))
    assert msgspec.to_builtins(found) == {"status": 200} | told


def test_a_response_without_a_status_of_http_is_not_recorded():
    assert expectation_of(result("x", reset=True)) is None
    recorded = [expectation_of(result("x", status=status)) is not None for status in (0, 99, 100, 499, 599, 600)]
    assert recorded == [False, False, True, True, True, False]


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**40), 10**40), st.floats(), st.text(max_size=30),
    st.text(st.characters(categories=["Cs", "Cc", "Lu"]), max_size=5),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(["min", "approx"]), inner, max_size=6)
    ),
    max_leaves=40,
)
BODIES = VALUES.map(json.dumps) | st.text(max_size=400) | st.binary(max_size=50)


@given(body=BODIES, status=st.integers(200, 299) | st.integers(100, 599))
def test_an_answer_meets_what_is_recorded_of_it(body: str | bytes, status: int):
    answer = result(body, status=status)
    found = expectation_of(answer)
    assert found is not None
    assert find_shortfalls(found, answer) == []
    assert find_shortfalls(expected(msgspec.to_builtins(found)), answer) == []
    assert list(mistakes(found)) == []  # and the project that holds it can be built


@given(value=st.recursive(st.floats(-1e6, 1e6), lambda inner: st.lists(inner, max_size=4), max_leaves=20))
def test_a_rounded_answer_meets_it_too(value: Any):
    def rounded(item: Any) -> Any:
        return [rounded(inner) for inner in item] if isinstance(item, list) else round(item, 5) * (1 + 1e-4)

    found = expectation_of(result(json.dumps(value)))
    assert find_shortfalls(found, result(json.dumps(rounded(value)))) == []
