"""The checks that read the archive and run nothing of it."""

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive.index import Index, index_of
from marpack.archive.protocol import INDEX_NAME, require_files
from marpack.errors import DamagedArchiveError, ManifestError, pluralize
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, judge, problem_of, skip
from marpack.inspection.lint.linting import lint
from marpack.inspection.members import changed, digests, program_findings
from marpack.inspection.pickles import PickleVerdict, pickle_findings
from marpack.protocol.targets import Target
from marpack.runner.environments import count_requirements, unmet
from marpack.runner.session import target_of

_UNCHECKED = frozenset(
    {
        codes.CHECK_GAVE_UP.name,
        codes.SOURCE_UNCHECKED.name,
        codes.SOURCES_TOO_LARGE.name,
        codes.LABELS_UNCHECKED.name,
        codes.CONFIG_UNCHECKED.name,
    }
)


def check_opening(candidate: Candidate) -> CheckOutcome:
    """Fail for what marpack can open and the server cannot, unless marpack is the target."""
    archive = candidate.archive  # opening it found that reading it is safe
    findings = archive.server_findings
    if candidate.target is not Target.TORCHSERVE:
        findings = tuple(replace(finding, severity=Severity.NOTE) for finding in findings)
    return judge(pluralize(len(archive.entries), "member"), findings)


def check_digests(candidate: Candidate) -> CheckOutcome:
    """Recompute every CRC and every SHA-256, and compare them with the index of members.

    Workers load the same bytes: they were extracted from this file, with the same CRCs checked, and the cache returns
    them only while names, sizes and times (ctimes among them) are unchanged; see `archive/cache.py`.
    """
    archive = candidate.archive
    sums = dict(digests(archive))
    count = pluralize(len(sums), "member")
    problems = [item for item in sums.values() if isinstance(item, Finding)]
    if INDEX_NAME not in archive.entries or isinstance(sums[INDEX_NAME], Finding):
        return judge(f"{count}; the archive lists no digests to compare with", problems)
    try:
        index = Index.from_json(candidate.read(INDEX_NAME), where=f"{archive.source}!{INDEX_NAME}")
        target_of(candidate.resolved, archive)
        problems += changed(archive, index, sums)
    except DamagedArchiveError as error:
        problems.append(problem_of(error))
    return judge(f"{count}, {candidate.identity.content_digest}", problems)


def check_manifest(candidate: Candidate) -> CheckOutcome:
    """Read the manifest and find the files that it names."""
    archive = candidate.archive
    try:
        manifest = archive.manifest
        require_files(archive)
    except ManifestError as error:
        return judge("", [problem_of(error)])
    model = manifest.model
    return judge(f"{model.name} {model.version or '(no version)'}, handler {model.handler}")


def check_preflight(candidate: Candidate) -> CheckOutcome:
    """Repeat the static checks of `build` on the finished archive; the check of pickles reports its own better."""
    archive, index = candidate.archive, index_of(candidate.archive)
    vendored = index.vendored if index else UNSET
    refused = [finding.where or "" for finding in find_untrusted(candidate) if finding.severity is Severity.ERROR]
    findings = [
        finding
        for finding in lint(archive, archive.manifest, target=candidate.target, vendored=vendored)
        if finding.code != codes.WEIGHTS_PICKLED.name
        or not any(where.startswith(f"{candidate.source}!{finding.where}") for where in refused)
    ]
    count = sum(finding.severity is Severity.WARNING for finding in findings)
    seen = [pluralize(count, "warning")] if count else []
    seen += ["not everything was checked"] if any(finding.code in _UNCHECKED for finding in findings) else []
    return judge(", ".join(seen) or "no problems found", findings)


def check_pickles(candidate: Candidate) -> CheckOutcome:
    """Fail for weights that are dangerous, unreadable, or need trust; with --require-safe, for programs also."""
    scan, programs = candidate.inspection.pickles, candidate.inspection.programs
    is_safe = scan.verdict is PickleVerdict.SAFE
    seen = [pluralize(len(scan.pickles), "pickle"), *([pluralize(len(programs), "program")] if programs else [])]
    weights = "the weights are safe" if is_safe else "the weights are a program"
    if scan.needs_trust_pickle:
        weights = "the weights need trust, which --trust-pickle gives"
    if is_safe and scan.unknown_weights is not None:
        weights = "the format of the weights is unknown"
    return judge(f"{', '.join(seen)}; {weights}", find_untrusted(candidate))


def find_untrusted(candidate: Candidate) -> Iterator[Finding]:
    """Yield a finding for each pickle and program that is not known to be safe: an error unless the user trusts it."""
    options, facts = candidate.options, candidate.inspection
    trusted = ("untrusted-pickle", "unscanned") if options.load.trust_pickle and not options.require_safe else ()
    for finding in pickle_findings(facts.pickles, candidate.source):
        yield replace(finding, severity=Severity.NOTE if finding.code in trusted else Severity.ERROR)
    refused = options.require_safe and not options.trust_native
    unknown = facts.pickles.unknown_weights
    yield from program_findings(facts.programs, candidate.source, refused=refused, unknown_weights=unknown)


def check_requirements(candidate: Candidate) -> CheckOutcome:
    """Compare the packed requirements with the installed packages, or install them."""
    count = count_requirements(candidate.archive)
    if not count:
        return skip("the archive has no requirements")
    if candidate.options.python is not None and candidate.archive.manifest.model.requirements_file:
        _ = candidate.python
        return judge(f"{pluralize(count, 'requirement')}, installed in an environment of their own")
    return judge(pluralize(count, "requirement"), unmet(candidate.archive))
