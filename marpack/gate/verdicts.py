"""What the gate says: one verdict per check, and all of them together."""

from enum import StrEnum

from msgspec import Struct

from marpack.findings import Finding, Severity


class Verdict(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Checked(Struct, frozen=True, kw_only=True):
    """One check, done."""

    name: str  # kebab-case, stable: "batch-contract"
    title: str  # what it makes sure of
    verdict: Verdict
    reason: str = ""  # one sentence: what was seen, or why it was skipped
    severity: Severity = Severity.ERROR  # of a failure: a warning does not close the gate
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0

    @property
    def closes(self) -> bool:
        """Whether this keeps the archive from being deployed."""
        return self.verdict is Verdict.FAILED and self.severity is Severity.ERROR


class GateReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack check`, and its JSON."""

    archive: str
    digest: str | None
    target: str
    deployable: bool
    checks: tuple[Checked, ...]
    seconds: float


class Outcome(Struct, frozen=True, kw_only=True):
    """What one check found: nothing against the archive, unless there are problems."""

    reason: str
    findings: tuple[Finding, ...] = ()  # problems, and notes beside them
    skipped: bool = False

    @property
    def failed(self) -> bool:
        """Whether one of the findings is an error."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def passed(reason: str, *notes: Finding) -> Outcome:
    """Return an outcome that speaks for the archive."""
    return Outcome(reason=reason, findings=notes)


def skipped(reason: str) -> Outcome:
    """Return the outcome of a check that had nothing to look at."""
    return Outcome(reason=reason, skipped=True)


def problem(code: str, message: str, *, where: str | None = None, hint: str | None = None) -> Finding:
    """Return a finding that fails its check."""
    return Finding(code=code, severity=Severity.ERROR, message=message, where=where, hint=hint)


def failed(*problems: Finding) -> Outcome:
    """Return an outcome that speaks against the archive; its reason is the first problem."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Outcome(reason=f"{problems[0].message}{more}", findings=problems)
