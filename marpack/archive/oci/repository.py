"""One repository: manifests, referrers, blobs checked against digests and sizes, and its archives (OCI 1.1)."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar
from urllib.parse import urljoin

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from marpack.archive.addresses import Reference
from marpack.archive.cache import Cache, check_size, find_kept, keep
from marpack.archive.http import HttpResponse, WaitBudget
from marpack.archive.index import Size
from marpack.archive.oci import Attachment
from marpack.archive.oci.session import CutError, RegistrySession
from marpack.archive.protocol import Bar, Limits, Progress, check_member_name, no_progress
from marpack.archive.remote import FetchedRange, RemoteFile
from marpack.archive.zip_archive import ZipArchive
from marpack.errors import (
    DamagedArchiveError,
    NotAnArchiveError,
    RegistryError,
    UnsafeArchiveError,
    located,
    shortened,
)
from marpack.version import UPGRADE

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
LIST_TYPE = "application/vnd.oci.image.index.v1+json"
_DOCKER_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
ACCEPTED = f"{MANIFEST_TYPE}, {LIST_TYPE}, {_DOCKER_TYPE}, {_DOCKER_LIST}"  # the manifests that a tag may name
ARCHIVE_TYPE = "application/vnd.marpack.archive.v1"
LAYER_TYPES = {  # media type of an archive's bytes → its suffix, by which the server recognizes its form
    "application/vnd.marpack.mar.v1": ".mar",
    "application/vnd.marpack.mar.v1.tar+gzip": ".tar.gz",
}
_BY_RANGE = ".mar"  # the form with a directory of its members
TITLE = "org.opencontainers.image.title"  # the file's name, as oras and others write it
MAX_MANIFEST = 4 << 20  # bytes, which every registry accepts by the specification
_LISTED = "the list of referrers"
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_MAX_PAGES = 16
_OWN_DIGEST = "Docker-Content-Digest"
_UNTRUSTED = "Ask the operator of the registry. marpack keeps nothing of such a response."
_OTHER_TAG = "Check the tag, or push the archive under another one: marpack push"
_PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before a transfer that broke off is resumed
_WORTH = 16 << 20  # bytes after which an attempt counts as the first again: a long transfer may break off often
_BLOCK = 1 << 20  # bytes that are read
_SENT = 1 << 16  # bytes that are sent at once, each of which has its own time limit
_Kind = TypeVar("_Kind")

Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]


class Descriptor(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The identity of a blob or manifest: its media type, digest and size."""

    media_type: str
    digest: Digest
    size: Size  # bytes
    annotations: dict[str, str] = {}
    artifact_type: str | None = None  # of an entry of an index

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
    """An index whose manifests refer to one subject; the entries keep their bytes."""

    schema_version: Literal[2]
    media_type: str
    manifests: tuple[Raw, ...]
    annotations: dict[str, str] = {}


class ListedReferrer(Struct, frozen=True, rename="camel"):
    """An entry of such an index; other tools may use other kinds of digest."""

    digest: str
    artifact_type: str | None = None


def describe(data: bytes, media_type: str, **further: Any) -> Descriptor:  # Any: fields of a descriptor
    """Return the descriptor of some bytes."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return Descriptor(media_type=media_type, digest=digest, size=len(data), **further)


def encoded(manifest: Struct) -> bytes:
    """Return a manifest's bytes, always the same for the same values."""
    return msgspec.json.encode(manifest, order="deterministic")


def _decoded(data: bytes | Raw, kind: type[_Kind], what: str, where: str, hint: str | None = None) -> _Kind:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{what} cannot be read: {shortened(str(error), 200)}"
        raise DamagedArchiveError(message, where=where, hint=hint) from error


def find_archive(session: RegistrySession) -> tuple[Digest, Descriptor]:
    """Return the digest of the manifest that the session's reference names, and the layer with the archive's bytes.

    Raises RegistryError, NotAnArchiveError for other content, DamagedArchiveError for other bytes than requested.
    """
    where, reference = session.where, session.reference
    manifest, digest = fetch_manifest(session, reference.digest or reference.tag or "")
    if manifest.artifact_type != ARCHIVE_TYPE:
        what = f"this is not an archive, but {shortened(manifest.artifact_type or manifest.config.media_type)}"
        raise NotAnArchiveError(what, where=where, hint=_OTHER_TAG)
    if len(manifest.layers) != 1:
        what = f"this has {len(manifest.layers)} layers; an archive has one"
        raise NotAnArchiveError(what, where=where, hint=_OTHER_TAG)
    layer = manifest.layers[0]
    if layer.media_type not in LAYER_TYPES:
        what = f"its layer is not an archive, but {shortened(layer.media_type)}"
        raise NotAnArchiveError(what, where=where, hint=UPGRADE)
    return digest, layer


def fetch_manifest(session: RegistrySession, name: str) -> tuple[ImageManifest, Digest]:
    """Return the manifest of a tag or a digest, and its digest.

    Raises NotAnArchiveError for another kind, DamagedArchiveError for an invalid one, or for other bytes.
    """
    where = session.where
    with session.request("GET", f"manifests/{name}", headers={"Accept": ACCEPTED}) as response:
        data = session.read_whole(response, MAX_MANIFEST)
        said = response.headers.get(_OWN_DIGEST, "")
    digest = describe(data, "").digest
    for expected in (name, said):
        if expected.startswith("sha256:") and expected != digest:
            what = f"the registry sends another manifest: its digest is {digest}, it should be {expected}"
            raise DamagedArchiveError(what, where=where, hint=_UNTRUSTED, code="digest-mismatch")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        hint = "Check host and repository. The response may come from a web server or a proxy."
        raise NotAnArchiveError("the host is not an OCI registry: it sends no manifest", where=where, hint=hint)
    if content.get("mediaType") in (LIST_TYPE, _DOCKER_LIST):
        what = "this is an index of several manifests, not an archive"
        raise NotAnArchiveError(what, where=where, hint="Name the tag of the archive itself.")
    hint = "Push the archive again: marpack push"
    return _decoded(data, ImageManifest, "the manifest", where, hint), digest


def put_manifest(session: RegistrySession, manifest: Struct, name: str, media_type: str) -> bool:
    """Put a manifest under a tag or its digest; return whether the registry lists referrers by itself.

    Raises RegistryError.
    """
    data = encoded(manifest)
    headers, digest = {"Content-Type": media_type}, describe(data, media_type).digest
    with session.request(
        "PUT", f"manifests/{name}", expected=(HTTPStatus.CREATED,), headers=headers, body=data
    ) as response:
        said, lists = response.headers.get(_OWN_DIGEST, ""), "OCI-Subject" in response.headers
    if said.startswith("sha256:") and said != digest:
        what = f"the registry stored another manifest: its digest is {said}, it should be {digest}"
        raise RegistryError(what, where=session.where, hint="Push the archive again.", code="upload-mismatch")
    return lists


def put_referrer(session: RegistrySession, manifest: ImageManifest, subject: str) -> None:
    """Put a manifest with a subject, and list it where the registry does not ("Pushing Manifests with Subject")."""
    data, where = encoded(manifest), session.where
    entry = describe(data, manifest.media_type, artifact_type=manifest.artifact_type, annotations=manifest.annotations)
    if put_manifest(session, manifest, entry.digest, manifest.media_type):
        return
    # An entry that another client adds between these two requests is lost: the specification has no way round it.
    listed = _tagged_list(session, subject)
    if all(each.digest != entry.digest for each in _entries(listed, where)):
        extended = replace(listed, manifests=(*listed.manifests, Raw(encoded(entry))))
        put_manifest(session, extended, subject.replace(":", "-"), LIST_TYPE)


def referrers(session: RegistrySession, subject: str) -> list[tuple[Digest, str]]:
    """Return digest and artifact type of each referrer of a manifest, in the order of the digests."""
    lists: list[ReferrerList] = []
    address: str | None = f"referrers/{subject}"
    expected = (HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
    while address is not None and len(lists) < _MAX_PAGES:
        with session.request("GET", address, headers={"Accept": LIST_TYPE}, expected=expected) as response:
            if response.status != HTTPStatus.OK:  # the registry has no such list
                lists = [_tagged_list(session, subject)]
                break
            data = session.read_whole(response, MAX_MANIFEST)
            lists.append(_decoded(data, ReferrerList, _LISTED, session.where))
            following = _NEXT.search(response.headers.get("Link", ""))
            address = urljoin(response.url, following[1]) if following else None
    kinds = {entry.digest: entry.artifact_type or "" for each in lists for entry in _entries(each, session.where)}
    return sorted(kinds.items())


def _tagged_list(session: RegistrySession, subject: str) -> ReferrerList:
    """Return the list that clients maintain under a tag where the registry has none ("Referrers Tag Schema")."""
    name, expected = subject.replace(":", "-"), (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
    with session.request("GET", f"manifests/{name}", headers={"Accept": LIST_TYPE}, expected=expected) as response:
        if response.status == HTTPStatus.NOT_FOUND:
            return ReferrerList(schema_version=2, media_type=LIST_TYPE, manifests=())
        data = session.read_whole(response, MAX_MANIFEST)
    return _decoded(data, ReferrerList, _LISTED, session.where)


def _entries(found: ReferrerList, where: str) -> list[ListedReferrer]:
    return [_decoded(entry, ListedReferrer, _LISTED, where) for entry in found.manifests]


def copy_verified(
    session: RegistrySession, blob: Descriptor | Attachment, destination: BinaryIO, progress: Progress | None = None
) -> None:
    """Copy a blob into an empty file; resume where a connection broke off, and accept only the bytes of the digest.

    Discard the file when this raises DamagedArchiveError for other bytes, or RegistryError.
    """
    copy, budget, left = _BlobCopy(session, blob.size, destination, progress), WaitBudget(), iter(_PAUSES)
    while True:
        before = copy.furthest
        headers = {"Range": f"bytes={copy.done}-"} if copy.done else {}
        if copy.done and copy.version:
            headers["If-Range"] = copy.version
        try:
            with _blob(session, blob, headers, budget) as response:
                copy.receive(response)
            break
        except CutError as error:
            if copy.furthest - before >= _WORTH:
                left = iter(_PAUSES)
            pause = next(left, None)
            if pause is None:
                what = f"{error.what}; {copy.furthest:,} of {blob.size:,} bytes arrived, and no attempt brought more"
                hint = "Try again later."
                raise RegistryError(what, where=error.where, hint=hint, code="download-incomplete") from None
            time.sleep(pause)
    if (found := f"sha256:{copy.sha.hexdigest()}") != blob.digest:
        what = f"the registry sends other bytes: their digest is {found}, it should be {blob.digest}"
        raise DamagedArchiveError(what, where=session.where, hint=_UNTRUSTED, code="digest-mismatch")


def _blob(
    session: RegistrySession, blob: Descriptor | Attachment, headers: dict[str, str], budget: WaitBudget | None = None
) -> AbstractContextManager[HttpResponse]:
    expected = (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT) if headers else (HTTPStatus.OK,)
    return session.request("GET", f"blobs/{blob.digest}", headers=headers, expected=expected, budget=budget)


def _placed(response: HttpResponse, start: int, where: str) -> tuple[int, int | None]:
    """Return the offset of a response's bytes, and the size of the whole blob. Raises DamagedArchiveError."""
    if response.status == HTTPStatus.OK:
        return 0, response.size
    if response.content_range is None or response.content_range[0] != start:
        said = response.headers.get("Content-Range") or "nothing"
        what = f"the registry sends another part of the blob than the requested one: {said[:60]}"
        raise DamagedArchiveError(what, where=where, hint=_UNTRUSTED, code="wrong-range")
    return response.content_range


class _BlobCopy:
    def __init__(self, session: RegistrySession, size: int, destination: BinaryIO, progress: Progress | None) -> None:
        self._where, self._size, self._destination, self._progress = session.where, size, destination, progress
        self.done = self.furthest = 0  # bytes of this attempt, and of the best one
        self.version = ""  # a strong ETag: If-Range takes no other (RFC 9110, section 13.1.5)
        self.sha = hashlib.sha256()

    def receive(self, response: HttpResponse) -> None:
        """Write the bytes of one attempt; raise CutError if they end early."""
        start, size = _placed(response, self.done, self._where)
        if size not in (None, self._size):
            what = f"the registry sends another blob: it has {size:,} bytes, and {self._size:,} in the manifest"
            raise DamagedArchiveError(what, where=self._where, hint=_UNTRUSTED)
        if start != self.done:  # from the beginning again
            self._destination.seek(0)
            self._destination.truncate()
            self.done, self.sha = 0, hashlib.sha256()
        etag = response.headers.get("ETag", "")
        self.version = etag if etag.startswith('"') else ""
        while block := response.read(min(_BLOCK, self._size - self.done + 1)):
            if self.done + len(block) > self._size:
                what = f"the registry sends another blob: it has more than the {self._size:,} bytes of the manifest"
                raise DamagedArchiveError(what, where=self._where, hint=_UNTRUSTED)
            self._destination.write(block)
            self.sha.update(block)
            self.done += len(block)
            if self.done > self.furthest:
                if self._progress is not None:
                    self._progress(self.done - self.furthest)
                self.furthest = self.done
        if self.done < self._size:
            raise CutError(f"the connection broke off after {self.done:,} of {self._size:,} bytes", where=self._where)


def blob_range(session: RegistrySession, blob: Descriptor, start: int, stop: int) -> bytes | None:
    """Return the bytes [start, stop), which no digest covers; None: the registry does not support ranges."""
    with _blob(session, blob, {"Range": f"bytes={start}-{stop - 1}"}) as response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            return None
        _placed(response, start, session.where)
        data = session.read_whole(response, stop - start)
    if len(data) != stop - start:
        what = "the registry sends other bytes than the requested ones"
        raise DamagedArchiveError(what, where=session.where, hint=_UNTRUSTED, code="wrong-range")
    return data


def upload(
    session: RegistrySession,
    blob: Descriptor,
    opened: Callable[[], AbstractContextManager[BinaryIO]],
    progress: Progress | None = None,
) -> int:
    """Send a blob unless the registry has it; return the number of bytes sent. `opened` opens it for each attempt.

    Raises RegistryError for a blob that cannot be sent, or arrives changed.
    """
    with session.request("HEAD", f"blobs/{blob.digest}", expected=(HTTPStatus.OK, HTTPStatus.NOT_FOUND)) as response:
        if response.status == HTTPStatus.OK:
            return 0
    for pause in (*_PAUSES, None):
        try:
            with opened() as stream:
                _upload_once(session, blob, stream, progress)
            break
        except CutError:
            if pause is None:
                raise
            time.sleep(pause)
            progress = None  # repeated bytes were counted
    return blob.size


def _upload_once(session: RegistrySession, blob: Descriptor, stream: BinaryIO, progress: Progress | None) -> None:
    """Send a blob in one request, whose address the response to another one states (OCI distribution, "Pushing")."""
    with session.request("POST", "blobs/uploads/", expected=(HTTPStatus.ACCEPTED,)) as response:
        place = response.headers.get("Location")
    if not place:
        what = "the registry does not state the address for the upload"
        raise RegistryError(what, where=session.where, hint=_UNTRUSTED, code="upload-location-missing")

    def body() -> Iterable[bytes]:
        stream.seek(0)
        while block := stream.read(_SENT):
            yield block
            if progress is not None:
                progress(len(block))

    url = f"{place}{'&' if '?' in place else '?'}digest={blob.digest}"
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
    with session.request("PUT", url, expected=(HTTPStatus.CREATED,), headers=headers, body=body):
        pass


def title_of(layer: Descriptor, reference: Reference) -> str:
    """Return an archive's file name: the one that its author gave it, if it is safe. Raises UnsafeArchiveError."""
    suffix = LAYER_TYPES[layer.media_type]
    title = layer.annotations.get(TITLE) or reference.repository.rpartition("/")[2] + suffix
    try:
        check_member_name(title)
        is_safe = "/" not in title and not title.startswith(".") and title.endswith(suffix)
    except UnsafeArchiveError:
        is_safe = False
    if not is_safe:
        what = f"the archive's title {title[:80]!a} is not a file name of this form"
        raise UnsafeArchiveError(what, where=str(reference), hint=f"Name the file: -o model{suffix}")
    return title


def fetch_archive(address: str, cache: Cache, *, maximum: int, bar: Bar = no_progress) -> tuple[Path, str]:
    """Return an archive as a file of the cache, and its reference by digest; fetch it if the cache does not have it.

    Raises UsageError for an address that is not valid, RegistryError, NotAnArchiveError, DamagedArchiveError for other
    bytes, LimitExceededError for an archive of more than `maximum` bytes.
    """
    with RegistrySession(Reference.parse(address)) as session:
        digest, layer = find_archive(session)
        return _fetch(session, layer, cache, maximum, bar), str(session.reference.by_digest(digest))


def _fetch(session: RegistrySession, layer: Descriptor, cache: Cache, maximum: int, bar: Bar) -> Path:
    check_size(layer.size, maximum, session.where)
    name = title_of(layer, session.reference)
    copy = partial(copy_verified, session, layer)
    return find_kept(cache, layer.hex, name) or keep(cache, layer.hex, name, copy, size=layer.size, bar=bar)


def find_readable(address: str, *, limits: Limits, cache: Cache, whole: bool, bar: Bar) -> ZipArchive | Path:
    """Return an archive that is read by range, or the file that it was fetched into.

    Ranges cannot be checked against the blob's digest, only against the digests that the archive has of its members.
    An archive is fetched `whole` on request, from a registry without range requests, and if it is not a .mar.
    Raises as `fetch_archive` does, and as opening an archive does.
    """
    with ExitStack() as undo, located(address):
        session = undo.enter_context(RegistrySession(Reference.parse(address)))
        _, layer = find_archive(session)
        if not whole and LAYER_TYPES[layer.media_type] == _BY_RANGE:
            with suppress(_NoRangesError):
                file = RemoteFile(session.where, _BlobRanges(session, layer))
                archive = ZipArchive(address, file, limits=limits, cache=cache)
                undo.pop_all()
                return archive
        return _fetch(session, layer, cache, limits.total, bar)


class _NoRangesError(Exception):
    """The registry does not support range requests: the blob is fetched whole instead."""


class _BlobRanges:
    """Ranges of a blob; see `marpack.archive.remote.Fetch`."""

    def __init__(self, session: RegistrySession, layer: Descriptor) -> None:
        self._session = session
        self._layer = layer
        self.close = session.close

    def last(self, count: int) -> FetchedRange:
        return self.part(max(0, self._layer.size - count), self._layer.size)

    def part(self, start: int, stop: int) -> FetchedRange:
        data = blob_range(self._session, self._layer, start, stop) if start < stop else None
        if data is None:
            raise _NoRangesError
        return FetchedRange(data, start, self._layer.size, self._layer.digest)
