"""The archive compared with gives the same answers."""

from marpack.gate.against import compare, nothing_shared
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, counted, failed, passed, problem

_HINT = "where they are meant to differ: --skip alike"


def run(candidate: Candidate) -> CheckOutcome:
    """Hold each sample's answer against the other archive's; one must be a 2xx, or they are alike in nothing else."""
    runner, others = candidate.sample_runner, candidate.old_answers
    compared = [
        compare(others[each.name], runner.alone(each), candidate.options.tolerance) for each in candidate.samples
    ]
    different = [each for each in compared if not each.alike]
    if different:
        return failed(*[problem("differs", f"{each.input}: {each.differences[0]}", hint=_HINT) for each in different])
    if not candidate.answered_by_both:
        return failed(nothing_shared())
    return passed(f"{counted(len(compared), 'request')} answered as by {candidate.old.source}")
