"""The static findings of `build`, on the finished archive."""

from msgspec import UNSET

from marpack.archive.index import index_of
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.checks import pickles
from marpack.gate.verdicts import CheckOutcome, counted, judged
from marpack.inspection.lint.linting import lint
from marpack.inspection.lint.weights import PICKLED


def run(candidate: Candidate) -> CheckOutcome:
    """Fail for what certainly fails on the server; warnings are told."""
    archive, index = candidate.archive, index_of(candidate.archive)
    findings = lint(archive, archive.manifest, target=candidate.target, vendored=index.vendored if index else UNSET)
    findings = [finding for finding in findings if not _is_of_pickles(finding, candidate)]
    count = sum(finding.severity is Severity.WARNING for finding in findings)
    return judged(tuple(findings), counted(count, "warning") if count else "nothing to find fault with")


def _is_of_pickles(finding: Finding, candidate: Candidate) -> bool:
    """Say whether a finding is one that the check of pickles tells better."""
    where = f"{candidate.source}!{finding.where}"
    return finding.code == PICKLED.name and any(
        reported.severity is Severity.ERROR and (reported.where or "").startswith(where)
        for reported in pickles.verdicts(candidate)
    )
