"""Every packed sample gets the answer that its author expects."""

from msgspec.structs import replace

from marpack.findings import Finding
from marpack.gate.candidate import Subject
from marpack.gate.expectations import shortfalls
from marpack.gate.sample_runner import Sample
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped


def run(subject: Subject) -> Outcome:
    """Replay the samples one by one."""
    samples, problems = subject.packed.samples, list(subject.packed.problems)
    if not samples and not problems:
        return skipped("the archive holds no samples; name some in marpack.yaml")
    missed = {sample.short_name: _judged(subject, sample) for sample in samples}
    problems += [finding for findings in missed.values() for finding in findings]
    if not problems:
        return passed(f"{len(samples)} samples")
    outcome = failed(*problems)
    first = next((name for name, findings in missed.items() if findings), "")
    return replace(outcome, reason=f"{first}: {outcome.reason}") if not subject.packed.problems else outcome


def _judged(subject: Subject, sample: Sample) -> list[Finding]:
    result = subject.witness.alone(sample)
    where = f"{subject.source}!{sample.name}"
    why = f"{result.troubles[0].kind}: {result.troubles[0].message}" if result.troubles else None
    return [
        problem("sample-missed", sentence, where=where, hint=why) for sentence in shortfalls(sample.expected, result)
    ]
