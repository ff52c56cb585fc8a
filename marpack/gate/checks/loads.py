"""The handler is imported, constructed and initialised."""

from marpack.errors import WorkerError
from marpack.findings import Finding, Severity
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem
from marpack.worker.client import LoadError

# What the server skips in silence and the author did not ask for.
_GRAVE = {"not-compiled", "compile-failed", "backend-missing"}


def run(subject: Subject) -> Outcome:
    """Start a worker with the model in it; what the server would skip in silence fails, too."""
    try:
        pool = subject.pool
    except LoadError as error:
        frames = [frame for frame in error.trouble.frames if frame.user]
        where = f"{frames[-1].file}:{frames[-1].line}" if frames else None
        return failed(problem("does-not-load", error.what, where=where, hint=error.hint))
    except WorkerError as error:
        return failed(problem("does-not-load", error.what, hint=error.hint))
    loaded = pool.loads[0]
    notes = [
        Finding(
            code=trouble.kind,
            severity=Severity.ERROR if trouble.kind in _GRAVE else Severity.NOTE,
            message=trouble.message,
            hint=trouble.hint,
        )
        for trouble in loaded.troubles
    ]
    grave = [note for note in notes if note.severity is Severity.ERROR]
    if grave:
        return Outcome(reason=grave[0].message, findings=tuple(notes))
    return passed(f"{loaded.handler} in {sum(loaded.stages.values()) / 1000:.2f} s", *notes)
