"""The handler is imported, constructed and initialised."""

from msgspec.structs import replace

from marpack.errors import TorchrunError, WorkerError
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, error_problem, failed, judged, problem
from marpack.protocol.messages import Trouble
from marpack.runner.client import LoadError
from marpack.runner.session import misplaced

# What the server skips in silence and the author did not ask for.
_GRAVE = {"not-compiled", "compile-failed", "backend-missing"}


def run(candidate: Candidate) -> CheckOutcome:
    """Start a worker with the model in it; what the server would skip in silence fails, too."""
    try:
        loaded = candidate.sample_runner.pool.loads[0]
    except TorchrunError as error:  # no fault of the archive's, and no proof either
        found = replace(error_problem(error), severity=Severity.WARNING)
        return CheckOutcome(reason=error.what, findings=(found,), skipped=True)
    except LoadError as error:
        found = problem("does-not-load", error.what, where=candidate.place(error.trouble.frames), hint=error.hint)
        if error.trouble.only_here:  # no fault of the archive's, and no proof either
            found = replace(found, code="lacking-here", severity=Severity.WARNING)
            return CheckOutcome(reason="the model cannot be loaded here", findings=(found,), skipped=True)
        return failed(found)
    except WorkerError as error:
        return failed(problem("does-not-load", error.what, hint=error.hint))
    elsewhere = misplaced(candidate.options.device.name, loaded.device)
    reported = (*map(_told, loaded.troubles), *([elsewhere] if elsewhere else []))
    device = f" on {loaded.device}" if loaded.device else ""
    return judged(reported, f"{loaded.handler}{device}, in {_duration(sum(loaded.stages.values()))}")


def _duration(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"


def _told(trouble: Trouble) -> Finding:
    severity = Severity.ERROR if trouble.kind in _GRAVE else Severity.NOTE
    return Finding(code=trouble.kind, severity=severity, message=trouble.message, hint=trouble.hint)
