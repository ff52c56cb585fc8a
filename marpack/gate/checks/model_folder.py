"""The handler leaves the model folder as it found it: on a server it is shared by workers, and may be read-only."""

from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem


def run(subject: Subject) -> Outcome:
    """Compare the folder with what it was before the handler was loaded."""
    subject.pool  # noqa: B018 - loading is what might write
    written = subject.written()
    problems = [
        problem(
            "model-folder-written",
            f"{name} was written, changed or removed in the model folder",
            hint="write to a temporary folder (tempfile) instead",
        )
        for name in written
    ]
    return failed(*problems[:10]) if problems else passed("as it was")
