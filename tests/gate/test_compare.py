"""Whether two responses agree: bodies of every kind, and two variants of a model."""

import io
import json
import math
from collections.abc import Iterable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gate.archives import result
from hypothesis import given
from hypothesis import strategies as st
from lazy import torch

from marpack.findings import Finding, Severity
from marpack.gate.compare import (
    NOTHING,
    VariantRunner,
    compare,
    find_differences,
    label_of,
    largest_difference,
    value_of,
)
from marpack.gate.verdicts import InputComparison, Similarity, Variant
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input
from marpack.torchserve.http import Part, Request, Response

ALIKE: list[tuple[str | bytes, str | bytes]] = [
    ("text", "text"),
    (b"\xff\x00", b"\xff\x00"),
    ("0.5", "0.5004"),
    ("1e9", "1.0005e9"),
    ("[1, 2.0]", "[1, 2.0001]"),
    ('{"a": 0.9, "b": 0.1}', '{"b": 0.1, "a": 0.9}'),
    ("5", "5.0"),
    # of a top-k, the last one may change places by rounding
    ('{"a": 0.5, "b": 0.3, "c": 0.1}', '{"a": 0.5, "b": 0.3, "d": 0.1004}'),
    ('{"a": 0.9995, "b": 0.0003}', '{"a": 0.9995, "c": 0.0002}'),
    ("[" * 300 + "]" * 300, "[" * 300 + " ]" * 300),
]
DIFFERENT: list[tuple[str | bytes, str | bytes, str]] = [
    ("text", "other", "the body is other, not text"),
    (b"\xff\x00", b"\xff", "the body has other bytes (1, not 2)"),
    ("0.5", "0.51", "the response is 0.51, not 0.5"),
    ("100001", "100002", "the response is 100002, not 100001"),  # whole numbers are names and counts
    ("1", "true", "the response is true, not 1"),
    ("0.5", "null", "the response is null, not 0.5"),
    ("[1, 2]", "[1]", "the response has 1 item, not 2"),
    ('{"a": {"b": [1, 2]}}', '{"a": {"b": [1, 3]}}', "a.b[1] is 3, not 2"),
    ('{"a": 1.0}', '{"b": 5.0}', "a is only in one of the responses"),
    ('{"a": 0.5, "b": 0.3, "c": 0.2}', '{"a": 0.5, "b": 0.3, "d": 0.1}', "c is only in one of the responses"),
    ("0.5", "1" + "0" * 400, "the response is 1000"),
    ("[" * 50_000 + "]" * 50_000, "[" * 50_000 + " ]" * 50_000, ""),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_equal_responses(one: str | bytes, other: str | bytes):
    assert find_differences(result(one), result(other)) == []
    assert find_differences(result(other), result(one)) == []


@pytest.mark.parametrize(("one", "other", "said"), DIFFERENT)
def test_different_responses(one: str | bytes, other: str | bytes, said: str):
    assert find_differences(result(one), result(other))[0].startswith(said)
    assert find_differences(result(other), result(one))


def test_status_type_and_reset_are_compared_within_the_given_tolerance():
    for one, other in (('{"cat": 0.9, "dog": 0.1}', '{"cat": 0.2, "dog": 0.8}'), ("[0.1]", "[0.2]"), ("text", "other")):
        assert compare(result(one), result(other)).likeness is Similarity.DIFFERENT
    assert find_differences(result("0.5"), result("0.58"), 0.1) == []
    assert find_differences(result("0.5"), result("0.5001"), 0.0) != []
    assert len(find_differences(result(json.dumps([0.0] * 100)), result(json.dumps([1.0] * 100)))) == 3
    for response, facts in (
        (result("x", status=400, content_type="text/plain"), {"status", "400", "200"}),
        (result("x", reset=True, content_type="text/plain"), {"connection", "reset"}),
        (result("x"), {"content", "type", "missing", "text/plain"}),
    ):
        (found,) = find_differences(result("x", content_type="text/plain"), response)
        assert facts <= set(found.replace(",", "").split())


@pytest.mark.parametrize(
    ("one", "other", "largest"),
    [
        ("0.5", "0.75", 0.25),
        ('{"a": [1, 5]}', '{"a": [1, 2], "b": 9}', 3),
        ("[NaN]", "[1]", None),
        ("[1]", "[1]", 0),
        ('{"a": 1}', '{"b": 1}', None),
        ("1", "1" + "0" * 400, math.inf),
    ],
)
def test_the_largest_difference_of_numbers(one: str, other: str, largest: float | None):
    assert largest_difference(result(one), result(other)) == largest


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(value=VALUES, other=VALUES)
def test_a_response_equals_itself_and_comparison_is_symmetric(value: Any, other: Any):
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
        ("[0.1, 0.9]", None),
        ("[]", None),
        ('[{"cat": "x"}, 5]', None),
        ('{"on": true}', None),
    ],
)
def test_the_label_of_a_response(body: str, label: str | None):
    assert label_of(result(body)) == label


class Saying:
    """A pool with given responses and their seconds; a response with a status is a failure."""

    def __init__(self, *answers: tuple[Any, float]) -> None:
        self.answers = answers

    def outcomes(self, batches: Iterable[tuple[Request, ...]]) -> Iterator[BatchResult]:
        for (value, seconds), _ in zip(self.answers, batches, strict=False):
            status, body = value if isinstance(value, tuple) else (200, json.dumps(value))
            yield BatchResult(responses=(Response(status=status, body=body.encode()),), seconds=seconds)


def session(name: str, *answers: tuple[Any, float]) -> Any:
    loaded, resolved = SimpleNamespace(handler=f"{name}:handle", device="cpu"), SimpleNamespace(path=f"{name}.mar")
    return SimpleNamespace(pool=Saying(*answers), loaded=loaded, resolved=resolved, content_digest=f"sha256:{name}")


def side(session: str, name: str, milliseconds: float) -> Variant:
    told = {"archive": f"{session}.mar", "content_digest": f"sha256:{session}", "handler": f"{session}:handle"}
    return Variant(name=name, device="cpu", milliseconds=milliseconds, **told)


def runner(one: list[tuple[Any, float]], other: list[tuple[Any, float]], **more: Any) -> VariantRunner:
    return VariantRunner(session("one", *one), session("other", *other), ("1", "2"), **more)


def inputs(count: int) -> list[Input]:
    return [Input(f"in{number}", Request(id=str(number), parts=(Part("body", b""),))) for number in range(count)]


ONE = [({"cat": 0.9, "dog": 0.1}, 0.001), ({"cat": 0.9}, 0.003), (0.5, 0.0021234), ("x", 1.0)]
OTHER = [({"cat": 0.9, "dog": 0.1}, 0.5), ({"cat": 0.7}, 0.25), (0.5004, 0.125), ((503, "no"), 0.0)]


def test_two_variants_are_compared_input_by_input_and_summed_up():
    compared = runner(ONE, OTHER)
    kinds = [(done.input, done.likeness, done.labels) for done in compared.run(inputs(4))]
    assert kinds == [
        ("in0", Similarity.EXACT, ("cat", "cat")),
        ("in1", Similarity.LABEL, ("cat", "cat")),
        ("in2", Similarity.ROUNDED, (None, None)),
        ("in3", Similarity.STATUS, ("x", None)),
    ]
    finding = Finding(code="a", severity=Severity.NOTE, message="b")
    found = compared.comparison(findings=(finding,), interrupted=True)
    assert found.counts == {"exact": 1, "rounded": 1, "label": 1, "different": 0, "status": 1}
    assert (found.alike, found.largest, found.interrupted) == (False, pytest.approx(0.2), True)
    assert (found.findings, found.tolerance) == ((finding,), 1e-3)
    assert [done.input for done in found.results] == ["in0", "in1", "in2", "in3"]
    assert found.sides == (side("one", "1", 2.562), side("other", "2", 187.5))
    compared = runner(ONE, OTHER)
    assert isinstance(next(compared.run(inputs(4))), InputComparison)
    found = compared.comparison()  # stopped after the first input
    assert (found.alike, len(found.results), found.largest) == (True, 1, 0.0)
    nothing = runner([], []).comparison()
    assert (nothing.alike, nothing.largest, nothing.sides[0].milliseconds) == (True, None, 0.0)


@cache
def honest() -> tuple[bytes, bytes]:
    return saved(torch.arange(3.0)), npy(np.arange(3.0))


def saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "i", "q", "e", "f", "d", ">f", ">i"])
def test_the_numbers_of_an_array_and_a_tensor(dtype: str):
    array = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    expected = {"shape": [2, 3], "numbers": array.ravel().tolist()}
    assert value_of(result(npy(array))) == expected
    if dtype[0] != ">":
        assert value_of(result(saved(torch.from_numpy(array)))) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"text",
        b"\xff\xfe",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x01\x00\x06\x00[1, 2]",
        npy(np.array([1.0]))[:-1],
        npy(np.array(["text"])),
        npy(np.array([1j])),
        npy(np.zeros(1)).replace(b"(1,)", b"(9" + b"9" * 18 + b",)"),
        b"PK\x03\x04",
        b"[" * 100_000,
    ],
)
def test_other_bytes_have_no_value(raw: bytes):
    assert value_of(result(raw)) is NOTHING


def header(text: str, version: bytes = b"\1\0") -> bytes:
    """Return an array's file with any text as its header."""
    encoded = text.encode("latin-1")
    return b"\x93NUMPY" + version + len(encoded).to_bytes(2 if version == b"\1\0" else 4, "little") + encoded


def described(descr: str, shape: str, rest: str = "") -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}{rest}}}\n")


HOSTILE = [
    described("'|V0'", "(1000000000000,)"),  # takes no bytes, and has a trillion values
    described("'|O'", "(1,)") + b"\x80\x04N.",
    described("'<f8'", f"({1 << 40},)"),
    described("'<f8'", f"({1 << 62}, 4)"),
    described("'<f8'", f"({1 << 70},)"),
    described("'<f8'", "(-1,)"),
    described("'<f8'", "(True, 'x')"),
    described("'<f16'", "(1,)") + bytes(16),
    described("[('a', '<f8')]", "(1,)") + bytes(8),
    described("'nothing'", "(1,)"),
    described("'<f8'", "(1L,)") + bytes(8)[1:],  # of Python 2, and cut
    described("'<f8'", "(1,)", ", 'more': 1"),
    header("(" * 9_000),
    header("{'descr': " + "[" * 5_000),
    header("x" * 60_000),
    header("'", b"\1\0"),
    header("{}", b"\3\0"),
    header("{}", b"\7\0"),
    header("", b"\2\0"),
]


def test_hostile_headers_of_arrays_have_no_value():
    for raw in HOSTILE:
        assert value_of(result(raw)) is NOTHING, raw[:80]
    empty = value_of(result(described("'<f8'", "(1000000000000, 0)")))
    assert empty == {"shape": [1_000_000_000_000, 0], "numbers": []}


def test_other_files_of_torch_have_no_value():
    assert value_of(result(saved(torch.zeros(3))[:200])) is NOTHING
    labelled = {"a": torch.zeros(1), "label": "cat"}
    for other in ({"a": 1}, labelled, torch.zeros(4, 4).t()[1:], torch.zeros(2, dtype=torch.bfloat16)):
        assert value_of(result(saved(other))) is NOTHING


@given(st.sampled_from([0, 1]), st.integers(0, 2000), st.binary(max_size=4))
def test_no_bytes_break_the_reader(form: int, place: int, other: bytes):
    raw = honest()[form]
    place %= len(raw)
    value_of(result(raw[:place] + other + raw[place + len(other) :]))
