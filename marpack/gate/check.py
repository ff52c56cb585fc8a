"""`check`: every check in order, each after those it stands on, and the verdict they add up to."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from msgspec import Struct, to_builtins

from marpack.errors import (
    ArchiveError,
    DeviceUnavailableError,
    MarpackError,
    UnconfirmedDownloadError,
    UsageError,
    did_you_mean,
)
from marpack.findings import Severity
from marpack.gate.candidate import Candidate
from marpack.gate.checks import run
from marpack.gate.compare import TOLERANCE
from marpack.gate.verdicts import (
    LEFT_OUT,
    CheckOutcome,
    CheckResult,
    GateReport,
    GateVerdict,
    Verdict,
    error_problem,
    failed,
    problem,
    skipped,
)
from marpack.project.schema import CHECKS, COMPARISONS, HERMETIC, PROOF, SAFETY, Check
from marpack.protocol.targets import Target
from marpack.weights.kind import FORMATS

_OPENS = CHECKS[0]  # nothing can be said of what cannot be opened


class CheckSelection(Struct, frozen=True):
    """Which checks run."""

    names: frozenset[str] = frozenset(each.name for each in CHECKS if not each.optional)

    @classmethod
    def of(cls, only: Iterable[str] = (), skip: Iterable[str] = (), further: Collection[str] = ()) -> "CheckSelection":
        """Return the checks named by `only` (none: all but the optional) and by `further`, without those of `skip`.

        The check `hermetic` brings the proof along; those of two archives are there by `further` alone.

        Raises UsageError for a name that is no check, and where nothing is left.
        """
        kept, left_out = tuple(only), tuple(skip)
        for name in (*kept, *left_out):
            _known(name, further)
        both = sorted(set(kept) & set(left_out))
        if both:
            raise UsageError(f"{both[0]} is both asked for and left out", hint="name it with --only or with --skip")
        names = frozenset((*(kept or cls().names), *further))
        if HERMETIC in names and {HERMETIC, PROOF} & set(left_out):
            raise UsageError(
                f"hermetic implies {PROOF}, and one of them is left out",
                hint="skip neither",
                code="hermetic-without-proof",
            )
        names = (names | {PROOF} if HERMETIC in names else names) - set(left_out)
        if not names:
            raise UsageError("every check is left out", hint="skip fewer of them")
        return cls(names)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    @property
    def needs_worker(self) -> bool:
        """Whether one of them asks the model."""
        return any(each.asks for each in CHECKS if each.name in self.names)


def _known(name: str, further: Collection[str]) -> None:
    names = [each.name for each in CHECKS if each.name not in COMPARISONS or each.name in further]
    if name not in names:
        hint = did_you_mean(name.lower(), names) or f"the checks are {', '.join(names)}"
        raise UsageError(f"there is no check named {name!r}", hint=hint, code="unknown-check")


class CheckProgress:
    """Is told what the gate does, as it does it."""

    def begins(self, check: Check) -> None:
        """Take note that a check begins."""

    def ends(self, checked: CheckResult) -> None:
        """Take note of a check's verdict."""


def check(
    candidate: Candidate, choice: CheckSelection | None = None, listener: CheckProgress | None = None
) -> GateReport:
    """Examine an archive; handlers may do what they like, the report is complete.

    A KeyboardInterrupt ends the examination: what was not done by then is told as skipped.
    """
    examination = _Examination(candidate, choice or CheckSelection(), listener or CheckProgress())
    start = time.perf_counter()
    try:
        examination.run()
    except KeyboardInterrupt:
        candidate.stop()
        examination.interrupt()
    return examination.report(time.perf_counter() - start)


class _Examination:
    """One archive being checked."""

    def __init__(self, candidate: Candidate, choice: CheckSelection, listener: CheckProgress) -> None:
        self._candidate = candidate
        self._choice = choice
        self._listener = listener
        self._checks = [each for each in CHECKS if not each.optional or each.name in choice]
        self._done: dict[str, CheckResult] = {}
        self._stopped: str | None = None  # why the rest is not done
        self._interrupted = False
        self._is_identified = False  # what the report says of the archive itself has been read

    def run(self) -> None:
        self._open()
        for each in self._checks:
            if each.name not in self._done:
                self._do(each)

    def interrupt(self) -> None:
        self._interrupted = True
        for each in self._checks:
            if each.name not in self._done:
                self._note(each, skipped("interrupted"), 0.0)

    def _open(self) -> None:
        """Open the archive, whatever was asked for, and if it cannot be opened, let that be the verdict."""
        if self._choice.needs_worker:
            self._candidate.prepare(hermetic=HERMETIC in self._choice)
        candidate = self._candidate
        try:
            _ = candidate.archive
        except ArchiveError as error:
            self._note(_OPENS, failed(error_problem(error)), 0.0)
            self._stopped = f"{_OPENS.name} failed"
            return
        # Read here, where an interrupt ends it: the report of an interrupted check reads nothing more.
        _ = candidate.target, candidate.asked_target, candidate.content_digest, candidate.source_commit
        self._is_identified = True

    def _do(self, each: Check) -> None:
        start = time.perf_counter()
        why = self._why_not(each)
        if why is None:
            self._listener.begins(each)
        outcome = self._passed_over(each, why) if why else self._outcome(each)
        self._note(each, outcome, time.perf_counter() - start)

    def _passed_over(self, each: Check, why: str) -> CheckOutcome:
        """Skip a check; where a failure that weighs little kept the model from being asked, there is no proof."""
        if each.name in (PROOF, HERMETIC) and why != LEFT_OUT and not self._closing:
            return failed(problem("nothing-asked", f"{why}, so nothing was asked of it"))
        return skipped(why)

    def _why_not(self, each: Check) -> str | None:
        if each.name not in self._choice:
            return LEFT_OUT
        broken = [name for name in each.needs if self._done[name].verdict is Verdict.FAILED]
        if each.name == PROOF:  # where another check says no, a missing proof is no news
            broken = self._closing or broken
        return f"{broken[0]} failed" if broken else self._stopped if each.asks or _OPENS.name in each.needs else None

    @property
    def _closing(self) -> list[str]:
        """The checks so far that keep it from being deployed."""
        return [name for name, checked in self._done.items() if checked.closes]

    def _outcome(self, each: Check) -> CheckOutcome:
        try:
            outcome = run(each, self._candidate)
        except (DeviceUnavailableError, UnconfirmedDownloadError):
            raise  # they say nothing about the archive
        except MarpackError as error:
            outcome = failed(error_problem(error))
        if each.asks and self._candidate.sample_runner.lost:  # the model could not be loaded, or not once more
            self._stopped = outcome.reason if outcome.skipped else f"{each.name} failed"
        return outcome

    def _note(self, each: Check, outcome: CheckOutcome, seconds: float) -> None:
        checked = CheckResult(
            name=each.name,
            title=each.title,
            verdict=outcome.verdict,
            reason=outcome.reason,
            severity=_severities(self._candidate).get(each.name, Severity.ERROR),
            exit_code=each.exit_code,
            findings=outcome.findings,
            seconds=round(seconds, 3),
        )
        self._done[each.name] = checked
        self._listener.ends(checked)

    def report(self, seconds: float) -> GateReport:
        candidate, known = self._candidate, self._is_identified
        is_inspected = known and (not self._interrupted or "inspection" in vars(candidate))
        loaded = candidate.sample_runner.loaded if "sample_runner" in vars(candidate) else None
        samples = candidate.samples if "samples" in vars(candidate) else ()
        verdict = self._verdict()
        return GateReport(
            archive=candidate.source,
            project=str(candidate.resolved.project.folder) if candidate.resolved.project else None,
            content_digest=candidate.content_digest if known else None,
            target=candidate.target if known else candidate.options.target or Target.TORCHSERVE,
            unserved=_unserved(candidate) if is_inspected else None,
            source_commit=candidate.source_commit if known else None,
            model=_model(candidate) if known else None,
            loaded=loaded.handler if loaded else None,
            device=loaded.device if loaded else None,
            verdict=verdict,
            deployable=verdict is GateVerdict.DEPLOYABLE,
            reservations=tuple(_reservations(candidate, self._choice)) if known or not self._interrupted else (),
            interrupted=self._interrupted,
            checks=tuple(self._done[each.name] for each in self._checks),
            samples=len(samples),
            generated=sum(sample.is_generated for sample in samples),
            costs=candidate.costs,
            seconds=round(seconds, 3),
        )

    def _verdict(self) -> GateVerdict:
        if self._interrupted:
            return GateVerdict.INTERRUPTED
        if self._closing:
            return GateVerdict.NOT_PROVED if self._closing == [PROOF] else GateVerdict.REFUSED
        partly = any(checked.left_out for checked in self._done.values())
        return GateVerdict.PARTIAL if partly else GateVerdict.DEPLOYABLE


def _reservations(candidate: Candidate, choice: CheckSelection) -> Iterator[str]:
    """Yield what was asked for that makes a yes weigh less than one that `marpack check` gives by itself."""
    options = candidate.options
    for each in CHECKS:
        if each.name not in choice and not each.optional:
            yield f"the check {each.name} was left out"
    for name in sorted(options.allow_unproved):
        yield f"--allow-unproved {name} was given"
    for kind, patterns in (to_builtins(candidate.allowance) if HERMETIC in choice else {}).items():
        yield f"marpack.yaml allows it to {kind} {', '.join(patterns)}"
    if options.load.trust_pickle:
        yield "--trust-pickle was given"
    if not options.load.compile:
        yield "--compile off was given"
    if options.tolerance > TOLERANCE:
        yield f"--tolerance {options.tolerance:g} was given, in place of {TOLERANCE:g}"
    if options.target is not None and options.target is not candidate.asked_target:
        yield f"--target {options.target} was given, the archive is for {candidate.asked_target}"


def _severities(candidate: Candidate) -> Mapping[str, Severity]:
    project = candidate.resolved.project
    found: dict[str, Severity] = to_builtins(project.checks) if project else {}
    if candidate.options.require_safe:  # the command line counts more than the project
        found.pop(SAFETY, None)
    return {name: Severity(weight) for name, weight in found.items()}


def _unserved(candidate: Candidate) -> str | None:
    """Return the suffix that no loader of the server's takes, where the handler leaves loading to it."""
    try:
        name = candidate.archive.manifest.model.serialized_file or ""
        handler = candidate.inspection.handler
    except ArchiveError:
        return None
    if handler.function is not None or "initialize" in handler.stages:
        return None
    suffix = PurePosixPath(name).suffix
    rows = [row for row in FORMATS.values() if suffix in row.suffixes]
    return suffix if rows and all(row.marpack_only for row in rows) else None


def _model(candidate: Candidate) -> str | None:
    try:
        model = candidate.archive.manifest.model
    except ArchiveError:
        return None
    return f"{model.name} {model.version or ''}".strip()
