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


class Verification(Struct, frozen=True, kw_only=True):
    """The result of `marpack verify`, and its JSON."""

    archive: str
    sha256: str  # of the file
    signature: str  # the file
    signer: Signer
    findings: tuple[Finding, ...] = ()
