"""Answers are the same when asked again, in another order, and after other requests."""

from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, counted, failed, passed, problem, skipped

_HINT = (
    "keep nothing between requests, call model.eval(), fix seeds; if answers are meant to vary, "
    "set checks: {repeatable: warning} in marpack.yaml"
)


def run(candidate: Candidate) -> CheckOutcome:
    """Ask the samples again, in reversed order and in order, and count what the other checks came across."""
    sample_runner = candidate.sample_runner
    if not sample_runner.answered:
        return skipped("there is no sample with an answer to compare")
    again = sample_runner.comparable  # was asked in reversed order
    sample_runner.repeat(again)
    problems = [
        problem("not-repeatable", f"{name.removeprefix('MAR-INF/')}, asked again: {sentence}", hint=_HINT)
        for name, sentence in sample_runner.unsteady.items()
    ]
    return failed(*problems) if problems else passed(f"{counted(len(again), 'sample')}, each asked three times")
