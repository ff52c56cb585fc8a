"""What the gate says: one verdict per check, and all of them together."""

from enum import StrEnum

from msgspec import Struct

from marpack.errors import ExitCode, MarpackError
from marpack.findings import Finding, Severity
from marpack.gate.costs import Costs
from marpack.project.schema import PROOF

LEFT_OUT = "left out"  # by --only or --skip
CAVEATS = frozenset({"allowed-unproved", "one-input", "slower-undecided"})  # findings that stand beside a yes


class Verdict(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class GateVerdict(StrEnum):
    """What all checks come to together."""

    DEPLOYABLE = "deployable"  # none failed but those whose failure weighs less
    REFUSED = "refused"  # one failed
    NOT_PROVED = "not-proved"  # none failed, but no request says that it answers
    PARTIAL = "partial"  # none failed, and some were left out: nobody knows
    INTERRUPTED = "interrupted"


class CheckResult(Struct, frozen=True, kw_only=True):
    """One check, done."""

    name: str  # kebab-case, stable: "batch-contract"
    title: str  # what it makes sure of
    verdict: Verdict
    reason: str = ""  # one sentence: what was seen, or why it was skipped
    severity: Severity = Severity.ERROR  # of a failure: a warning does not close the gate
    exit_code: int = ExitCode.SHORT  # of a failure that closes the gate
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0

    @property
    def left_out(self) -> bool:
        """Whether nobody asked for it."""
        return self.reason == LEFT_OUT

    @property
    def proves(self) -> bool:
        """Whether it is the one without which nothing is said to be deployable."""
        return self.name == PROOF

    @property
    def rule(self) -> str:
        """What its failure is called where machines tell failures apart."""
        return GateVerdict.NOT_PROVED if self.proves else self.name

    @property
    def closes(self) -> bool:
        """Whether this keeps the archive from being deployed."""
        return self.verdict is Verdict.FAILED and self.severity is Severity.ERROR


class GateReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack check`, and its JSON."""

    archive: str
    project: str | None = None  # the folder it was built from, if SOURCE is a project
    content_digest: str | None
    target: str
    unserved: str | None = None  # the suffix of its weights, if TorchServe has no loader for them
    source_commit: str | None = None  # that it was built from, if it says so
    model: str | None = None  # name and version
    loaded: str | None = None  # the handler's entry point
    device: str | None = None
    verdict: GateVerdict
    deployable: bool  # that verdict, as a yes or a no
    reservations: tuple[str, ...] = ()  # what was asked for that makes a yes weigh less than it might
    interrupted: bool = False
    checks: tuple[CheckResult, ...]
    samples: int = 0  # packed and given, that were there to be asked
    generated: int = 0  # of these, the ones that `marpack init` generated: they prove nothing
    costs: Costs | None = None  # beside another archive, with --slower
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """What `marpack check` ends with: the code, the same for every command, of the first failure that counts."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode(next((checked.exit_code for checked in self.checks if checked.closes), ExitCode.OK))

    @property
    def weighed_down(self) -> list[CheckResult]:
        """The checks that failed, and whose failure does not close the gate."""
        return [checked for checked in self.checks if checked.verdict is Verdict.FAILED and not checked.closes]

    @property
    def unproved(self) -> str:
        """Why nothing says that it answers, as a sentence; empty if something does."""
        return next((checked.reason for checked in self.checks if checked.proves and checked.closes), "")

    @property
    def caveats(self) -> list[str]:
        """What is to be known beside a yes."""
        return [note.message for checked in self.checks for note in checked.findings if note.code in CAVEATS]

    @property
    def counts(self) -> dict[str, int]:
        """How many checks ended in which way."""
        found = {str(verdict): 0 for verdict in Verdict} | {LEFT_OUT: 0}
        for checked in self.checks:
            found[LEFT_OUT if checked.left_out else checked.verdict] += 1
        return {how: count for how, count in found.items() if count}


class CheckOutcome(Struct, frozen=True, kw_only=True):
    """What one check found: nothing against the archive, unless there are problems."""

    reason: str
    findings: tuple[Finding, ...] = ()  # problems, and notes beside them
    skipped: bool = False

    @property
    def verdict(self) -> Verdict:
        """How the check ended: failed if one of the findings is an error."""
        if self.skipped:
            return Verdict.SKIPPED
        wrong = any(finding.severity is Severity.ERROR for finding in self.findings)
        return Verdict.FAILED if wrong else Verdict.PASSED


def passed(reason: str, *notes: Finding) -> CheckOutcome:
    """Return an outcome that speaks for the archive."""
    return CheckOutcome(reason=reason, findings=notes)


def skipped(reason: str) -> CheckOutcome:
    """Return the outcome of a check that had nothing to look at."""
    return CheckOutcome(reason=reason, skipped=True)


def judged(findings: tuple[Finding, ...], reason: str) -> CheckOutcome:
    """Return the outcome of some findings: the first error among them is the reason, or else `reason`."""
    wrong = [finding for finding in findings if finding.severity is Severity.ERROR]
    if not wrong:
        return passed(reason, *findings)
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return CheckOutcome(reason=f"{wrong[0].message}{more}", findings=findings)


def failed(*problems: Finding) -> CheckOutcome:
    """Return an outcome that speaks against the archive; its reason is the first problem."""
    return judged(problems, "")


def counted(count: int, what: str) -> str:
    """Return "1 sample", "2 samples"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def problem(code: str, message: str, *, where: str | None = None, hint: str | None = None) -> Finding:
    """Return a finding that fails its check."""
    return Finding(code=code, severity=Severity.ERROR, message=message, where=where, hint=hint)


def error_problem(error: MarpackError) -> Finding:
    """Return an error as a finding that fails its check."""
    return problem(error.code, error.what, where=error.where, hint=error.hint)
