"""No pickle in the archive can do more than rebuild tensors and plain containers."""

from msgspec.structs import replace

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, counted, judged
from marpack.inspection.pickles import PickleVerdict, distrust


def run(candidate: Candidate) -> CheckOutcome:
    """Fail for a pickle that is dangerous, that needs trust nobody gave, or that could not be looked into."""
    scan = candidate.inspection.pickles
    trusted = ", trusted by --trust-pickle" if scan.verdict is PickleVerdict.NEEDS_TRUST else ""
    return judged(verdicts(candidate), f"{counted(len(scan.pickles), 'pickle')}, {scan.verdict}{trusted}")


def verdicts(candidate: Candidate) -> tuple[Finding, ...]:
    """Return what speaks against the archive's pickles; what the user trusts, read or unread, does not."""
    return tuple(
        replace(finding, severity=Severity.NOTE if _is_trusted(finding, candidate) else Severity.ERROR)
        for finding in distrust(candidate.inspection.pickles, candidate.source)
    )


def _is_trusted(finding: Finding, candidate: Candidate) -> bool:
    return finding.code in ("untrusted-pickle", "unscanned") and candidate.options.load.trust_pickle
