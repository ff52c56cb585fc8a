"""Attestations of `marpack check` as statements that others can verify, and the verification of all that is trusted.

Sources: in-toto Attestation Framework, predicate test-result v0.1.
"""

from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, Self

import msgspec
from msgspec import Struct

from marpack import finding_codes as codes
from marpack.archive.copying import file_digest
from marpack.archive.protocol import Progress
from marpack.errors import SignatureError, UsageError, convert_os_errors, located, shortened
from marpack.findings import Finding, Severity
from marpack.gate.verdicts import LEFT_OUT, GateReport, GateVerdict, Verdict
from marpack.project.schema import PROOF
from marpack.protocol.targets import Target
from marpack.trust import CheckClaim, Signer, Verification
from marpack.trust.keys import Authority, PrivateKey, PublicKey
from marpack.trust.signatures import SUFFIX, Envelope, ResourceDescriptor, Statement, decoded, read_bounded
from marpack.trust.signatures import verify as verify_signature
from marpack.version import __version__

PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
_NAME_ATTESTATION = "Name the file that marpack check --attest wrote."
_PASSED, _WARNED, _FAILED = "PASSED", "WARNED", "FAILED"  # the predicate's results


class CheckedFile(Struct, frozen=True):
    """A file in its state before a check."""

    path: Path
    sha256: str
    state: tuple[int, ...]  # device, inode, size, times of its last changes in ns

    @classmethod
    def of(cls, path: Path, progress: Progress | None = None) -> Self:
        """Read a file. Raises UsageError for a folder and for an unreadable file."""
        where, code = str(path), "unreadable-file"
        with convert_os_errors(UsageError, "the archive cannot be read", where=where, code=code):
            state = _state(path)
            return cls(path, file_digest(path, progress), state)

    def confirm(self) -> None:
        """Raise SignatureError if the file may have changed."""
        try:
            unchanged = _state(self.path) == self.state
        except OSError:
            unchanged = False
        if not unchanged:
            what = "the archive changed during the check, so it gets no attestation"
            hint = "Check it again, and do not build it at the same time."
            raise SignatureError(what, where=str(self.path), hint=hint, code="file-changed")


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    if not S_ISREG(status.st_mode):
        what = "a folder has no SHA-256 to attest"
        raise UsageError(what, where=str(path), hint="Pack it: marpack build", code="not-a-file")
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Checked(Struct, frozen=True):
    name: str
    verdict: str
    reason: str


class _Circumstances(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Facts without a field in the predicate: the annotations of its configuration."""

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


class _Configuration(Struct, frozen=True, kw_only=True):
    annotations: _Circumstances
    name: str = ""
    uri: str = ""


class _TestResult(Struct, frozen=True, kw_only=True, rename="camel"):
    result: str
    configuration: tuple[_Configuration, ...]
    passed_tests: tuple[str, ...]
    warned_tests: tuple[str, ...]
    failed_tests: tuple[str, ...]


def attest(report: GateReport, before: CheckedFile, key: PrivateKey | None, *, versions: dict[str, str]) -> bytes:
    """Return an attestation's bytes: a signed envelope, or the bare statement without a key.

    `before` is the file before the check; `versions` are those of the distributions in the environment that ran it.
    Raises SignatureError if the file changed or the check was interrupted.
    """
    before.confirm()
    if report.interrupted:
        what = "the check was interrupted, so the archive gets no attestation"
        raise SignatureError(what, where=report.archive, hint="Check it again.")
    downgraded = (f"the check {each.name} failed, but only counts as a warning" for each in report.downgraded)
    reservations = (*report.reservations, *downgraded)
    if report.verdict in (GateVerdict.REFUSED, GateVerdict.NOT_PROVED):
        result = _FAILED
    else:
        result = _PASSED if report.deployable and not reservations else _WARNED
    circumstances = _Circumstances(
        verdict=report.verdict,
        target=report.target,
        samples=report.samples - report.generated,  # a generated sample proves nothing
        reservations=reservations,
        model=report.model,
        handler=report.loaded,
        device=report.device,
        caveats=tuple(report.caveats),
        checks=tuple(_Checked(each.name, each.verdict, each.reason) for each in report.checks),
        versions=versions,
        source_commit=report.source_commit,
    )
    uri = f"pkg:pypi/marpack@{__version__}"
    predicate = _TestResult(
        result=result,
        configuration=(_Configuration(name="marpack check", uri=uri, annotations=circumstances),),
        passed_tests=tuple(each.name for each in report.checks if each.verdict is Verdict.PASSED),
        warned_tests=tuple(each.name for each in report.downgraded),
        failed_tests=tuple(each.name for each in report.checks if each.blocks),
    )
    statement = Statement(
        subject=(ResourceDescriptor(before.path.name, {"sha256": before.sha256}),),
        predicate_type=PREDICATE_TYPE,
        predicate=msgspec.to_builtins(predicate),
    ).to_json()
    if key is None:
        return statement + b"\n"
    return msgspec.json.encode(Envelope.sealed(statement, key, keyid=key.public.fingerprint)) + b"\n"


def require_check(path: Path, sha256: str, attestation: Path, key: PublicKey | None) -> CheckClaim:
    """Return the proof that an archive whose file has a SHA-256 may be deployed.

    `key` is the checker's; None: accept the attestation of any author. Raises SignatureError with everything that is
    missing: another file, another signer, a negative result, a result with reservations, or one that the rest of the
    statement contradicts; UsageError for a file that cannot be read.
    """
    where = str(attestation)
    with located(where):
        hint = "Get the attestation from the checker: marpack check --attest FILE --key signer.pem"
        payload = read_bounded(attestation, what="the attestation", hint=hint)
        signer = None
        if "_type" not in decoded(payload, dict[str, Any], what="attestation"):  # Any: JSON
            envelope = decoded(payload, Envelope, what="attestation")
            signer = None if key is None else Signer("key", key.fingerprint)
            payload = envelope.unsigned() if key is None else envelope.opened(key)
        elif key is not None:
            hint = "Sign it during the check: marpack check --attest FILE --key signer.pem"
            raise SignatureError("the attestation is not signed", hint=hint, code="unsigned")
        statement = Statement.from_json(payload)
        if statement.predicate_type != PREDICATE_TYPE:
            what = f"it does not attest a check: {shortened(statement.predicate_type)}"
            raise SignatureError(what, hint=_NAME_ATTESTATION)
        try:
            predicate = msgspec.convert(statement.predicate, _TestResult)
            (configuration,) = predicate.configuration
        except ValueError as error:  # msgspec's errors are ValueErrors
            raise SignatureError(f"marpack check did not write it: {error}", hint=_NAME_ATTESTATION) from error
    found = configuration.annotations
    missing = tuple(_shortfalls(statement, predicate, found, path, sha256, where))
    if missing:
        what = "the attestation does not permit the deployment of this file"
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


def _shortfalls(
    statement: Statement, predicate: _TestResult, found: _Circumstances, path: Path, sha256: str, where: str
) -> Iterator[Finding]:
    """Yield the reasons why a statement proves nothing about this file."""
    result = predicate.result
    attested = [subject.digest.get("sha256") for subject in statement.subject]
    if attested != [sha256]:
        others = ", ".join(str(each) for each in attested) or "none"
        yield codes.CHECKED_FILE.at(str(path), sha256=sha256, others=others)
    if result == _FAILED or found.verdict != GateVerdict.DEPLOYABLE:
        yield codes.CHECK_FAILED.at(where, verdict=found.verdict)
    elif result != _PASSED and not found.reservations:
        yield codes.CHECK_NOT_PASSED.at(where, result=result, passed=_PASSED)
    for reason in found.reservations:
        yield codes.CHECK_RESERVED.at(where, reason=reason)
    if result == _PASSED and found.verdict == GateVerdict.DEPLOYABLE and not found.reservations:
        for reason in _contradictions(predicate, found):
            yield codes.CHECK_INCONSISTENT.at(where, reason=reason)


def _contradictions(predicate: _TestResult, found: _Circumstances) -> Iterator[str]:
    """Yield the contradictions in a statement that says that the archive may be deployed.

    `attest` writes no such statement: it was made by something else, or changed before it was signed.
    """
    passed = [each.name for each in found.checks if each.verdict == Verdict.PASSED]
    names = [each.name for each in found.checks]
    if found.samples < 1:
        yield f"its number of samples is {found.samples}"
    if found.target not in set(Target):
        yield f"its target {found.target!r} does not exist"
    if PROOF not in passed:
        yield f"{PROOF} is not among the checks that passed"
    for each in found.checks:
        if each.verdict not in (Verdict.PASSED, Verdict.SKIPPED) or each.reason == LEFT_OUT:
            how = each.reason if each.reason == LEFT_OUT else each.verdict
            yield f"{each.name} was {how}"
    if len(set(names)) < len(names):
        yield "a check is listed twice"
    if list(predicate.passed_tests) != passed or predicate.warned_tests or predicate.failed_tests:
        yield "passedTests, warnedTests and failedTests do not agree with the list of checks"


class Trust(Struct, frozen=True, kw_only=True):
    """The trusted keys and the required documents."""

    signers: PublicKey | Authority | None  # None: no signature is verified
    signature: Path | None = None  # None: beside the archive; optional only if its signer is the trusted checker
    check: Path | None = None  # an attestation; None: no check is required
    checkers: PublicKey | None = None  # None: any author of the attestation


def verify(path: Path, trust: Trust, progress: Progress | None = None) -> Verification:
    """Return the trusted signer and checker of an archive's file.

    Raises SignatureError with every reason why the file is not trusted; UsageError for a missing file.
    """
    hint = "Name a .mar or a .tar.gz."
    with convert_os_errors(UsageError, "the archive cannot be read", where=str(path), hint=hint):
        sha256 = file_digest(path, progress)
    failures: list[SignatureError] = []
    signature = trust.signature or path.with_name(f"{path.name}{SUFFIX}")
    signer = check = None
    is_optional = trust.check is not None and trust.signature is None and trust.checkers is trust.signers
    if trust.signers is not None and not (is_optional and not signature.exists()):
        try:
            signer = verify_signature(path, sha256, signature, trust.signers)
        except SignatureError as error:
            failures.append(error)
    if trust.check is not None:
        try:
            check = require_check(path, sha256, trust.check, trust.checkers)
        except SignatureError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        findings: list[Finding] = []
        for each in failures:
            own = Finding(code=each.code, severity=Severity.ERROR, message=each.what, where=each.where, hint=each.hint)
            findings += each.findings or (own,)
        what = "neither the signature nor the check result is valid for this file"
        raise SignatureError(what, where=str(path), findings=tuple(findings))
    where = str(signature) if signer else None
    return Verification(archive=str(path), sha256=sha256, signature=where, signer=signer, check=check)
