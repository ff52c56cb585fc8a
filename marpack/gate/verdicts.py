"""What the gate reports: one verdict per check, and the verdict on the archive."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from marpack.errors import ExitCode, MarpackError
from marpack.findings import Finding, Severity
from marpack.project.schema import PROOF, Check
from marpack.protocol.messages import Trouble

LEFT_OUT = "left out"  # by --only or --skip
CAVEATS = frozenset({"allowed-unproved", "one-input"})  # findings that a yes mentions


class Verdict(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class GateVerdict(StrEnum):
    """What all checks together say about the archive."""

    DEPLOYABLE = "deployable"  # no check failed, except those that marpack.yaml downgrades
    REFUSED = "refused"  # a check failed
    NOT_PROVED = "not-proved"  # no check failed, but no request shows that the model responds
    PARTIAL = "partial"  # no check failed, but some were left out
    INTERRUPTED = "interrupted"


class Similarity(StrEnum):
    """How similar two responses are, from most to least."""

    EXACT = "exact"  # the same bytes
    ROUNDED = "rounded"  # the same except for numbers within the tolerance
    LABEL = "label"  # the same label with other numbers
    DIFFERENT = "different"
    STATUS = "status"  # another status


class Variant(Struct, frozen=True, kw_only=True):
    """One of two variants of a model: two archives, two devices, or compiled and not."""

    name: str  # "a.mar", "cpu", "compiled"
    archive: str
    content_digest: str | None
    handler: str
    device: str | None
    milliseconds: float = 0.0  # per input, the median


class InputComparison(Struct, frozen=True, kw_only=True):
    """The two responses to one input."""

    input: str
    likeness: Similarity
    statuses: tuple[int, int]
    labels: tuple[str | None, str | None]
    largest: float | None  # difference between two numbers in one place; None if there are none
    differences: tuple[str, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether the two responses mean the same to a client."""
        return self.likeness in (Similarity.EXACT, Similarity.ROUNDED)


class Comparison(Struct, frozen=True, kw_only=True):
    """The responses of two variants."""

    sides: tuple[Variant, Variant]
    tolerance: float
    alike: bool  # for every input
    proved: bool  # at least one response is a 2xx: two variants that only fail may agree in nothing else
    counts: dict[str, int]  # inputs by likeness
    largest: float | None  # difference of all
    results: tuple[InputComparison, ...]
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False


class CheckResult(Struct, frozen=True, kw_only=True):
    """The result of one check."""

    name: str  # kebab-case, stable: "batch-contract"
    title: str  # what the check makes sure of
    verdict: Verdict
    reason: str = ""  # one sentence: the observation, or why the check was skipped
    severity: Severity = Severity.ERROR  # of a failure: only an error blocks the deployment
    exit_code: int = ExitCode.SHORT  # of a failure that blocks the deployment
    findings: tuple[Finding, ...] = ()
    comparison: Comparison | None = None  # of the check `alike`
    seconds: float = 0.0

    @property
    def left_out(self) -> bool:
        """Whether --only or --skip left the check out."""
        return self.reason == LEFT_OUT

    @property
    def rule(self) -> str:
        """The name of its failure in JUnit and SARIF files."""
        return GateVerdict.NOT_PROVED if self.name == PROOF else self.name

    @property
    def blocks(self) -> bool:
        """Whether the check keeps the archive from being deployed."""
        return self.verdict is Verdict.FAILED and self.severity is Severity.ERROR


class GateReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack check`, and its JSON."""

    archive: str
    project: str | None = None  # its project's folder, if SOURCE is a project
    content_digest: str | None
    target: str
    unserved: str | None = None  # suffix of weights that TorchServe cannot load
    source_commit: str | None = None  # commit that the archive records
    model: str | None = None  # name and version
    loaded: str | None = None  # the handler's entry point
    device: str | None = None
    verdict: GateVerdict
    deployable: bool  # whether the verdict is "deployable"
    reservations: tuple[str, ...] = ()  # options and settings that weaken a positive verdict
    interrupted: bool = False
    checks: tuple[CheckResult, ...]
    samples: int = 0  # number of packed samples and named inputs
    generated: int = 0  # number of them that `marpack init` generated, which prove nothing
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of `marpack check`: that of the first failure that blocks the deployment."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        passed = ExitCode.SHORT if self.verdict is GateVerdict.NOT_PROVED else ExitCode.OK
        return ExitCode(next((checked.exit_code for checked in self.checks if checked.blocks), passed))

    @property
    def downgraded(self) -> list[CheckResult]:
        """The checks that failed without blocking the deployment."""
        return [checked for checked in self.checks if checked.verdict is Verdict.FAILED and not checked.blocks]

    @property
    def caveats(self) -> list[str]:
        """The findings that a yes mentions."""
        return [note.message for checked in self.checks for note in checked.findings if note.code in CAVEATS]


class CheckProgress:
    """Receives the checks as they run."""

    def begins(self, check: Check) -> None:
        """Receive a check that begins."""

    def ends(self, checked: CheckResult) -> None:
        """Receive a check's result."""


class CheckOutcome(Struct, frozen=True, kw_only=True):
    """What one check found."""

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    comparison: Comparison | None = None


def judge(reason: str, findings: Iterable[Finding] = ()) -> CheckOutcome:
    """Return the outcome of some findings: failed by the errors among them, otherwise passed for `reason`."""
    findings = tuple(findings)
    wrong = [finding for finding in findings if finding.severity is Severity.ERROR]
    if not wrong:
        return CheckOutcome(verdict=Verdict.PASSED, reason=reason, findings=findings)
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return CheckOutcome(verdict=Verdict.FAILED, reason=wrong[0].message + more, findings=findings)


def skip(reason: str, *findings: Finding) -> CheckOutcome:
    """Return the outcome of a check that cannot decide anything."""
    return CheckOutcome(verdict=Verdict.SKIPPED, reason=reason, findings=findings)


def append_cause(troubles: Iterable[Trouble]) -> str:
    """Return the first trouble as the end of a message, or an empty text."""
    return next((f": {trouble.message}" for trouble in troubles), "")


def problem_of(error: MarpackError) -> Finding:
    """Return an error as a finding that fails its check."""
    return Finding(code=error.code, severity=Severity.ERROR, message=error.what, where=error.where, hint=error.hint)
