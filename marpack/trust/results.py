"""What signing and verifying come to, as data; whoever only reads it needs no cryptography."""

from typing import Literal

from msgspec import Struct

from marpack.findings import Finding, Severity


class Signer(Struct, frozen=True):
    """Who signed."""

    kind: Literal["key", "certificate"]
    name: str  # the key's fingerprint, or the certificate's subject

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Signed(Struct, frozen=True, kw_only=True):
    """A signature that was made: the result of `marpack sign`, and its JSON."""

    archive: str
    sha256: str  # of the archive's file
    signature: str  # the file
    signer: Signer
    findings: tuple[Finding, ...] = ()


class CheckClaim(Struct, frozen=True, kw_only=True):
    """That an archive may be deployed, and who says so."""

    attestation: str  # the file
    signer: Signer | None  # None: nobody did, so that anybody may have written it
    target: str
    samples: int
    device: str | None = None
    caveats: tuple[str, ...] = ()
    marpack: str | None = None  # its version
    source_commit: str | None = None


class Verification(Struct, frozen=True, kw_only=True):
    """Who vouches for an archive: the result of `marpack verify`, and its JSON."""

    archive: str
    sha256: str  # of the file
    signature: str | None = None  # the file; None if none was verified
    signer: Signer | None = None
    check: CheckClaim | None = None  # None if none was asked for


def refusal(code: str, message: str, where: str) -> Finding:
    """Return one reason why nobody vouches for a file."""
    return Finding(code=code, severity=Severity.ERROR, message=message, where=where)
