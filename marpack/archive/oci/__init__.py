"""Archives in OCI registries: the results of pushing and pulling, which need no connection to read."""

from enum import StrEnum

from msgspec import Struct


class AttachmentKind(StrEnum):
    """A kind of file beside an archive, by its media type."""

    SIGNATURE = "application/vnd.dev.sigstore.bundle.v0.3+json"
    ATTESTATION = "application/vnd.in-toto+json"
    SBOM = "application/vnd.cyclonedx+json"

    @property
    def suffix(self) -> str:
        """The suffix that follows the archive's name."""
        return {self.SIGNATURE: ".sig", self.ATTESTATION: ".intoto.json", self.SBOM: ".cdx.json"}[self]


class Attachment(Struct, frozen=True, kw_only=True):
    """A file beside an archive."""

    kind: AttachmentKind  # its media type
    file: str
    digest: str  # "sha256:…" of the file
    size: int  # bytes


class PushReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack push --json`."""

    source: str
    reference: str  # by the manifest's digest, which no later push changes
    digest: str  # "sha256:…" of the manifest
    archive: str  # "sha256:…" of the file
    size: int  # bytes of the file
    sent: int  # bytes of the blobs that the registry did not have
    attached: tuple[Attachment, ...] = ()


class PullReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack pull --json`."""

    reference: str  # by the manifest's digest, which no later push changes
    digest: str  # "sha256:…" of the manifest
    file: str
    archive: str  # "sha256:…" of the file
    size: int  # bytes of the file
    attached: tuple[Attachment, ...] = ()  # attached files
    left: tuple[str, ...] = ()  # media types of other referrers, which were not fetched
