"""Archives pushed to and pulled from a registry, with their signatures, attestations and SBOMs."""

import hashlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from marpack.archive.addresses import Reference
from marpack.archive.cache import check_size
from marpack.archive.copying import file_digest
from marpack.archive.index import content_digest
from marpack.archive.oci import Attachment, AttachmentKind, PullReport, PushReport
from marpack.archive.oci.repository import (
    ARCHIVE_TYPE,
    LAYER_TYPES,
    MANIFEST_TYPE,
    TITLE,
    Descriptor,
    ImageManifest,
    copy_verified,
    describe,
    encoded,
    fetch_manifest,
    find_archive,
    put_manifest,
    put_referrer,
    referrers,
    title_of,
    upload,
)
from marpack.archive.oci.session import RegistrySession
from marpack.archive.protocol import ArchiveForm, Bar, check_member_name, no_progress
from marpack.archive.reader import open_archive
from marpack.archive.staging import staged_file
from marpack.errors import (
    DamagedArchiveError,
    OutputError,
    OutputExistsError,
    UsageError,
    convert_os_errors,
    located,
)

_LAYER_OF = dict(zip((ArchiveForm.MAR, ArchiveForm.TGZ), LAYER_TYPES, strict=True))
_MODEL_NAME, _MODEL_VERSION = "org.marpack.model.name", "org.marpack.model.version"
_CONTENT_DIGEST = "org.marpack.content-digest"
_MAX_ATTACHMENT = 64 << 20  # bytes; attestations have some thousand
_SIGSTORE = "application/vnd.dev.sigstore.bundle"
_STATEMENT = "https://in-toto.io/Statement/"
EMPTY = b"{}"  # the config of an artifact without one
_EMPTY_CONFIG = Descriptor(
    media_type="application/vnd.oci.empty.v1+json", digest=f"sha256:{hashlib.sha256(EMPTY).hexdigest()}", size=2
)
_MAX_ATTACHMENTS = 64
_ATTACH = "Attach a Sigstore bundle, an in-toto statement or its DSSE envelope, or a CycloneDX SBOM, each as JSON."
_WITHOUT = "Pull the archive without its attachments: --no-attached"


class PushPlan(Struct, frozen=True, kw_only=True):
    """The archive and the attachments to push, read once."""

    path: Path
    layer: Descriptor
    annotations: dict[str, str]
    attachments: tuple[tuple[Attachment, bytes], ...] = ()


def plan_push(path: Path, attach: Sequence[Path] = (), *, beside: bool = True, bar: Bar = no_progress) -> PushPlan:
    """Read an archive and its attachments.

    With `beside`, also attach the files under the usual names: x.mar.sig, x.mar.intoto.json, x.mar.cdx.json.

    Raises UsageError for files that cannot be pushed, ArchiveError for a file that is not an archive.
    """
    if not path.is_file():
        what = "a model folder cannot be pushed" if path.is_dir() else "the file does not exist"
        raise UsageError(what, where=str(path), hint="Name a .mar or a .tar.gz. To build one: marpack build")
    with open_archive(path) as archive:
        form, model = archive.form, archive.manifest.model
        known = {_MODEL_NAME: model.name, _MODEL_VERSION: model.version, _CONTENT_DIGEST: content_digest(archive)}
    suffix = LAYER_TYPES[_LAYER_OF[form]]
    if not path.name.endswith(suffix) or path.name.startswith("."):
        hint = f"Rename the file: {path.name.lstrip('.').split('.')[0] or 'model'}{suffix}"
        raise UsageError(f"the name of an archive of this form must end in {suffix}", where=str(path), hint=hint)
    with located(str(path)):
        check_member_name(path.name)
    usual = [path.with_name(path.name + kind.suffix) for kind in AttachmentKind] if beside else []
    files = [*attach, *(each for each in usual if each.is_file() and each not in attach)]
    with bar("reading", path.stat().st_size) as progress:
        digest = f"sha256:{file_digest(path, progress)}"
    return PushPlan(
        path=path,
        layer=Descriptor(
            media_type=_LAYER_OF[form], annotations={TITLE: path.name}, size=path.stat().st_size, digest=digest
        ),
        annotations={name: str(value) for name, value in known.items() if value is not None},
        attachments=tuple(map(_read_attachment, files)),
    )


def _read_attachment(path: Path) -> tuple[Attachment, bytes]:
    where = f"--attach {path}"
    with convert_os_errors(UsageError, "it cannot be read", where=where):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("the attachment is not a regular file", where=where, hint=_ATTACH)
        if status.st_size > _MAX_ATTACHMENT:
            what = f"the attachment has {status.st_size:,} bytes; the maximum is {_MAX_ATTACHMENT:,}"
            raise UsageError(what, where=where, hint=_ATTACH, code="attachment-too-large")
        data = path.read_bytes()
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        content = {}
    if str(content.get("mediaType")).startswith(_SIGSTORE):
        kind = AttachmentKind.SIGNATURE
    elif {"payload", "payloadType", "signatures"} <= content.keys() or str(content.get("_type")).startswith(_STATEMENT):
        kind = AttachmentKind.ATTESTATION
    elif content.get("bomFormat") == "CycloneDX":
        kind = AttachmentKind.SBOM
    else:
        raise UsageError("not a signature, attestation or SBOM", where=where, hint=_ATTACH, code="unknown-attachment")
    found = describe(data, kind)
    return Attachment(kind=kind, file=str(path), digest=found.digest, size=found.size), data


def check_tag(reference: Reference) -> str:
    """Return the tag to set; raise UsageError for a reference without a tag or with a digest."""
    if reference.tag is None or reference.digest is not None:
        hint = f"Add a tag: oci://{reference.host}/{reference.repository}:TAG"
        what = "an archive is pushed under a tag; its digest follows from its bytes"
        raise UsageError(what, where=str(reference), hint=hint, code="tag-required")
    return reference.tag


def push(session: RegistrySession, plan: PushPlan, *, bar: Bar = no_progress) -> PushReport:
    """Send the blobs that the registry does not have; set the tag last. Raises RegistryError."""
    tag = check_tag(session.reference)
    manifest = ImageManifest(
        schema_version=2,
        media_type=MANIFEST_TYPE,
        artifact_type=ARCHIVE_TYPE,
        config=_EMPTY_CONFIG,
        layers=(plan.layer,),
        annotations=plan.annotations,
    )
    subject = describe(encoded(manifest), MANIFEST_TYPE, artifact_type=manifest.artifact_type)

    @contextmanager
    def opened() -> Iterator[BinaryIO]:
        with plan.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != plan.layer.size:
                what, hint = "the file changed while it was pushed", "Push it again when no program writes to it."
                raise UsageError(what, where=str(plan.path), hint=hint, code="file-changed")
            yield file

    with bar("pushing", plan.layer.size) as progress:
        sent = upload(session, plan.layer, opened, progress)
    sent += upload(session, _EMPTY_CONFIG, lambda: io.BytesIO(EMPTY))
    put_manifest(session, manifest, subject.digest, MANIFEST_TYPE)
    for attachment, data in plan.attachments:
        layer = describe(data, attachment.kind, annotations={TITLE: Path(attachment.file).name})
        sent += upload(session, layer, lambda data=data: io.BytesIO(data))  # type: ignore[misc]  # bound at once
        referrer = ImageManifest(
            schema_version=2,
            media_type=MANIFEST_TYPE,
            artifact_type=layer.media_type,
            config=_EMPTY_CONFIG,
            layers=(layer,),
            subject=subject,
        )
        put_referrer(session, referrer, subject.digest)
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


def pull(
    session: RegistrySession,
    output: str | None = None,
    *,
    replace: bool = False,
    attached: bool = True,
    maximum: int,
    bar: Bar = no_progress,
) -> PullReport:
    """Fetch an archive of up to `maximum` bytes and, if `attached`, its attachments, all verified: all files or none.

    The output is a file, or a folder (an existing one, or one with a final slash), by default the current one.

    Raises RegistryError, ArchiveError for other content, OutputExistsError, OutputError.
    """
    digest, layer = find_archive(session)
    check_size(layer.size, maximum, session.where)
    suffix = LAYER_TYPES[layer.media_type]
    if output is None or output.endswith("/") or Path(output).is_dir():
        target = Path(output or "") / title_of(layer, session.reference)
    elif output.endswith(suffix):
        target = Path(output)
    else:
        what = f"the server recognizes an archive's form by its name: this one's must end in {suffix}"
        hint = f"Name a folder, or a file that ends in {suffix}."
        raise UsageError(what, where=f"-o {output}", hint=hint, code="wrong-suffix")
    attachments, left = _find_attachments(session, digest, target) if attached else ([], ())
    layers: list[tuple[Descriptor | Attachment, Path]] = [(layer, target)]
    layers += [(each, Path(each.file)) for each in attachments]
    _fetch_all(session, layers, replace=replace, bar=bar)
    return PullReport(
        reference=str(session.reference.by_digest(digest)),
        digest=digest,
        file=str(target),
        archive=layer.digest,
        size=layer.size,
        attached=tuple(attachments),
        left=left,
    )


def _fetch_all(
    session: RegistrySession, layers: list[tuple[Descriptor | Attachment, Path]], *, replace: bool, bar: Bar
) -> None:
    """Write all files, or none; the first one, the archive, gets its name last."""
    new = {path for _, path in layers if not os.path.lexists(path)}
    if not replace and (existing := next((path for _, path in layers if path not in new), None)):
        raise OutputExistsError("the output already exists", where=str(existing))

    with ExitStack() as undo, convert_os_errors(OutputError, "the archive cannot be written", where=str(layers[0][1])):

        def remember(path: Path) -> Callable[..., None]:
            def on_exit(kind: type[BaseException] | None, *_: object) -> None:
                if kind is None and path in new:  # it got its name, and loses it if another file does not get one
                    undo.callback(path.unlink, missing_ok=True)

            return on_exit

        # Files get their names in reverse order.
        with ExitStack() as files, bar("pulling", sum(layer.size for layer, _ in layers)) as progress:
            staged = []
            for _, path in layers:
                files.push(remember(path))
                staged.append(files.enter_context(staged_file(path, replace=replace)))
            for (layer, _), file in zip(layers, staged, strict=True):
                copy_verified(session, layer, file, progress)
        undo.pop_all()


def _find_attachments(session: RegistrySession, subject: str, target: Path) -> tuple[list[Attachment], tuple[str, ...]]:
    """Return the attachments to fetch, with their files, and the kinds of the other referrers.

    The first of a kind gets the usual name, the next a number before its suffix.
    """
    kinds, left, found = set(AttachmentKind), [], dict[str, Attachment]()
    for digest, name in referrers(session, subject):
        if name not in kinds or len(found) == _MAX_ATTACHMENTS:
            left.append(name or "unknown")
            continue
        where, kind = f"{session.where}: {digest}", AttachmentKind(name)
        manifest, _ = fetch_manifest(session, digest)
        if manifest.subject is None or manifest.subject.digest != subject:
            what = "it is listed as a referrer, but refers to another manifest"
            raise DamagedArchiveError(what, where=where, hint=_WITHOUT, code="referrer-mismatch")
        if len(manifest.layers) != 1:
            what = f"it has {len(manifest.layers)} files; an attachment has one"
            raise DamagedArchiveError(what, where=where, hint=_WITHOUT)
        layer = manifest.layers[0]
        if layer.size > _MAX_ATTACHMENT:
            what = f"it has {layer.size:,} bytes; the maximum is {_MAX_ATTACHMENT:,}"
            raise DamagedArchiveError(what, where=where, hint=_WITHOUT)
        if layer.digest in found:
            continue
        count = sum(each.kind is kind for each in found.values()) + 1
        file = target.with_name(f"{target.name}{f'.{count}' if count > 1 else ''}{kind.suffix}")
        found[layer.digest] = Attachment(kind=kind, file=str(file), digest=layer.digest, size=layer.size)
    return list(found.values()), tuple(left)
