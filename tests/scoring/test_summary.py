"""What rows add up to is the same, whoever adds them up and in whatever order."""

import itertools

import pytest

from marpack.scoring.mapping import Failure
from marpack.scoring.plan import FailureExample, ScoredRows, ScoreTotals

INPUTS = ("b.csv", "a.csv")


def part(number: int, first: int, kinds: str) -> ScoredRows:
    """Return what a part adds up to whose rows failed of kinds by one letter; "." did not."""
    totals = ScoreTotals(INPUTS)
    failures = {place: Failure(kind, f"{kind} it is") for place, kind in enumerate(kinds) if kind != "."}
    totals.add_rows(number, first, len(kinds), failures)
    totals.parts.append(f"part-{number}-{first}")
    return totals.scored()


PARTS = (part(0, 0, "x..y"), part(0, 4, "yx.x"), part(1, 0, "xxxz"), part(1, 4, "...."))


@pytest.mark.parametrize("order", [*itertools.permutations(PARTS)])
def test_parts_may_come_in_any_order(order: tuple[ScoredRows, ...]) -> None:
    totals = ScoreTotals(INPUTS)
    for each in order:
        totals.add(each)
    summary = totals.summary((5, 1), 2.0)
    assert (summary.rows, summary.answered, summary.failed, summary.parts) == (16, 7, 9, 4)
    assert (summary.rows_before, summary.failed_before, summary.throughput) == (5, 1, 8.0)
    assert [(each.kind, each.rows) for each in summary.causes] == [("x", 6), ("y", 2), ("z", 1)]
    places = [(example.input, example.row) for example in summary.causes[0].examples]
    assert places == [("b.csv", 0), ("b.csv", 5), ("b.csv", 7)]
    assert summary.causes[2].examples == (FailureExample("a.csv", 3, "z it is"),)


def test_causes_as_frequent_as_each_other_are_in_the_order_of_their_rows() -> None:
    totals = ScoreTotals(INPUTS)
    totals.add(part(1, 0, "a"))
    totals.add(part(0, 3, "b"))
    assert [each.kind for each in totals.scored().causes] == ["b", "a"]


def test_kinds_that_are_too_many_are_one() -> None:
    totals = ScoreTotals(INPUTS)
    totals.add_rows(0, 0, 150, {row: Failure(str(row), "it failed") for row in range(150)})
    assert totals.scored().causes[0].kind == "other"
    assert (len(totals.scored().causes), totals.scored().causes[0].rows) == (101, 50)
