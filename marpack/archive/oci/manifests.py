"""What a registry keeps of an archive: manifests, lists of referrers, and the kinds of what refers to it (OCI 1.1)."""

import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from marpack.archive.index import Size
from marpack.archive.protocol import ArchiveForm
from marpack.archive.transfers import AttachmentKind
from marpack.errors import DamagedArchiveError, NotAnArchiveError, UsageError, shortened

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
LIST_TYPE = "application/vnd.oci.image.index.v1+json"
_DOCKER_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
ACCEPTED = f"{MANIFEST_TYPE}, {LIST_TYPE}, {_DOCKER_TYPE}, {_DOCKER_LIST}"  # what one tag may stand for
ARCHIVE_TYPE = "application/vnd.marpack.archive.v1"
LAYER_TYPES = {  # media type of an archive's bytes → its suffix, by which the server tells its form
    "application/vnd.marpack.mar.v1": ".mar",
    "application/vnd.marpack.mar.v1.tar+gzip": ".tar.gz",
}
LAYER_OF = dict(zip((ArchiveForm.MAR, ArchiveForm.TGZ), LAYER_TYPES, strict=True))
TITLE = "org.opencontainers.image.title"  # the file's name, as oras and others understand it
MODEL_NAME, MODEL_VERSION = "org.marpack.model.name", "org.marpack.model.version"
CONTENT_DIGEST = "org.marpack.content-digest"
MAX_MANIFEST = 4 << 20  # bytes, which the specification has every registry take
MAX_ATTACHMENT = 64 << 20  # bytes; attestations and the like have some thousand
_SIGSTORE = "application/vnd.dev.sigstore.bundle"
_STATEMENT = "https://in-toto.io/Statement/"
_REPULL = "push the archive again: marpack push"
_LISTED = "the list of referrers"
_Kind = TypeVar("_Kind")

Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]


class Descriptor(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What names some bytes: their kind, digest and size."""

    media_type: str
    digest: Digest
    size: Size  # bytes
    annotations: dict[str, str] = {}
    artifact_type: str | None = None  # in a list of referrers

    @property
    def hex(self) -> str:
        """The digest without its algorithm."""
        return self.digest.partition(":")[2]


class ImageManifest(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An artifact's or an image's manifest."""

    schema_version: Literal[2]
    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    artifact_type: str | None = None
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class ReferrerList(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An index whose manifests refer to one subject; entries stay as whoever made them wrote them."""

    schema_version: Literal[2]
    media_type: str
    manifests: tuple[Raw, ...]
    annotations: dict[str, str] = {}


class ListedReferrer(Struct, frozen=True, rename="camel"):
    """What a list tells of one referrer; other tools' may be named by other digests than ours."""

    digest: str
    artifact_type: str | None = None


EMPTY = b"{}"  # the config of what has none
EMPTY_CONFIG = Descriptor(
    media_type="application/vnd.oci.empty.v1+json", digest=f"sha256:{hashlib.sha256(EMPTY).hexdigest()}", size=2
)


def digest_of_bytes(data: bytes) -> str:
    """Return the digest that names these bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def described(data: bytes, media_type: str, **further: Any) -> Descriptor:  # Any: fields of a descriptor
    """Return what names these bytes."""
    return Descriptor(media_type=media_type, digest=digest_of_bytes(data), size=len(data), **further)


def encoded(manifest: Struct) -> bytes:
    """Return a manifest's bytes, always the same for the same values."""
    return msgspec.json.encode(manifest, order="deterministic")


def archive_manifest(layer: Descriptor, annotations: dict[str, str]) -> ImageManifest:
    """Return the manifest of an archive; with no time in it, so that the same archive has the same one."""
    return ImageManifest(
        schema_version=2,
        media_type=MANIFEST_TYPE,
        artifact_type=ARCHIVE_TYPE,
        config=EMPTY_CONFIG,
        layers=(layer,),
        annotations=annotations,
    )


def attachment_manifest(layer: Descriptor, subject: Descriptor) -> ImageManifest:
    """Return the manifest of what refers to an archive."""
    return ImageManifest(
        schema_version=2,
        media_type=MANIFEST_TYPE,
        artifact_type=layer.media_type,
        config=EMPTY_CONFIG,
        layers=(layer,),
        subject=subject,
    )


def kind_of(data: bytes, where: str) -> AttachmentKind:
    """Return what a file beside an archive is, by its content, never by its name. Raises UsageError."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        if str(content.get("mediaType")).startswith(_SIGSTORE):
            return AttachmentKind.SIGNATURE
        if {"payload", "payloadType", "signatures"} <= content.keys() or _is_statement(content):
            return AttachmentKind.ATTESTATION
        if content.get("bomFormat") == "CycloneDX":
            return AttachmentKind.SBOM
    raise UsageError(
        "this is no signature, attestation or SBOM that could be attached",
        where=where,
        hint="attach a Sigstore bundle, an in-toto statement or its DSSE envelope, or CycloneDX, each as JSON",
        code="unknown-attachment",
    )


def _is_statement(content: dict[str, Any]) -> bool:  # Any: JSON
    return str(content.get("_type")).startswith(_STATEMENT)


def read_manifest(data: bytes, where: str) -> ImageManifest:
    """Parse a manifest's bytes. Raises NotAnArchiveError for other kinds, DamagedArchiveError for what is none."""
    media_type = _media_type(data, where)
    if media_type in (LIST_TYPE, _DOCKER_LIST):
        raise NotAnArchiveError(
            "this is an index of several manifests, not an archive", where=where, hint="name the archive's own tag"
        )
    return _decoded(data, ImageManifest, "the manifest", where, _REPULL)


def _decoded(data: bytes | Raw, kind: type[_Kind], what: str, where: str, hint: str | None = None) -> _Kind:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{what} cannot be read: {shortened(str(error), 200)}"
        raise DamagedArchiveError(message, where=where, hint=hint) from error


def _media_type(data: bytes, where: str) -> object:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        hint = "check host and repository: this is a web server, or a proxy in between"
        raise NotAnArchiveError("no OCI registry answers there: what it sends is no manifest", where=where, hint=hint)
    return content.get("mediaType")


def archive_layer(manifest: ImageManifest, where: str) -> Descriptor:
    """Return what names the archive's bytes. Raises NotAnArchiveError for the manifest of anything else."""
    if manifest.artifact_type != ARCHIVE_TYPE:
        what = manifest.artifact_type or manifest.config.media_type
        hint = "push the archive under another tag: marpack push"
        raise NotAnArchiveError(f"this holds no archive: it is {shortened(what)}", where=where, hint=hint)
    if len(manifest.layers) != 1:
        raise NotAnArchiveError(f"this holds {len(manifest.layers)} layers, an archive has one", where=where)
    layer = manifest.layers[0]
    if layer.media_type not in LAYER_TYPES:
        hint = "pip install --upgrade marpack"
        raise NotAnArchiveError(f"its layer is {shortened(layer.media_type)}, no archive", where=where, hint=hint)
    return layer


def attachment_layer(manifest: ImageManifest, subject: str, where: str) -> Descriptor:
    """Return what names an attachment's bytes. Raises DamagedArchiveError where it refers to something else."""
    if manifest.subject is None or manifest.subject.digest != subject:
        what = "it is listed as a referrer, and refers to something else"
        raise DamagedArchiveError(what, where=where, code="referrer-mismatch")
    if len(manifest.layers) != 1:
        raise DamagedArchiveError(f"it holds {len(manifest.layers)} files, an attachment is one", where=where)
    layer = manifest.layers[0]
    if layer.size > MAX_ATTACHMENT:
        raise DamagedArchiveError(f"it has {layer.size:,} bytes, {MAX_ATTACHMENT:,} is the most", where=where)
    return layer


def read_list(data: bytes, where: str) -> ReferrerList:
    """Parse a list of referrers. Raises DamagedArchiveError."""
    return _decoded(data, ReferrerList, _LISTED, where)


def entries_of(found: ReferrerList, where: str) -> list[ListedReferrer]:
    """Return a list's entries. Raises DamagedArchiveError."""
    return [_decoded(entry, ListedReferrer, _LISTED, where) for entry in found.manifests]


NO_REFERRERS = ReferrerList(schema_version=2, media_type=LIST_TYPE, manifests=())


def with_entry(found: ReferrerList, new: Descriptor, where: str) -> ReferrerList:
    """Return a list with an entry that it had not; what was there keeps its place and its bytes."""
    if any(entry.digest == new.digest for entry in entries_of(found, where)):
        return found
    return replace(found, manifests=(*found.manifests, Raw(encoded(new))))
