"""Answers are the same when asked again, and in another order."""

from marpack.gate.comparing import differences
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped


def run(subject: Subject) -> Outcome:
    """Ask every sample again, in reversed order."""
    if not subject.answered:
        return skipped("there is no sample with an answer to compare")
    again = list(reversed(subject.answered))
    problems = [
        problem("not-repeatable", f"{sample.name}, asked again: {sentence}", hint=_HINT)
        for sample, result in zip(again, subject.ask(again), strict=True)
        for sentence in differences(subject.alone(sample), result)[:1]
    ]
    return failed(*problems) if problems else passed(f"{len(again)} samples, asked again in reversed order")


_HINT = "keep nothing between requests, call model.eval(), and fix seeds"
