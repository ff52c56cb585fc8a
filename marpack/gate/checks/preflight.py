"""The static findings of `build`, on the finished archive."""

from collections.abc import Iterable
from typing import BinaryIO

from marpack.archive.protocol import Archive
from marpack.findings import Severity
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, passed
from marpack.inspection.lint import lint


class ArchiveView:
    """An archive's members by name (the MemberView of `marpack.inspection.lint`)."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def names(self) -> Iterable[str]:
        """Return every member's name."""
        return self._archive.entries

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading."""
        return self._archive.open(name)


def run(subject: Subject) -> Outcome:
    """Fail for what certainly fails on the server; warnings are told."""
    findings = tuple(lint(ArchiveView(subject.archive), subject.archive.manifest, target=subject.target))
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return Outcome(reason=f"{errors[0].message}{more}", findings=findings)
    count = sum(finding.severity is Severity.WARNING for finding in findings)
    return passed(f"{count} warnings" if count else "nothing to find fault with", *findings)
