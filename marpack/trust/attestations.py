"""What `marpack check` found of an archive, as a statement that others can hold against the file and its maker.

Sources: in-toto Attestation Framework, predicate test-result v0.1.
"""

from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, Self

import msgspec
from msgspec import Struct

from marpack.archive.copying import file_digest
from marpack.archive.protocol import Progress
from marpack.errors import SignatureError, UsageError
from marpack.findings import Finding
from marpack.gate.verdicts import LEFT_OUT, GateReport, GateVerdict, Verdict
from marpack.project.schema import PROOF
from marpack.protocol.targets import Target
from marpack.trust.keys import PrivateKey, PublicKey
from marpack.trust.results import CheckClaim, Signer, refusal
from marpack.trust.statements import Envelope, ResourceDescriptor, Statement, decoded, read_bounded
from marpack.version import __version__

PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
_PASSED, _WARNED, _FAILED = "PASSED", "WARNED", "FAILED"  # the predicate's results


class CheckedFile(Struct, frozen=True):
    """A file as it was before it was checked."""

    path: Path
    sha256: str
    state: tuple[int, ...]  # device, inode, size, times of its last changes in ns

    @classmethod
    def of(cls, path: Path, progress: Progress | None = None) -> Self:
        """Look at a file. Raises UsageError for a folder, and for what cannot be read."""
        try:
            state = _state(path)
            return cls(path, file_digest(path, progress), state)
        except OSError as error:
            what = f"the archive cannot be read: {error.strerror}"
            raise UsageError(what, where=str(path), code="unreadable-file") from error

    def confirm(self) -> None:
        """Raise SignatureError if the file may be another one by now."""
        try:
            unchanged = _state(self.path) == self.state
        except OSError:
            unchanged = False
        if not unchanged:
            what = "the archive changed while it was checked, so nothing is attested of it"
            hint = "check it again, and build nothing meanwhile"
            raise SignatureError(what, where=str(self.path), hint=hint, code="file-changed")


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    if not S_ISREG(status.st_mode):
        what = "only a file can be vouched for, by its SHA-256, and this is a folder"
        raise UsageError(what, where=str(path), hint="pack it: marpack build", code="not-a-file")
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Checked(Struct, frozen=True):
    name: str
    verdict: str
    reason: str


class _Circumstances(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the predicate has no place for: it goes along as annotations of the configuration."""

    verdict: str
    target: str
    samples: int
    reservations: tuple[str, ...]
    model: str | None = None
    handler: str | None = None
    device: str | None = None
    caveats: tuple[str, ...] = ()
    checks: tuple[_Checked, ...] = ()
    versions: dict[str, str] = {}
    source_commit: str | None = None


class _Configuration(Struct, frozen=True):
    annotations: _Circumstances


class _TestResult(Struct, frozen=True, kw_only=True, rename="camel"):
    result: str
    configuration: tuple[_Configuration, ...]
    passed_tests: tuple[str, ...]
    warned_tests: tuple[str, ...]
    failed_tests: tuple[str, ...]


def attest(report: GateReport, before: CheckedFile, key: PrivateKey | None, *, versions: dict[str, str]) -> bytes:
    """Return an attestation's bytes: an envelope with a key, else the statement alone.

    Args:
        report: Of the check that ran between then and now.
        before: The file, as it was before.
        key: Signs; None: nobody does.
        versions: Distribution → version, of what answered.

    Raises SignatureError if the file changed meanwhile, or the check was interrupted.
    """
    before.confirm()
    if report.interrupted:
        raise SignatureError("the check was interrupted, so nothing is attested", where=report.archive)
    circumstances = _Circumstances(
        verdict=report.verdict,
        target=report.target,
        samples=report.samples - report.generated,  # only those that can prove something
        reservations=_reservations(report),
        model=report.model,
        handler=report.loaded,
        device=report.device,
        caveats=tuple(report.caveats),
        checks=tuple(_Checked(each.name, each.verdict, each.reason) for each in report.checks),
        versions=versions,
        source_commit=report.source_commit,
    )
    statement = Statement(
        subject=(ResourceDescriptor(before.path.name, {"sha256": before.sha256}),),
        predicate_type=PREDICATE_TYPE,
        predicate={
            "result": _result(report),
            "configuration": [
                {
                    "name": "marpack check",
                    "uri": f"pkg:pypi/marpack@{__version__}",
                    "annotations": msgspec.to_builtins(circumstances),
                }
            ],
            "passedTests": [each.name for each in report.checks if each.verdict is Verdict.PASSED],
            "warnedTests": [each.name for each in report.weighed_down],
            "failedTests": [each.name for each in report.checks if each.closes],
        },
    ).to_json()
    if key is None:
        return statement + b"\n"
    return msgspec.json.encode(Envelope.sealed(statement, key, keyid=key.public.fingerprint)) + b"\n"


def _reservations(report: GateReport) -> tuple[str, ...]:
    lighter = (f"the check {each.name} failed, and weighs as a warning only" for each in report.weighed_down)
    return (*report.reservations, *lighter)


def _result(report: GateReport) -> str:
    if report.verdict in (GateVerdict.REFUSED, GateVerdict.NOT_PROVED):
        return _FAILED
    return _PASSED if report.deployable and not _reservations(report) else _WARNED


def require_check(path: Path, sha256: str, attestation: Path, key: PublicKey | None) -> CheckClaim:
    """Return the proof that an archive may be deployed.

    Args:
        path: The archive.
        sha256: Of its file.
        attestation: What `marpack check --attest` wrote.
        key: Of whoever checked; None: believe whatever stands there, whoever wrote it.

    Raises SignatureError, holding everything that is missing: another file, another signer, a no, a yes with
    reservations, a yes that the rest of the statement contradicts; UsageError for a file that cannot be read.
    """
    where = str(attestation)
    hint = "whoever checked it has it: marpack check --attest FILE --key signer.pem"
    data = read_bounded(attestation, what="the attestation", hint=hint)
    signer, payload = _opened(data, key, where=where)
    statement = Statement.from_json(payload, where=where)
    if statement.predicate_type != PREDICATE_TYPE:
        raise SignatureError(f"it attests something else than a check: {statement.predicate_type}", where=where)
    try:
        predicate = msgspec.convert(statement.predicate, _TestResult)
        (configuration,) = predicate.configuration
    except ValueError as error:  # msgspec's errors are such, too
        raise SignatureError(f"it is none that marpack check made: {error}", where=where) from error
    found = configuration.annotations
    missing = tuple(_shortfalls(statement, predicate, found, path, sha256, where))
    if missing:
        what = "the attestation does not say that this file may be deployed"
        raise SignatureError(what, where=str(path), findings=missing)
    return CheckClaim(
        attestation=where,
        signer=signer,
        target=found.target,
        samples=found.samples,
        device=found.device,
        caveats=found.caveats,
        marpack=found.versions.get("marpack"),
        source_commit=found.source_commit,
    )


def _opened(data: bytes, key: PublicKey | None, *, where: str) -> tuple[Signer | None, bytes]:
    """Return who signed, and the statement's bytes. Raises SignatureError."""
    shape = decoded(data, dict[str, Any], what="attestation", where=where)  # Any: JSON, to tell two forms apart
    if "_type" in shape:
        if key is not None:
            hint = "have it made with a key: marpack check --attest FILE --key signer.pem"
            what = "nobody signed it, so anybody may have written it"
            raise SignatureError(what, where=where, hint=hint, code="unsigned")
        return None, data
    envelope = decoded(data, Envelope, what="attestation", where=where)
    if key is None:
        return None, envelope.unsigned(where=where)
    return Signer("key", key.fingerprint), envelope.opened(key, where=where)


def _shortfalls(
    statement: Statement, predicate: _TestResult, found: _Circumstances, path: Path, sha256: str, where: str
) -> Iterator[Finding]:
    """Yield what is missing to a proof for this very file."""
    result = predicate.result
    attested = [subject.digest.get("sha256") for subject in statement.subject]
    if attested != [sha256]:
        others = ", ".join(str(each) for each in attested) or "none"
        yield refusal("checked-file", f"its SHA-256 is {sha256}, the check was of {others}", str(path))
    if result == _FAILED or found.verdict != GateVerdict.DEPLOYABLE:
        yield refusal("check-failed", f"the check ended with {found.verdict}", where)
    elif result != _PASSED and not found.reservations:
        yield refusal("check-failed", f"the check's result is {result}, not {_PASSED}", where)
    for each in found.reservations:
        yield refusal("check-reserved", each, where)
    if result == _PASSED and found.verdict == GateVerdict.DEPLOYABLE and not found.reservations:
        for message in _contradictions(predicate, found):
            yield refusal("check-inconsistent", message, where)


def _contradictions(predicate: _TestResult, found: _Circumstances) -> Iterator[str]:
    """Yield what in a statement contradicts its own result, that the archive may be deployed.

    `attest` makes no such statement: somebody else made it, or changed it before it was signed.
    """
    passed = [each.name for each in found.checks if each.verdict == Verdict.PASSED]
    names = [each.name for each in found.checks]
    if found.samples < 1:
        yield f"the result is {_PASSED}, but the number of samples is {found.samples}"
    if found.target not in set(Target):
        yield f"the target {found.target!r} does not exist"
    if PROOF not in passed:
        yield f"the result is {_PASSED}, but the check {PROOF} is not among the checks that passed"
    for each in found.checks:
        if each.verdict not in (Verdict.PASSED, Verdict.SKIPPED) or each.reason == LEFT_OUT:
            how = each.reason if each.reason == LEFT_OUT else each.verdict
            yield f"the result is {_PASSED}, but the check {each.name} was {how}"
    if len(set(names)) < len(names):
        yield "a check is listed twice"
    if list(predicate.passed_tests) != passed or predicate.warned_tests or predicate.failed_tests:
        yield "passedTests, warnedTests and failedTests do not agree with the list of checks"
