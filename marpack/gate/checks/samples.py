"""Every packed sample gets the answer that its author expects."""

from msgspec.structs import replace

from marpack.findings import Finding
from marpack.gate.candidate import Candidate
from marpack.gate.expectations import shortfalls
from marpack.gate.sample_runner import PackedSample
from marpack.gate.verdicts import CheckOutcome, counted, failed, passed, problem, skipped


def run(candidate: Candidate) -> CheckOutcome:
    """Replay the samples one by one."""
    samples, problems = candidate.packed.samples, list(candidate.packed.problems)
    if not samples and not problems:
        return skipped("the archive holds no samples; name some in marpack.yaml")
    missed = {sample.short_name: _judged(candidate, sample) for sample in samples}
    problems += [finding for findings in missed.values() for finding in findings]
    if not problems:
        return passed(counted(len(samples), "sample"))
    outcome = failed(*problems)
    first = next((name for name, findings in missed.items() if findings), "")
    return replace(outcome, reason=f"{first}: {outcome.reason}") if not candidate.packed.problems else outcome


def _judged(candidate: Candidate, sample: PackedSample) -> list[Finding]:
    result = candidate.sample_runner.alone(sample)
    where = f"{candidate.source}!{sample.name}"
    why = f"{result.troubles[0].kind}: {result.troubles[0].message}" if result.troubles else None
    return [
        problem("sample-missed", sentence, where=where, hint=why) for sentence in shortfalls(sample.expected, result)
    ]
