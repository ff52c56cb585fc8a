"""The static findings of `build`, on the finished archive."""

from collections.abc import Iterable
from typing import BinaryIO

from marpack.archive.protocol import Archive
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Subject
from marpack.gate.checks import pickles
from marpack.gate.verdicts import Outcome, judged
from marpack.inspection.lint import lint
from marpack.inspection.lint.weights import PICKLED


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
    findings = lint(ArchiveView(subject.archive), subject.archive.manifest, target=subject.target)
    findings = [finding for finding in findings if not _is_of_pickles(finding, subject)]
    count = sum(finding.severity is Severity.WARNING for finding in findings)
    return judged(tuple(findings), f"{count} warnings" if count else "nothing to find fault with")


def _is_of_pickles(finding: Finding, subject: Subject) -> bool:
    """Say whether a finding is one that the check of pickles tells better."""
    where = f"{subject.source}!{finding.where}"
    return finding.code == PICKLED.name and any(
        told.severity is Severity.ERROR and (told.where or "").startswith(where) for told in pickles.verdicts(subject)
    )
