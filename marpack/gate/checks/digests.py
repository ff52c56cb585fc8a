"""Every member's bytes are those that were signed off."""

from marpack.errors import ArchiveError
from marpack.findings import Severity
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem


def run(subject: Subject) -> Outcome:
    """Recompute every CRC and every SHA-256."""
    try:
        inspection = subject.inspection
    except ArchiveError as error:
        if error.code == "manifest":
            return passed("the manifest is the next check's business")
        return failed(problem(error.code, error.what, where=error.where, hint=error.hint))
    verified = inspection.verified
    if verified is not None and verified.intact:
        signed = inspection.digest if verified.signed_off else "it lists no digests; its CRCs are right"
        return passed(f"{verified.members} members, {signed}")
    about = [
        finding
        for finding in inspection.findings
        if finding.severity is Severity.ERROR
        and finding not in subject.archive.oddities
        and finding.code not in {"dangerous-pickle", "untrusted-pickle"}
    ]
    return failed(*about) if about else failed(problem("not-intact", "the archive is not as it was built"))
