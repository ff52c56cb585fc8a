"""Every sample gets the answer that its author expects, every input given a 2xx."""

from msgspec.structs import replace

from marpack.findings import Finding
from marpack.gate.candidate import Candidate
from marpack.gate.checks.labels import missing_label
from marpack.gate.expectations import shortfalls
from marpack.gate.sample_runner import Sample
from marpack.gate.verdicts import CheckOutcome, counted, failed, passed, problem, skipped
from marpack.torchserve.messages import Trouble


def run(candidate: Candidate) -> CheckOutcome:
    """Replay the samples one by one."""
    samples, problems = candidate.samples, list(candidate.packed.problems)
    if not samples and not problems:
        return skipped("the archive holds no samples")
    missed = {sample.short_name: _judged(candidate, sample) for sample in samples}
    problems += [finding for findings in missed.values() for finding in findings]
    if not problems:
        packed = len(candidate.packed.samples)
        counts = {"sample": packed, "input": len(samples) - packed}
        return passed(", ".join(counted(count, what) for what, count in counts.items() if count))
    outcome = failed(*problems)
    first = next((name for name, findings in missed.items() if findings), "")
    return replace(outcome, reason=f"{first}: {outcome.reason}") if not candidate.packed.problems else outcome


def _judged(candidate: Candidate, sample: Sample) -> list[Finding]:
    result = candidate.sample_runner.alone(sample)
    where = f"{candidate.source}!{sample.name}" if sample.is_packed else sample.name
    why = next((_why(candidate, trouble) for trouble in result.troubles), None)
    return [
        problem("sample-missed", sentence, where=where, hint=why) for sentence in shortfalls(sample.expected, result)
    ]


def _why(candidate: Candidate, trouble: Trouble) -> str:
    remedy = missing_label(candidate, trouble) or trouble.hint
    hint = f"; {remedy}" if remedy else ""
    return f"{trouble.kind}: {trouble.message}{hint}"
