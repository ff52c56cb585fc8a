"""The archive is one the server reads, too; that it is safe to read was found when it was opened."""

from marpack.findings import Severity
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed
from marpack.runtime.targets import Target


def run(subject: Subject) -> Outcome:
    """Fail for what marpack can open and the server cannot."""
    refused = [finding for finding in subject.archive.oddities if finding.severity is Severity.ERROR]
    if refused and subject.target is Target.TORCHSERVE:
        return failed(*refused)
    return passed(f"{len(subject.archive.entries)} members")
