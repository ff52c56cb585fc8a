"""Two ways of answering: each input's comparison as it comes, and what they add up to."""

import json
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from marpack.findings import Finding, Severity
from marpack.gate.compare import InputComparison, Similarity, Variant, VariantRunner
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input
from marpack.torchserve.http import Part, Request, Response


class Saying:
    """A pool that gives its answers in turn, each after so many seconds; an answer with a status is a failure."""

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


def test_both_ways_are_compared_input_by_input_and_added_up():
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


def test_what_was_stopped_early_counts_as_far_as_it_went():
    compared = runner(ONE, OTHER)
    assert isinstance(next(compared.run(inputs(4))), InputComparison)
    found = compared.comparison()
    assert (found.alike, len(found.results), found.largest) == (True, 1, 0.0)
    nothing = runner([], []).comparison()
    assert (nothing.alike, nothing.largest, nothing.sides[0].milliseconds) == (True, None, 0.0)


@pytest.mark.parametrize(("tolerance", "is_alike"), [(0.1, True), (0.0001, False)])
def test_alike_is_what_lies_within_the_tolerance(tolerance: float, is_alike: bool):
    compared = runner([(0.5, 0.0)], [(0.51, 0.0)], tolerance=tolerance)
    assert [done.alike for done in compared.run(inputs(1))] == [is_alike]
    assert (compared.comparison().alike, compared.comparison().tolerance) == (is_alike, tolerance)
