"""Every member's bytes are those that were signed off."""

from collections.abc import Iterator

from marpack.archive.index import Index
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.errors import DamagedArchiveError
from marpack.findings import Finding
from marpack.gate.candidate import Subject
from marpack.gate.verdicts import Outcome, error_problem, failed, passed
from marpack.inspection.verify import changed, digests
from marpack.runner.session import target_of


def run(subject: Subject) -> Outcome:
    """Recompute every CRC and every SHA-256, and compare them with the index of members."""
    archive = subject.archive
    sums = dict(digests(archive))
    problems = [item for item in sums.values() if isinstance(item, Finding)]
    indexed = INDEX_NAME in archive.entries and not isinstance(sums[INDEX_NAME], Finding)
    if indexed:
        problems += _against_index(subject, archive, sums)
    if problems:
        return failed(*problems)
    count = f"{len(sums)} members"
    return passed(f"{count}, {subject.digest}" if indexed else f"{count}; it lists no digests to hold them against")


def _against_index(subject: Subject, archive: Archive, sums: dict[str, str | Finding]) -> Iterator[Finding]:
    try:
        index = Index.from_json(subject.read(INDEX_NAME), where=f"{archive.source}!{INDEX_NAME}")
        target_of(subject.resolved, archive)
    except DamagedArchiveError as error:
        yield error_problem(error)
        return
    yield from changed(archive, index, sums)
