"""No pickle in the archive can do more than rebuild tensors and plain containers."""

from msgspec.structs import replace

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Subject
from marpack.gate.verdicts import Outcome, judged
from marpack.inspection.pickles import Verdict, distrust


def run(subject: Subject) -> Outcome:
    """Fail for a pickle that is dangerous, that needs trust nobody gave, or that could not be looked into."""
    scan = subject.inspection.pickles
    trusted = ", trusted by --trust-pickle" if scan.verdict is Verdict.NEEDS_TRUST else ""
    return judged(verdicts(subject), f"{len(scan.pickles)} pickles, {scan.verdict}{trusted}")


def verdicts(subject: Subject) -> tuple[Finding, ...]:
    """Return what speaks against the archive's pickles; what the user trusts does not."""
    return tuple(
        replace(finding, severity=Severity.NOTE if _is_trusted(finding, subject) else Severity.ERROR)
        for finding in distrust(subject.inspection.pickles, subject.source)
    )


def _is_trusted(finding: Finding, subject: Subject) -> bool:
    return finding.code == "untrusted-pickle" and subject.manner.load.trust_pickle
