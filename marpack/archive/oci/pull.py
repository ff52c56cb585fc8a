"""An archive out of a registry, with what belongs to it: all of it, or nothing."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from msgspec import Struct

from marpack.archive.download import check_size
from marpack.archive.names import check_member_name
from marpack.archive.oci.blobs import RegistryBlob, copy_verified
from marpack.archive.oci.manifests import (
    LAYER_TYPES,
    TITLE,
    Descriptor,
    attachment_layer,
    read_manifest,
)
from marpack.archive.oci.reference import Reference
from marpack.archive.oci.repository import RemoteArchive, find_archive, manifest_bytes, referrers
from marpack.archive.oci.session import RegistrySession
from marpack.archive.protocol import Bar, no_progress
from marpack.archive.staging import staged_file
from marpack.archive.transfers import Attachment, AttachmentKind, PullReport
from marpack.errors import OutputError, OutputExistsError, UnsafeArchiveError, UsageError, convert_os_errors

_MAX_ATTACHMENTS = 64  # more are nobody's idea of a few signatures


class _Wanted(Struct, frozen=True):
    """One file to fetch."""

    layer: Descriptor
    path: Path


def pull(
    session: RegistrySession,
    output: str | None = None,
    *,
    replace: bool = False,
    attached: bool = True,
    maximum: int,
    bar: Bar = no_progress,
) -> PullReport:
    """Fetch an archive, and what refers to it beside it; each byte is held against its digest.

    Args:
        session: Of the reference that is to be fetched.
        output: The file, or a folder (there already, or written with a final slash); None: the current one.
        replace: Whether files that are there may be replaced.
        attached: Whether to fetch signatures, attestations and SBOMs as well.
        maximum: Bytes that the archive may have.
        bar: Shows how far it is.

    Raises RegistryError, ArchiveError for what is no archive or not the one named, OutputExistsError, OutputError.
    """
    remote = find_archive(session)
    check_size(remote.layer.size, maximum, str(session.reference))
    target = _target(output, remote.layer, session.reference)
    kinds, left = _attachments(session, remote) if attached else ([], ())
    beside = [_Wanted(layer, path) for layer, path in zip(kinds, _places(target, kinds), strict=True)]
    _fetch(session, [_Wanted(remote.layer, target), *beside], replace=replace, bar=bar)
    return PullReport(
        reference=str(session.reference.by_digest(remote.digest)),
        digest=remote.digest,
        file=str(target),
        archive=remote.layer.digest,
        size=remote.layer.size,
        attached=tuple(_as_attachment(each) for each in beside),
        left=left,
    )


def title_of(layer: Descriptor, reference: Reference) -> str:
    """Return the name under which an archive is kept: what its maker called it, if that is a file's name and no more.

    Raises UnsafeArchiveError.
    """
    suffix = LAYER_TYPES[layer.media_type]
    title = layer.annotations.get(TITLE) or reference.repository.rpartition("/")[2] + suffix
    if "/" in title or title.startswith(".") or not title.endswith(suffix) or not _is_safe(title):
        what = f"its maker calls the file {title[:80]!a}, which is no name of an archive of this form"
        raise UnsafeArchiveError(what, where=str(reference), hint=f"name the file yourself: -o model{suffix}")
    return title


def _is_safe(title: str) -> bool:
    try:
        check_member_name(title)
    except UnsafeArchiveError:
        return False
    return True


def _target(output: str | None, layer: Descriptor, reference: Reference) -> Path:
    suffix = LAYER_TYPES[layer.media_type]
    if output is None or output.endswith("/") or Path(output).is_dir():
        return Path(output or "") / title_of(layer, reference)
    if not output.endswith(suffix):
        what = f"the server tells an archive's form by its name: this one's must end in {suffix}"
        hint = "name a folder, and the file gets its own name"
        raise UsageError(what, where=f"-o {output}", hint=hint, code="wrong-suffix")
    return Path(output)


def _attachments(session: RegistrySession, remote: RemoteArchive) -> tuple[list[Descriptor], tuple[str, ...]]:
    """Return what to fetch beside an archive, and the kinds of what else there is."""
    where, kinds, left = str(session.reference), set(AttachmentKind), []
    layers: dict[str, Descriptor] = {}
    for digest, kind in referrers(session, remote.digest):
        if kind not in kinds or len(layers) == _MAX_ATTACHMENTS:
            left.append(kind or "unknown")
            continue
        manifest = read_manifest(manifest_bytes(session, digest), where)
        layer = attachment_layer(manifest, remote.digest, f"{where}: {digest}")
        layers[layer.digest] = Descriptor(media_type=kind, digest=layer.digest, size=layer.size)
    return list(layers.values()), tuple(left)


def _places(target: Path, layers: list[Descriptor]) -> Iterator[Path]:
    """Yield where attachments go: the first of a kind under the usual name, the next with a number before its end."""
    seen: dict[str, int] = {}
    for layer in layers:
        kind = AttachmentKind(layer.media_type)
        seen[kind] = seen.get(kind, 0) + 1
        number = f".{seen[kind]}" if seen[kind] > 1 else ""
        yield target.with_name(f"{target.name}{number}{kind.suffix}")


def _as_attachment(wanted: _Wanted) -> Attachment:
    layer = wanted.layer
    kind = AttachmentKind(layer.media_type)
    return Attachment(kind=kind, file=str(wanted.path), digest=layer.digest, size=layer.size)


def _fetch(session: RegistrySession, wanted: list[_Wanted], *, replace: bool, bar: Bar) -> None:
    """Write all files, or none; the archive, which is the first, gets its name last."""
    new = {each.path for each in wanted if not os.path.lexists(each.path)}
    if not replace and (there := next((each.path for each in wanted if each.path not in new), None)):
        raise OutputExistsError("the output exists already", where=str(there), hint="pass --force to replace it")
    with (
        ExitStack() as undo,
        convert_os_errors(OutputError, "the archive cannot be written", where=str(wanted[0].path)),
    ):
        with ExitStack() as files, bar("pulling", sum(each.layer.size for each in wanted)) as progress:
            outputs = []
            for each in wanted:
                files.enter_context(_Placed(each.path, undo, new))
                outputs.append(files.enter_context(staged_file(each.path, replace=replace)))
            for each, file in zip(wanted, outputs, strict=True):
                blob = RegistryBlob(session, each.layer.digest)
                copy_verified(blob, each.layer.digest, each.layer.size, file, progress=progress)
        undo.pop_all()


class _Placed:
    """Has a file removed again that got its name before another one failed to, unless it replaced one."""

    def __init__(self, path: Path, undo: ExitStack, new: set[Path]) -> None:
        self._path = path
        self._undo = undo
        self._is_new = path in new

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._is_new:
            self._undo.callback(self._path.unlink, missing_ok=True)
