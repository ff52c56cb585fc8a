"""The handler needs nothing but its archive and its packages, in all that the checks asked of it."""

from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from marpack.findings import Severity
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, judged, problem
from marpack.project.schema import Allowance
from marpack.protocol.messages import Access, Touched
from marpack.runner.results import needs_of

_KEYS = {Access.RESOLVE: Access.CONNECT}  # kind → its key in marpack.yaml, where that is another


def run(candidate: Candidate) -> CheckOutcome:
    """Look at what was touched since the model began to load; what marpack.yaml allows is noted."""
    sample_runner, allowance = candidate.sample_runner, candidate.allowance
    sample_runner.ask(sample_runner.answered[:1])  # with its answer comes what threads have touched since the last one
    touched = sample_runner.pool.touched
    allowed = {each for each in touched if is_allowed(each, allowance)}
    problems = [
        problem("not-hermetic", _sentence(need), hint=_hint(candidate, need)) for need in needs_of(touched - allowed)
    ]
    notes = [problem("allowed-need", f"{_sentence(need)}, as marpack.yaml allows") for need in needs_of(allowed)]
    lighter = (replace(note, severity=Severity.NOTE) for note in notes)
    where = "in a network namespace of its own"
    if not sample_runner.pool.is_offline:
        why = "marpack.yaml allows some" if allowance.connect else "this user or system may not"
        where = f"native code's connections were not cut off: {why}"
    return judged((*problems, *lighter), f"as Python tells; {where}")


def is_allowed(touched: Touched, allowance: Allowance) -> bool:
    """Say whether a pattern of its kind is for this, or for its folder, its host, or its bare name."""
    kind, target = touched.kind, touched.target
    patterns: list[str] = getattr(allowance, _KEYS.get(kind, kind), [])
    spellings = {target}
    if kind in (Access.READ, Access.WRITE):
        folders = [str(Path(each).expanduser()) for each in patterns]
        patterns = [*folders, *(f"{folder}/*" for folder in folders)]
    elif kind is Access.RESOLVE:
        patterns = [each.partition(":")[0] for each in patterns]
    elif " -c " not in target:  # of a shell the whole command counts
        has_port = kind in (Access.CONNECT, Access.LISTEN)
        spellings.add(target.rpartition(":")[0] if has_port else target.rpartition("/")[2])
    return any(fnmatchcase(spelling, pattern) for spelling in spellings for pattern in patterns)


def _sentence(need: Touched) -> str:
    return f"it touches {need.target} ({need.kind}, in {need.stage})"


def _hint(candidate: Candidate, need: Touched) -> str | None:
    if need.kind is Access.UNKNOWN:
        return None
    pack = "pack it, or " if need.kind is Access.READ else ""
    whose = "marpack.yaml" if candidate.resolved.project else "its project's marpack.yaml, and check the project"
    return f"{pack}allow it in {whose}: hermetic: {_KEYS.get(need.kind, need.kind)}: […]"
