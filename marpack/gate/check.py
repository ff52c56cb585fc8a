"""`check`: every check in order, each after those it stands on, and the verdict they add up to."""

import time
from collections.abc import Callable, Iterable, Mapping

from marpack.errors import ArchiveError, ManifestError, UsageError
from marpack.findings import Severity
from marpack.gate.checks import CHECKS, Check
from marpack.gate.serving import digest_of
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Checked, GateReport, Outcome, Verdict, failed, problem, skipped


def check(
    subject: Subject,
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    severities: Mapping[str, Severity] | None = None,
    on_checked: Callable[[Checked], None] | None = None,
) -> GateReport:
    """Examine an archive; handlers may do what they like, the report is complete.

    Args:
        subject: The archive.
        only: Names of the checks to run; none: all.
        skip: Names of checks to leave out.
        severities: How much a failure weighs, by check; an error unless said otherwise.
        on_checked: Is told each check as it is done.

    Raises UsageError for a name that is no check.
    """
    wanted = _wanted(tuple(only), tuple(skip))
    start = time.perf_counter()
    done: dict[str, Checked] = {}
    for each in CHECKS:
        severity = (severities or {}).get(each.name, Severity.ERROR)
        done[each.name] = _checked(each, subject, done, severity, wanted=each.name in wanted)
        if on_checked is not None:
            on_checked(done[each.name])
    return GateReport(
        archive=subject.archive.source,
        digest=_digest(subject),
        target=subject.target,
        deployable=not any(checked.closes for checked in done.values()),
        checks=tuple(done.values()),
        seconds=round(time.perf_counter() - start, 3),
    )


def _wanted(only: tuple[str, ...], skip: tuple[str, ...]) -> set[str]:
    names = [each.name for each in CHECKS]
    for name in (*only, *skip):
        if name not in names:
            raise UsageError(f"there is no check named {name!r}", hint=f"the checks are {', '.join(names)}")
    return set(only or names) - set(skip)


def _checked(
    each: Check, subject: Subject, done: Mapping[str, Checked], severity: Severity, *, wanted: bool
) -> Checked:
    start = time.perf_counter()
    broken = [name for name in each.needs if done[name].verdict is Verdict.FAILED]
    if not wanted:
        outcome = skipped("not asked for")
    elif broken:
        outcome = skipped(f"{broken[0]} failed")
    else:
        outcome = _run(each, subject)
    verdict = Verdict.SKIPPED if outcome.skipped else Verdict.FAILED if outcome.failed else Verdict.PASSED
    return Checked(
        name=each.name,
        title=each.title,
        verdict=verdict,
        reason=outcome.reason,
        severity=severity,
        findings=outcome.findings,
        seconds=round(time.perf_counter() - start, 3),
    )


def _run(each: Check, subject: Subject) -> Outcome:
    try:
        return each.run(subject)
    except ArchiveError as error:
        return failed(problem(error.code, error.what, where=error.where, hint=error.hint))


def _digest(subject: Subject) -> str | None:
    try:
        return digest_of(subject.archive)
    except (ArchiveError, ManifestError):
        return None
