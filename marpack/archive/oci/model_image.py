"""The image that KServe takes a model from: its files under /models, in a layer of its own ("modelcar").

It holds nothing but the archive, so one layer does for every platform. KServe's `oci+native://` and `oci+fetch://` need
no more; its plain `oci://` starts the image, which takes a shell.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgspec import Struct

from marpack.archive.oci.blobs import BlobStream, upload
from marpack.archive.oci.manifests import (
    LIST_TYPE,
    MANIFEST_TYPE,
    Descriptor,
    ImageManifest,
    described,
    encoded,
)
from marpack.archive.oci.push import PushPlan, upload_bytes, writable_tag
from marpack.archive.oci.repository import put_manifest
from marpack.archive.oci.session import RegistrySession
from marpack.archive.protocol import Bar, no_progress
from marpack.archive.transfers import PushReport
from marpack.errors import UsageError

_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"  # not compressed: weights hardly are, and a digest does for both
_ARCHITECTURES = ("amd64", "arm64")
_FOLDER = "models"
_BLOCK = 1 << 20  # bytes
_TAR_BLOCK = 512  # bytes


class _Platform(Struct, frozen=True):
    architecture: str
    os: str = "linux"


class _PlatformManifest(Descriptor, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    platform: _Platform


class _ImageIndex(Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int
    media_type: str
    manifests: tuple[_PlatformManifest, ...]
    annotations: dict[str, str]


class _LayerStream:
    """A tar of one file, made as it is read."""

    def __init__(self, file: BlobStream, name: str, size: int) -> None:
        self._file = file
        self._size = size
        self._head = _header(_FOLDER, tarfile.DIRTYPE, 0o755, 0) + _header(
            f"{_FOLDER}/{name}", tarfile.REGTYPE, 0o644, size
        )
        self._end = bytes(-size % _TAR_BLOCK + 2 * _TAR_BLOCK)
        self.size = len(self._head) + size + len(self._end)
        self._place = 0

    def seek(self, place: int, /) -> int:
        """Go to the beginning, or anywhere else."""
        self._place = place
        self._file.seek(min(max(0, place - len(self._head)), self._size))
        return place

    def read(self, count: int, /) -> bytes:
        """Return up to `count` of the next bytes. Raises UsageError where the file ends before it should."""
        begun, ended = len(self._head), len(self._head) + self._size
        if self._place < begun:
            data = self._head[self._place : self._place + count]
        elif self._place < ended:
            data = self._file.read(min(count, ended - self._place))
            if not data:
                raise UsageError("the file changes while it is pushed", hint="push it again", code="file-changed")
        else:
            data = self._end[self._place - ended : self._place - ended + count]
        self._place += len(data)
        return data


def _header(name: str, kind: bytes, mode: int, size: int) -> bytes:
    """Return a member's header: of nobody, and of no time, so that the same file makes the same layer."""
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size = kind, mode, size
    return member.tobuf(tarfile.PAX_FORMAT)


def push_model_image(session: RegistrySession, plan: PushPlan, *, bar: Bar = no_progress) -> PushReport:
    """Send an archive as an image whose /models holds it; the tag is set last.

    Raises RegistryError, UsageError for attachments, which refer to archives.
    """
    tag = writable_tag(session)
    if plan.attachments:
        what = "signatures, attestations and SBOMs are kept beside an archive, not beside a model image"
        file, hint = plan.attachments[0][0].file, "--no-attach leaves them out"
        raise UsageError(what, where=file, hint=hint, code="model-image-attachment")
    layer = _described(plan, bar)
    with bar("pushing", layer.size) as progress:
        sent = layer.size if upload(session, layer, partial(_opened, plan), progress) else 0
    manifests = []
    for architecture in _ARCHITECTURES:
        config = _config(architecture, layer)
        sent += upload_bytes(session, described(config, _CONFIG_TYPE), config)
        manifest = ImageManifest(
            schema_version=2, media_type=MANIFEST_TYPE, config=described(config, _CONFIG_TYPE), layers=(layer,)
        )
        entry = described(encoded(manifest), MANIFEST_TYPE)
        put_manifest(session, manifest, entry.digest, MANIFEST_TYPE)
        platform = _Platform(architecture)
        manifests.append(
            _PlatformManifest(media_type=MANIFEST_TYPE, digest=entry.digest, size=entry.size, platform=platform)
        )
    index = _ImageIndex(
        schema_version=2, media_type=LIST_TYPE, manifests=tuple(manifests), annotations=plan.annotations
    )
    put_manifest(session, index, tag, LIST_TYPE)
    digest = described(encoded(index), LIST_TYPE).digest
    return PushReport(
        source=str(plan.path),
        reference=str(session.reference.by_digest(digest)),
        digest=digest,
        archive=plan.layer.digest,
        size=plan.layer.size,
        sent=sent,
        model_image=True,
    )


@contextmanager
def _opened(plan: PushPlan) -> Iterator[_LayerStream]:
    with plan.path.open("rb") as file:
        yield _LayerStream(file, plan.path.name, plan.layer.size)


def _described(plan: PushPlan, bar: Bar) -> Descriptor:
    """Read the layer once, and return what names it."""
    sha = hashlib.sha256()
    with _opened(plan) as stream, bar("reading", stream.size) as progress:
        while data := stream.read(_BLOCK):
            sha.update(data)
            if progress is not None:
                progress(len(data))
        return Descriptor(media_type=_LAYER_TYPE, digest=f"sha256:{sha.hexdigest()}", size=stream.size)


def _config(architecture: str, layer: Descriptor) -> bytes:
    """Return an image's configuration, with no time in it."""
    config: dict[str, Any] = {  # Any: JSON
        "architecture": architecture,
        "config": {},
        "os": "linux",
        "rootfs": {"diff_ids": [layer.digest], "type": "layers"},
    }
    return json.dumps(config, separators=(",", ":")).encode()
