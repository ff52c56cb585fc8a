"""Results of signing and verifying; reading them needs no cryptography."""

from typing import Literal

from msgspec import Struct

from marpack.findings import Finding


class Signer(Struct, frozen=True):
    """The signer of a file."""

    kind: Literal["key", "certificate"]
    name: str  # the key's fingerprint, or the certificate's subject

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Signed(Struct, frozen=True, kw_only=True):
    """The result of `marpack sign`, and its JSON."""

    archive: str
    sha256: str  # of the archive's file
    signature: str  # the file
    signer: Signer
    findings: tuple[Finding, ...] = ()


class CheckClaim(Struct, frozen=True, kw_only=True):
    """The statement that an archive may be deployed, and its signer."""

    attestation: str  # the file
    signer: Signer | None  # None: the attestation is unsigned
    target: str
    samples: int
    device: str | None = None
    caveats: tuple[str, ...] = ()
    marpack: str | None = None  # its version
    source_commit: str | None = None


class Verification(Struct, frozen=True, kw_only=True):
    """The result of `marpack verify`, and its JSON."""

    archive: str
    sha256: str  # of the file
    signature: str | None = None  # the file; None: none was verified
    signer: Signer | None = None
    check: CheckClaim | None = None  # None: none was required
