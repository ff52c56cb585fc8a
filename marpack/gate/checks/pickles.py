"""No pickle in the archive can do more than rebuild tensors and plain containers."""

from msgspec.structs import replace

from marpack.findings import Severity
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, passed
from marpack.inspection.pickles import Verdict, distrust


def run(subject: Subject) -> Outcome:
    """Fail for a pickle that is dangerous, that needs trust nobody gave, or that could not be looked into."""
    scan = subject.inspection.pickles
    findings = tuple(
        replace(finding, severity=Severity.NOTE)
        if finding.code == "untrusted-pickle" and subject.load.trust_pickle
        else replace(finding, severity=Severity.ERROR)
        for finding in distrust(scan, subject.archive.source)
    )
    wrong = [finding for finding in findings if finding.severity is Severity.ERROR]
    if wrong:
        return Outcome(reason=wrong[0].message, findings=findings)
    trusted = ", trusted by --trust-pickle" if scan.verdict is Verdict.NEEDS_TRUST else ""
    return passed(f"{len(scan.pickles)} pickles, {scan.verdict}{trusted}", *findings)
