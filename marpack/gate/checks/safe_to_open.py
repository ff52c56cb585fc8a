"""The archive is one the server reads, too; that reading it is safe was found when it was opened."""

from msgspec.structs import replace

from marpack.findings import Severity
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, counted, judged
from marpack.protocol.targets import Target


def run(candidate: Candidate) -> CheckOutcome:
    """Fail for what marpack can open and the server cannot, unless marpack is the target."""
    archive = candidate.archive
    notes = archive.server_findings
    if candidate.target is not Target.TORCHSERVE:
        notes = tuple(replace(finding, severity=Severity.NOTE) for finding in notes)
    return judged(notes, counted(len(archive.entries), "member"))
