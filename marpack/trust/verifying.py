"""Verification of an archive's signature and check result against trusted keys."""

from pathlib import Path

from msgspec import Struct

from marpack.archive.copying import file_digest
from marpack.archive.protocol import Progress
from marpack.errors import SignatureError, UsageError, convert_os_errors
from marpack.findings import Finding, Severity
from marpack.trust import Verification, signatures
from marpack.trust.attestations import require_check
from marpack.trust.keys import Authority, PublicKey


class Trust(Struct, frozen=True, kw_only=True):
    """The trusted keys and the required documents."""

    signers: PublicKey | Authority | None  # None: no signature is verified
    signature: Path | None = None  # None: beside the archive; it is optional where a check is required
    check: Path | None = None  # an attestation; None: no check is required
    checkers: PublicKey | None = None  # None: any author of the attestation


def verify(path: Path, trust: Trust, progress: Progress | None = None) -> Verification:
    """Return the trusted signer and checker of an archive's file.

    Raises SignatureError with every reason why the file is not trusted; UsageError for a missing file.
    """
    hint = "name a .mar or a .tar.gz"
    with convert_os_errors(UsageError, "the archive cannot be read", where=str(path), hint=hint):
        sha256 = file_digest(path, progress)
    failures: list[SignatureError] = []
    signature = trust.signature or path.with_name(f"{path.name}{signatures.SUFFIX}")
    signer = check = None
    if trust.signers is not None and (trust.signature is not None or trust.check is None or signature.exists()):
        try:
            signer = signatures.verify(path, sha256, signature, trust.signers)
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
