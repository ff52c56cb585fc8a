"""An archive on its way into a registry, with what belongs to it; what can be wrong is said before anything goes."""

import io
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from marpack.archive.copying import file_digest
from marpack.archive.index import content_digest
from marpack.archive.names import check_member_name
from marpack.archive.oci.blobs import upload
from marpack.archive.oci.manifests import (
    CONTENT_DIGEST,
    EMPTY,
    EMPTY_CONFIG,
    LAYER_OF,
    LAYER_TYPES,
    MANIFEST_TYPE,
    MAX_ATTACHMENT,
    MODEL_NAME,
    MODEL_VERSION,
    TITLE,
    Descriptor,
    archive_manifest,
    attachment_manifest,
    described,
    encoded,
    kind_of,
)
from marpack.archive.oci.repository import put_manifest, put_referrer
from marpack.archive.oci.session import RegistrySession
from marpack.archive.protocol import ArchiveForm, Bar, Progress, no_progress
from marpack.archive.reader import open_archive
from marpack.archive.transfers import Attachment, AttachmentKind, PushReport
from marpack.errors import UsageError, located


class PushPlan(Struct, frozen=True, kw_only=True):
    """What is to be pushed, having been read once."""

    path: Path
    layer: Descriptor
    annotations: dict[str, str]
    attachments: tuple[tuple[Attachment, bytes], ...] = ()


def plan_push(path: Path, attach: Sequence[Path] = (), *, beside: bool = True, bar: Bar = no_progress) -> PushPlan:
    """Read an archive, and what belongs to it.

    Args:
        path: A .mar or a .tar.gz.
        attach: Files to keep beside it.
        beside: Take those, too, that lie beside it under the usual names: x.mar.sig, x.mar.intoto.json, x.mar.cdx.json.
        bar: Shows how far reading is.

    Raises UsageError for files that cannot be pushed, ArchiveError for what is no archive.
    """
    if not path.is_file():
        what = "a model folder cannot be pushed" if path.is_dir() else "there is no such file"
        raise UsageError(what, where=str(path), hint="name a .mar or a .tar.gz; marpack build makes one")
    with open_archive(path) as archive:
        form, model = archive.form, archive.manifest.model
        annotations = {
            MODEL_NAME: model.name,
            MODEL_VERSION: model.version,
            CONTENT_DIGEST: content_digest(archive),
        }
    _check_title(path, form)
    files = [*attach, *(each for each in _beside(path) if beside and each not in attach)]
    layer = Descriptor(
        media_type=LAYER_OF[form], annotations={TITLE: path.name}, size=path.stat().st_size, digest=_digest(path, bar)
    )
    known = {name: str(value) for name, value in annotations.items() if value is not None}
    return PushPlan(path=path, layer=layer, annotations=known, attachments=tuple(map(_attachment, files)))


def push(session: RegistrySession, plan: PushPlan, *, bar: Bar = no_progress) -> PushReport:
    """Send what the registry does not have; the tag is set last, when everything is there.

    Raises RegistryError.
    """
    tag = writable_tag(session)
    manifest = archive_manifest(plan.layer, plan.annotations)
    subject = described(encoded(manifest), MANIFEST_TYPE, artifact_type=manifest.artifact_type)
    with bar("pushing", plan.layer.size) as progress:
        sent = upload_file(session, plan.path, plan.layer, progress)
    sent += upload_bytes(session, EMPTY_CONFIG, EMPTY)
    put_manifest(session, manifest, subject.digest, MANIFEST_TYPE)
    for attachment, data in plan.attachments:
        layer = described(data, attachment.kind, annotations={TITLE: Path(attachment.file).name})
        sent += upload_bytes(session, layer, data)
        put_referrer(session, attachment_manifest(layer, subject), subject.digest)
    put_manifest(session, manifest, tag, MANIFEST_TYPE)
    return PushReport(
        source=str(plan.path),
        reference=str(session.reference.by_digest(subject.digest)),
        digest=subject.digest,
        archive=plan.layer.digest,
        size=plan.layer.size,
        sent=sent,
        attached=tuple(attachment for attachment, _ in plan.attachments),
    )


def writable_tag(session: RegistrySession) -> str:
    """Return the tag that is to be set; raises UsageError where there is none, or a digest beside it."""
    reference = session.reference
    if reference.tag is None or reference.digest is not None:
        hint = f"write {reference.host}/{reference.repository}:TAG behind oci://"
        what = "what is pushed has the digest that it has: only a tag can be set"
        raise UsageError(what, where=str(reference), hint=hint, code="tag-required")
    return reference.tag


def upload_bytes(session: RegistrySession, blob: Descriptor, data: bytes) -> int:
    """Send a few bytes unless they are there; return how many were sent."""
    return blob.size if upload(session, blob, lambda: io.BytesIO(data)) else 0


def upload_file(session: RegistrySession, path: Path, blob: Descriptor, progress: Progress | None) -> int:
    """Send a file unless it is there; return how many bytes were sent. Raises UsageError where it changed meanwhile."""
    return blob.size if upload(session, blob, partial(_unchanged, path, blob.size), progress) else 0


@contextmanager
def _unchanged(path: Path, size: int) -> Iterator[BinaryIO]:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != size:
            what, hint = "the file changes while it is pushed", "push it again"
            raise UsageError(what, where=str(path), hint=hint, code="file-changed")
        yield file


def _check_title(path: Path, form: ArchiveForm) -> None:
    """Refuse a name under which nobody could pull the archive."""
    suffix = LAYER_TYPES[LAYER_OF[form]]
    if not path.name.endswith(suffix) or path.name.startswith("."):
        hint = f"rename it: {path.name.lstrip('.').split('.')[0] or 'model'}{suffix}"
        raise UsageError(f"an archive of this form is named …{suffix}", where=str(path), hint=hint)
    with located(str(path)):
        check_member_name(path.name)


def _beside(path: Path) -> Iterator[Path]:
    places = (path.with_name(path.name + kind.suffix) for kind in AttachmentKind)
    return (place for place in places if place.is_file())


def _digest(path: Path, bar: Bar) -> str:
    with bar("reading", path.stat().st_size) as progress:
        return f"sha256:{file_digest(path, progress)}"


def _attachment(path: Path) -> tuple[Attachment, bytes]:
    """Read what is to be attached; raises UsageError for what cannot be."""
    where = f"--attach {path}"
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("this is no file", where=where, hint="name the signature, attestation or SBOM itself")
        if status.st_size > MAX_ATTACHMENT:
            what = f"it has {status.st_size:,} bytes, {MAX_ATTACHMENT:,} is the most"
            raise UsageError(what, where=where, code="attachment-too-large")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", where=where) from None
    kind = kind_of(data, where)
    found = described(data, kind)
    return Attachment(kind=kind, file=str(path), digest=found.digest, size=found.size), data
