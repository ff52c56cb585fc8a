"""Whether somebody who is trusted vouches for an archive: that it is theirs, and that it was checked."""

from pathlib import Path

from msgspec import Struct

from marpack.archive.copying import file_digest
from marpack.archive.protocol import Progress
from marpack.errors import SignatureError, UsageError
from marpack.findings import Finding, Severity
from marpack.trust import signatures
from marpack.trust.attestations import require_check
from marpack.trust.keys import Authority, PublicKey
from marpack.trust.results import Verification


class Trust(Struct, frozen=True, kw_only=True):
    """Who is believed, and what is asked for."""

    signers: PublicKey | Authority | None  # None: nobody signs
    signature: Path | None = None  # None: beside the archive; that one may be missing where a check is asked for
    check: Path | None = None  # an attestation; None: no check is asked for
    checkers: PublicKey | None = None  # None: whoever wrote the attestation


def verify(path: Path, trust: Trust, progress: Progress | None = None) -> Verification:
    """Return who vouches for an archive's file, if those do who are trusted.

    Raises SignatureError, holding everything that is wrong; UsageError for a file that is not there.
    """
    try:
        sha256 = file_digest(path, progress)
    except OSError as error:
        hint = "name a .mar or a .tar.gz"
        raise UsageError(f"the archive cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    refusals: list[SignatureError] = []
    signature = trust.signature or path.with_name(f"{path.name}{signatures.SUFFIX}")
    signer = check = None
    if trust.signers is not None and (trust.signature is not None or trust.check is None or signature.exists()):
        try:
            signer = signatures.verify(path, sha256, signature, trust.signers)
        except SignatureError as error:
            refusals.append(error)
    if trust.check is not None:
        try:
            check = require_check(path, sha256, trust.check, trust.checkers)
        except SignatureError as error:
            refusals.append(error)
    if refusals:
        raise _together(refusals, path)
    where = str(signature) if signer else None
    return Verification(archive=str(path), sha256=sha256, signature=where, signer=signer, check=check)


def _together(refusals: list[SignatureError], path: Path) -> SignatureError:
    """Return several refusals as one."""
    if len(refusals) == 1:
        return refusals[0]
    findings = [finding for each in refusals for finding in each.findings or (_as_finding(each),)]
    what = "neither the signature nor the check vouches for this file"
    return SignatureError(what, where=str(path), findings=tuple(findings))


def _as_finding(error: SignatureError) -> Finding:
    return Finding(code=error.code, severity=Severity.ERROR, message=error.what, where=error.where, hint=error.hint)
