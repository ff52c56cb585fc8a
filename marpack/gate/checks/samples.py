"""Every sample gets the answer that its author expects, every input given a 2xx."""

from msgspec.structs import replace

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.expectations import shortfalls
from marpack.gate.sample_runner import Sample
from marpack.gate.verdicts import CheckOutcome, Verdict, counted, judged, problem, skipped
from marpack.protocol.messages import Trouble
from marpack.torchserve.labels import LABELS_NAME, parse_labels
from marpack.torchserve.ts_util import PredictionException


def run(candidate: Candidate) -> CheckOutcome:
    """Replay the samples one by one."""
    samples, problems = candidate.samples, list(candidate.packed.problems)
    if not samples and not problems:
        return skipped("the archive holds no samples")
    found = {sample.short_name: _judged(candidate, sample) for sample in samples}
    problems += [finding for findings in found.values() for finding in findings]
    outcome = judged(tuple(problems), _counts(candidate))
    if outcome.verdict is Verdict.PASSED:
        return outcome
    wrong = {name: [each for each in findings if each.severity is Severity.ERROR] for name, findings in found.items()}
    first = next((name for name, findings in wrong.items() if findings), "")
    return replace(outcome, reason=f"{first}: {outcome.reason}") if not candidate.packed.problems else outcome


def _counts(candidate: Candidate) -> str:
    packed = len(candidate.packed.samples)
    counts = {"sample": packed, "input": len(candidate.samples) - packed}
    return ", ".join(counted(count, what) for what, count in counts.items() if count)


def _judged(candidate: Candidate, sample: Sample) -> list[Finding]:
    result = candidate.sample_runner.alone(sample)
    where = f"{candidate.source}!{sample.name}" if sample.is_packed else sample.name
    why = next((_why(candidate, trouble) for trouble in result.troubles), None)
    missed = [
        problem("sample-missed", sentence, where=where, hint=why) for sentence in shortfalls(sample.expected, result)
    ]
    return missed or [_raised(candidate, sample, trouble) for trouble in result.troubles if _is_unmeant(trouble)]


def _is_unmeant(trouble: Trouble) -> bool:
    """Say whether a trouble is an exception other than the one by which a handler states its answer."""
    return bool(trouble.frames) and trouble.kind != PredictionException.__name__


def _raised(candidate: Candidate, sample: Sample, trouble: Trouble) -> Finding:
    """Return the finding for an exception behind an answer that is as expected: an error where the code is broken."""
    message = f"{sample.short_name} gets the expected answer by an exception: {trouble.kind}: {trouble.message}"
    severity = Severity.ERROR if trouble.code_fault else Severity.NOTE
    where = candidate.line_of(trouble.frames)
    return Finding(code="sample-raised", severity=severity, message=message, where=where, hint=trouble.hint)


def _why(candidate: Candidate, trouble: Trouble) -> str:
    remedy = missing_label(candidate, trouble) or trouble.hint
    hint = f"; {remedy}" if remedy else ""
    return f"{trouble.kind}: {trouble.message}{hint}"


def missing_label(candidate: Candidate, trouble: Trouble) -> str | None:
    """Return which label the packed labels lack, if an exception looked up a class that has none."""
    number = trouble.message.strip("'")
    if trouble.kind != "KeyError" or not number.isdecimal() or LABELS_NAME not in candidate.archive.entries:
        return None
    names = parse_labels(candidate.read(LABELS_NAME)).names
    if number in names or not all(name.isdecimal() for name in names):
        return None
    return f'{LABELS_NAME} has no label for class {number}: add "{number}" to it'
