"""A plan that nothing speaks against, with what was noticed while making it."""

import msgspec
from msgspec import Struct

from marpack.errors import OutputExistsError, ProjectError
from marpack.findings import Finding, Severity
from marpack.packing.plan import Plan
from marpack.project.output import check_output
from marpack.project.preflight import Places, preflight


class Planned(Struct, frozen=True, kw_only=True):
    """A plan with what was noticed while making it."""

    plan: Plan
    findings: tuple[Finding, ...] = ()  # none of them an error
    modules: tuple[str, ...] = ()  # members packed only because the handler or model file imports them


def settle(planned: Planned, places: Places, *, strict: bool, check: bool) -> Planned:
    """Look a plan over once more, and return it only if nothing speaks against it.

    Args:
        planned: The plan with the findings so far, errors among them.
        places: Where the author wrote what goes into the archive.
        strict: Warnings stop the build too.
        check: Look into the members (the preflight).

    Raises ProjectError holding every finding that stops the build, OutputExistsError.
    """
    plan, findings = planned.plan, list(planned.findings)
    if check:
        findings += preflight(plan, places, findings)
    try:
        check_output(plan.output, plan.format, plan.members, replace=plan.replace)
    except OutputExistsError:
        if not _stops(findings):
            raise
    except ProjectError as error:
        findings.append(as_finding(error, "output"))
    if strict:
        findings = [_strictly(finding) for finding in findings]
    if _stops(findings):
        count = sum(finding.severity is Severity.ERROR for finding in findings)
        what = f"nothing was built: there {'are' if count > 1 else 'is'} {count} {'errors' if count > 1 else 'error'}"
        raise ProjectError(what, findings=tuple(f for f in findings if f.severity is not Severity.NOTE))
    return msgspec.structs.replace(planned, findings=tuple(findings))


def as_finding(error: ProjectError, code: str) -> Finding:
    """Return an error as one finding among others."""
    return Finding(code=code, severity=Severity.ERROR, message=error.what, where=error.where, hint=error.hint)


def _stops(findings: list[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def _strictly(finding: Finding) -> Finding:
    if finding.severity is not Severity.WARNING:
        return finding
    return msgspec.structs.replace(finding, severity=Severity.ERROR)
