"""Nothing in the weights can run code; with --require-safe, no member is a program either."""

from msgspec.structs import replace

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, counted, judged
from marpack.inspection.members import program_findings
from marpack.inspection.pickles import PickleVerdict, distrust


def run(candidate: Candidate) -> CheckOutcome:
    """Fail for weights that are dangerous, unreadable, or in need of trust without --trust-pickle."""
    scan, programs = candidate.inspection.pickles, candidate.inspection.programs
    is_safe = scan.verdict is PickleVerdict.SAFE
    weights = "the weights are safe" if is_safe else "the weights need trust, which --trust-pickle gives"
    named = f", {counted(len(programs), 'program')}" if programs else ""
    return judged(verdicts(candidate), f"{counted(len(scan.pickles), 'pickle')}{named}; {weights}")


def verdicts(candidate: Candidate) -> tuple[Finding, ...]:
    """Return what speaks against the archive's weights and programs; what the user trusts, read or unread, does not."""
    options, facts = candidate.options, candidate.inspection
    weights = (
        replace(finding, severity=Severity.NOTE if _is_trusted(finding, candidate) else Severity.ERROR)
        for finding in distrust(facts.pickles, candidate.source)
    )
    refused = options.require_safe and not options.trust_native
    return (*weights, *program_findings(facts.programs, candidate.source, refused=refused))


def _is_trusted(finding: Finding, candidate: Candidate) -> bool:
    if candidate.options.require_safe:
        return False
    return finding.code in ("untrusted-pickle", "unscanned") and candidate.options.load.trust_pickle
