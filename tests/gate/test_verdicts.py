"""How checks add up to a verdict, and findings to a check."""

from typing import Any

import pytest

from marpack.errors import ExitCode, NotAnArchiveError
from marpack.findings import Finding, Severity
from marpack.gate.verdicts import (
    CheckResult,
    GateReport,
    GateVerdict,
    Verdict,
    judge,
    pluralize,
    problem_of,
    skip,
)

NOTE = Finding(code="fyi", severity=Severity.NOTE, message="by the way")
WARNING = Finding(code="odd", severity=Severity.WARNING, message="it is odd")
BAD = Finding(code="bad", severity=Severity.ERROR, message="it is bad", where="x", hint="mend it")
WORSE = Finding(code="worse", severity=Severity.ERROR, message="it is worse")


def test_the_outcome_of_a_check():
    assert (judge("fine", [NOTE]).verdict, judge("fine", [NOTE]).findings) == (Verdict.PASSED, (NOTE,))
    assert (skip("no samples").verdict, skip("no samples").reason) == (Verdict.SKIPPED, "no samples")
    assert judge("fine", (NOTE, WARNING)).reason == "fine"
    outcome = judge("fine", (NOTE, BAD))
    assert (outcome.verdict, outcome.reason, outcome.findings) == (Verdict.FAILED, "it is bad", (NOTE, BAD))
    assert judge("", [BAD, WORSE]).reason == "it is bad (and 1 more)"
    assert judge("", [WORSE, BAD, BAD]).reason == "it is worse (and 2 more)"


def test_an_error_is_a_problem_with_its_place():
    error = NotAnArchiveError("no zip", where="x.mar", hint="build it")
    assert problem_of(error) == Finding(
        code="not-an-archive", severity=Severity.ERROR, message="no zip", where="x.mar", hint="build it"
    )


def done(verdict: Verdict, reason: str = "", **values: Any) -> CheckResult:
    return CheckResult(name="x", title="x", verdict=verdict, reason=reason, **values)


def report(*checks: CheckResult, interrupted: bool = False) -> GateReport:
    given: dict[str, Any] = {
        "archive": "a.mar",
        "content_digest": None,
        "target": "torchserve",
        "verdict": GateVerdict.REFUSED,
    }
    return GateReport(checks=checks, seconds=1.0, interrupted=interrupted, deployable=False, **given)


LIGHT = done(Verdict.FAILED, severity=Severity.WARNING, exit_code=ExitCode.ARCHIVE)
SHORT = done(Verdict.FAILED)
HANDLER = done(Verdict.FAILED, exit_code=ExitCode.HANDLER)


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ((), ExitCode.OK),
        ((done(Verdict.PASSED), done(Verdict.SKIPPED)), ExitCode.OK),
        ((LIGHT,), ExitCode.OK),
        ((LIGHT, SHORT), ExitCode.SHORT),
        ((HANDLER, SHORT), ExitCode.HANDLER),
        ((SHORT, HANDLER), ExitCode.SHORT),
    ],
)
def test_the_first_failure_that_counts_is_the_exit_code(checks: tuple[CheckResult, ...], code: ExitCode):
    assert report(*checks).exit_code is code
    assert report(*checks, interrupted=True).exit_code is ExitCode.INTERRUPTED


def test_one_is_no_plural():
    assert [pluralize(count, "sample") for count in (0, 1, 2)] == ["0 samples", "1 sample", "2 samples"]


def test_checks_are_counted_by_how_they_ended():
    left_out = done(Verdict.SKIPPED, "left out")
    counts = report(SHORT, left_out, done(Verdict.PASSED), LIGHT, done(Verdict.SKIPPED, "no samples"), left_out).counts
    assert list(counts.items()) == [("passed", 1), ("failed", 2), ("skipped", 1), ("left out", 2)]
    assert report(SHORT).counts == {"failed": 1}
