"""The handler leaves the model folder as it found it: on a server it is shared by workers, and may be read-only."""

from marpack.gate.candidate import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem

_MOST = 10  # problems told
_HINT = "write to a temporary folder (tempfile) instead"


def run(subject: Subject) -> Outcome:
    """Compare the folder with the archive, and with what it was before the handler was loaded."""
    witness = subject.witness
    _ = witness.pool, witness.answered  # loading and answering are what might write
    problems = [
        problem("model-folder-written", f"{name} was written, changed or removed in the model folder", hint=_HINT)
        for name in witness.written()
    ]
    return failed(*problems[:_MOST]) if problems else passed("as it was")
