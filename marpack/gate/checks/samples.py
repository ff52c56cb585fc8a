"""Every packed sample gets the answer that its author expects."""

from marpack.findings import Finding
from marpack.gate.expectations import shortfalls
from marpack.gate.subject import Sample, Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped


def run(subject: Subject) -> Outcome:
    """Replay the samples one by one."""
    if not subject.samples:
        return skipped("the archive holds no samples; name some in marpack.yaml")
    problems = [finding for sample in subject.samples for finding in _judged(subject, sample)]
    return failed(*problems) if problems else passed(f"{len(subject.samples)} samples")


def _judged(subject: Subject, sample: Sample) -> list[Finding]:
    result = subject.alone(sample)
    name = sample.name.removeprefix("MAR-INF/")
    why = f"{result.troubles[0].kind}: {result.troubles[0].message}" if result.troubles else None
    return [
        problem("sample-missed", f"{name}: {sentence}", where=f"{subject.archive.source}!{sample.name}", hint=why)
        for sentence in shortfalls(sample.expected, result)
    ]
