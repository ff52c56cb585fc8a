"""What is told of archives that went to a registry or came from one; nothing here talks to any."""

from enum import StrEnum

from msgspec import Struct


class AttachmentKind(StrEnum):
    """What is kept beside an archive, by its media type."""

    SIGNATURE = "application/vnd.dev.sigstore.bundle.v0.3+json"
    ATTESTATION = "application/vnd.in-toto+json"
    SBOM = "application/vnd.cyclonedx+json"

    @property
    def suffix(self) -> str:
        """What such a file's name adds to the archive's."""
        return _SUFFIXES[self]


_SUFFIXES = {
    AttachmentKind.SIGNATURE: ".sig",
    AttachmentKind.ATTESTATION: ".intoto.json",
    AttachmentKind.SBOM: ".cdx.json",
}


class Attachment(Struct, frozen=True, kw_only=True):
    """What is kept beside an archive."""

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

    reference: str  # by the manifest's digest, whatever the tag stands for by now
    digest: str  # "sha256:…" of the manifest
    file: str
    archive: str  # "sha256:…" of the file
    size: int  # bytes of the file
    attached: tuple[Attachment, ...] = ()  # files beside it
    left: tuple[str, ...] = ()  # media types of what else refers to it, which was not fetched
