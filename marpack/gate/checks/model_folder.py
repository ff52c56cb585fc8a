"""The handler leaves the model folder as it found it: on a server it is shared by workers, and may be read-only."""

from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, failed, passed, problem

_MAX_COUNT = 10  # problems told
_HINT = "write to a temporary folder (tempfile) instead"


def run(candidate: Candidate) -> CheckOutcome:
    """Compare the folder with the archive, and with what it was before the handler was loaded."""
    sample_runner = candidate.sample_runner
    _ = sample_runner.pool, sample_runner.answered  # loading and answering are what might write
    problems = [
        problem("model-folder-written", f"{name} was written, changed or removed in the model folder", hint=_HINT)
        for name in sample_runner.written()
    ]
    return failed(*problems[:_MAX_COUNT]) if problems else passed("as it was")
