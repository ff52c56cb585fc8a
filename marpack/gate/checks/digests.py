"""Every member's bytes are those that were signed off.

They are what workers load, too: those were extracted from this very file, with the same CRCs checked, and the cache
hands them out only while names, sizes and times (ctimes among them) are as they were left; see `archive/cache.py`.
"""

from collections.abc import Iterator

from marpack.archive.index import Index
from marpack.archive.protocol import INDEX_NAME, Archive
from marpack.errors import DamagedArchiveError
from marpack.findings import Finding
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, counted, error_problem, failed, passed
from marpack.inspection.members import changed, digests
from marpack.runner.session import target_of


def run(candidate: Candidate) -> CheckOutcome:
    """Recompute every CRC and every SHA-256, and compare them with the index of members."""
    archive = candidate.archive
    sums = dict(digests(archive))
    problems = [item for item in sums.values() if isinstance(item, Finding)]
    indexed = INDEX_NAME in archive.entries and not isinstance(sums[INDEX_NAME], Finding)
    if indexed:
        problems += _against_index(candidate, archive, sums)
    if problems:
        return failed(*problems)
    count = counted(len(sums), "member")
    return passed(
        f"{count}, {candidate.content_digest}" if indexed else f"{count}; it lists no digests to hold them against"
    )


def _against_index(candidate: Candidate, archive: Archive, sums: dict[str, str | Finding]) -> Iterator[Finding]:
    try:
        index = Index.from_json(candidate.read(INDEX_NAME), where=f"{archive.source}!{INDEX_NAME}")
        target_of(candidate.resolved, archive)
    except DamagedArchiveError as error:
        yield error_problem(error)
        return
    yield from changed(archive, index, sums)
