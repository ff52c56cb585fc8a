"""`check`: every check in order, each after those it needs, and the verdict on the archive."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import PurePosixPath

from msgspec import to_builtins

from marpack import finding_codes as codes
from marpack.errors import (
    ArchiveError,
    DeviceUnavailableError,
    MarpackError,
    UsageError,
    did_you_mean,
)
from marpack.findings import Severity
from marpack.gate import process, proof, responses, static
from marpack.gate.candidate import ArchiveIdentity, Candidate
from marpack.gate.compare import TOLERANCE
from marpack.gate.verdicts import (
    LEFT_OUT,
    CheckOutcome,
    CheckProgress,
    CheckResult,
    GateReport,
    GateVerdict,
    Verdict,
    judge,
    problem_of,
    skip,
)
from marpack.project.schema import ALIKE, CHECKS, HERMETIC, PROOF, SAFETY, Check
from marpack.protocol.targets import Target
from marpack.weights.kind import FORMATS

# Name of a check in `project/schema.py` → its function, which may raise MarpackError to fail the check.
RUNS: dict[str, Callable[[Candidate], CheckOutcome]] = {
    "safe-to-open": static.check_opening,
    "digests": static.check_digests,
    "manifest": static.check_manifest,
    "preflight": static.check_preflight,
    SAFETY: static.check_pickles,
    "requirements": static.check_requirements,
    "loads": process.check_loading,
    "samples": responses.check_samples,
    "batch-contract": responses.check_batches,
    "body-forms": responses.check_body_forms,
    "repeatable": responses.check_repetition,
    "labels": responses.check_labels,
    "compiled": responses.check_compiled,
    "memory": process.check_memory,
    "model-folder": process.check_model_folder,
    PROOF: proof.check_proof,
    HERMETIC: process.check_hermetic,
    ALIKE: responses.check_alike,
}
_HINTS = {
    ALIKE: "Name the other archive: --against ARCHIVE",
    "no-slower": "Measure both archives: marpack run --repeat 100",
}
_OPENS = CHECKS[0]  # an archive that cannot be opened cannot be checked


DEFAULT_CHECKS = frozenset(each.name for each in CHECKS if not each.optional)


def select_checks(only: Iterable[str] = (), skip: Iterable[str] = (), further: Collection[str] = ()) -> frozenset[str]:
    """Return the checks named by `only` (none: all but the optional) and by `further`, without those of `skip`.

    The check `hermetic` includes the proof; `alike`, which compares two archives, comes with `further` only.
    Raises UsageError for an unknown name, and if no check is left.
    """
    kept, left_out = tuple(only), set(skip)
    known = [each.name for each in CHECKS if each.name != ALIKE or each.name in further]
    for name in (*kept, *sorted(left_out)):
        if name not in known:
            hint = _HINTS.get(name) or did_you_mean(name.lower(), known) or f"Choose from {', '.join(known)}."
            raise UsageError(f"unknown check {name!r}", hint=hint, code="unknown-check")
    both = sorted(left_out.intersection(kept))
    if both:
        raise UsageError(
            f"{both[0]} is both selected and skipped", hint="Name it with --only or with --skip, not with both."
        )
    names = frozenset((*(kept or DEFAULT_CHECKS), *further))
    if HERMETIC in names:
        if {HERMETIC, PROOF} & left_out:
            what = f"{HERMETIC} requires {PROOF}, and one of them is skipped"
            raise UsageError(what, hint=f"Remove {HERMETIC} and {PROOF} from --skip.", code="hermetic-without-proof")
        names |= {PROOF}
    if not names - left_out:
        raise UsageError("all checks are skipped", hint="Skip fewer of them.")
    return names - left_out


def check(
    candidate: Candidate, choice: frozenset[str] = DEFAULT_CHECKS, listener: CheckProgress | None = None
) -> GateReport:
    """Examine an archive; whatever its handler does, the report is complete.

    A KeyboardInterrupt ends the examination: the remaining checks are reported as skipped.
    """
    examination = _Examination(candidate, choice, listener or CheckProgress())
    start = time.perf_counter()
    try:
        examination.run()
    except KeyboardInterrupt:
        candidate.stop()
        examination.interrupt()
    return examination.report(time.perf_counter() - start)


class _Examination:
    """One archive being checked."""

    def __init__(self, candidate: Candidate, choice: frozenset[str], listener: CheckProgress) -> None:
        self._candidate = candidate
        self._choice = choice
        self._listener = listener
        self._checks = [each for each in CHECKS if not each.optional or each.name in choice]
        self._done: dict[str, CheckResult] = {}
        self._stopped: str | None = None  # why the remaining checks cannot run
        self._interrupted = False
        self._is_identified = False  # whether the archive's own facts for the report have been read

    def run(self) -> None:
        """Open the archive, whichever checks were selected, then run them in order."""
        candidate = self._candidate
        if any(each.loads for each in self._checks if each.name in self._choice):
            candidate.prepare(hermetic=HERMETIC in self._choice)
        try:
            _ = candidate.archive
        except ArchiveError as error:
            self._note(_OPENS, judge("", [problem_of(error)]), 0.0)
            self._stopped = f"{_OPENS.name} failed"
        else:
            # Read here, where an interrupt ends it: the report of an interrupted check reads nothing more.
            _ = candidate.target, candidate.declared_target, candidate.identity
            self._is_identified = True
        for each in self._checks:
            if each.name in self._done:
                continue
            start = time.perf_counter()
            why = self._why_skipped(each)
            if why is None:
                self._listener.begins(each)
                outcome = self._outcome(each)
            elif each.name in (PROOF, HERMETIC) and why != LEFT_OUT and not self._blocking:
                # A downgraded failure kept the model from running, so nothing is proved.
                outcome = judge("", [codes.NOTHING_ASKED.at(reason=why)])
            else:
                outcome = skip(why)
            self._note(each, outcome, time.perf_counter() - start)

    def interrupt(self) -> None:
        """Report the remaining checks as skipped."""
        self._interrupted = True
        for each in self._checks:
            if each.name not in self._done:
                self._note(each, skip("interrupted"), 0.0)

    def _why_skipped(self, each: Check) -> str | None:
        if each.name not in self._choice:
            return LEFT_OUT
        broken = [name for name in each.needs if self._done[name].verdict is Verdict.FAILED]
        if each.name == PROOF:  # after another failure, a missing proof is not reported
            broken = self._blocking or broken
        return f"{broken[0]} failed" if broken else self._stopped if each.loads or _OPENS.name in each.needs else None

    @property
    def _blocking(self) -> list[str]:
        """The checks so far that keep the archive from being deployed."""
        return [name for name, checked in self._done.items() if checked.blocks]

    def _outcome(self, each: Check) -> CheckOutcome:
        try:
            outcome = RUNS[each.name](self._candidate)
        except DeviceUnavailableError:
            raise  # it says nothing about the archive
        except MarpackError as error:
            outcome = judge("", [problem_of(error)])
        if each.loads and self._candidate.sample_runner.lost:  # the model could not be loaded, or not once more
            self._stopped = outcome.reason if outcome.verdict is Verdict.SKIPPED else f"{each.name} failed"
        return outcome

    def _note(self, each: Check, outcome: CheckOutcome, seconds: float) -> None:
        project = self._candidate.resolved.project
        severities: dict[str, Severity] = to_builtins(project.checks) if project else {}
        if self._candidate.options.require_safe:  # the command line takes precedence over the project
            severities.pop(SAFETY, None)
        checked = CheckResult(
            name=each.name,
            title=each.title,
            verdict=outcome.verdict,
            reason=outcome.reason,
            severity=Severity(severities.get(each.name, Severity.ERROR)),
            exit_code=each.exit_code,
            findings=outcome.findings,
            comparison=outcome.comparison,
            seconds=round(seconds, 3),
        )
        self._done[each.name] = checked
        self._listener.ends(checked)

    def report(self, seconds: float) -> GateReport:
        """Return the results and the verdict."""
        candidate, known = self._candidate, self._is_identified
        identity = candidate.identity if known else ArchiveIdentity()
        is_inspected = known and (not self._interrupted or "inspection" in vars(candidate))
        loaded = candidate.sample_runner.loaded if "sample_runner" in vars(candidate) else None
        samples = candidate.samples if "samples" in vars(candidate) else ()
        if self._interrupted:
            verdict = GateVerdict.INTERRUPTED
        elif self._blocking:
            verdict = GateVerdict.NOT_PROVED if self._blocking == [PROOF] else GateVerdict.REFUSED
        elif self._done[PROOF].verdict is Verdict.FAILED:  # also if marpack.yaml downgrades it
            verdict = GateVerdict.NOT_PROVED
        elif any(checked.left_out for checked in self._done.values()):
            verdict = GateVerdict.PARTIAL
        else:
            verdict = GateVerdict.DEPLOYABLE
        return GateReport(
            archive=candidate.source,
            project=str(candidate.resolved.project.folder) if candidate.resolved.project else None,
            content_digest=identity.content_digest,
            target=candidate.target if known else candidate.options.target or Target.TORCHSERVE,
            unserved=_find_unserved_suffix(candidate) if is_inspected else None,
            source_commit=identity.source_commit,
            model=identity.model,
            loaded=loaded.handler if loaded else None,
            device=loaded.device if loaded else None,
            verdict=verdict,
            deployable=verdict is GateVerdict.DEPLOYABLE,
            reservations=tuple(_find_reservations(candidate, self._choice)) if known or not self._interrupted else (),
            interrupted=self._interrupted,
            checks=tuple(self._done[each.name] for each in self._checks),
            samples=len(samples),
            generated=sum(sample.is_generated for sample in samples),
            seconds=round(seconds, 3),
        )


def _find_reservations(candidate: Candidate, choice: frozenset[str]) -> Iterator[str]:
    """Yield the options and settings that make a yes weaker than that of a plain `marpack check`."""
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
    if options.target is not None and options.target is not candidate.declared_target:
        yield f"--target {options.target} was given, the archive is for {candidate.declared_target}"


def _find_unserved_suffix(candidate: Candidate) -> str | None:
    """Return the weights' suffix if the handler leaves loading to the server, and the server has no loader for it."""
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
