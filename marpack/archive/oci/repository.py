"""The contents of one repository: manifests, referrers, and blobs checked against their digests and sizes (OCI 1.1)."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from typing import Annotated, Any, BinaryIO, Literal, Protocol, TypeVar
from urllib.parse import urljoin

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from marpack.archive.http import HttpResponse, WaitBudget
from marpack.archive.index import Size
from marpack.archive.oci import AttachmentKind
from marpack.archive.oci.session import CutError, RegistrySession
from marpack.archive.protocol import ArchiveForm, Progress
from marpack.errors import DamagedArchiveError, NotAnArchiveError, RegistryError, UsageError, shortened

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
LAYER_OF = dict(zip((ArchiveForm.MAR, ArchiveForm.TGZ), LAYER_TYPES, strict=True))
TITLE = "org.opencontainers.image.title"  # the file's name, as oras and others write it
MODEL_NAME, MODEL_VERSION = "org.marpack.model.name", "org.marpack.model.version"
CONTENT_DIGEST = "org.marpack.content-digest"
MAX_MANIFEST = 4 << 20  # bytes, which every registry accepts by the specification
MAX_ATTACHMENT = 64 << 20  # bytes; attestations have some thousand
_SIGSTORE = "application/vnd.dev.sigstore.bundle"
_STATEMENT = "https://in-toto.io/Statement/"
_LISTED = "the list of referrers"
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_MAX_PAGES = 16
_OWN_DIGEST = "Docker-Content-Digest"
_UNTRUSTED = "nothing of it is kept; ask the registry's operator"
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


EMPTY = b"{}"  # the config of an artifact without one
EMPTY_CONFIG = Descriptor(
    media_type="application/vnd.oci.empty.v1+json", digest=f"sha256:{hashlib.sha256(EMPTY).hexdigest()}", size=2
)


def describe(data: bytes, media_type: str, **further: Any) -> Descriptor:  # Any: fields of a descriptor
    """Return the descriptor of some bytes."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return Descriptor(media_type=media_type, digest=digest, size=len(data), **further)


def encoded(manifest: Struct) -> bytes:
    """Return a manifest's bytes, always the same for the same values."""
    return msgspec.json.encode(manifest, order="deterministic")


def kind_of(data: bytes, where: str) -> AttachmentKind:
    """Return the kind of a file beside an archive, by its content, never by its name. Raises UsageError."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        if str(content.get("mediaType")).startswith(_SIGSTORE):
            return AttachmentKind.SIGNATURE
        is_envelope = {"payload", "payloadType", "signatures"} <= content.keys()
        if is_envelope or str(content.get("_type")).startswith(_STATEMENT):
            return AttachmentKind.ATTESTATION
        if content.get("bomFormat") == "CycloneDX":
            return AttachmentKind.SBOM
    raise UsageError(
        "not a signature, attestation or SBOM",
        where=where,
        hint="attach a Sigstore bundle, an in-toto statement or its DSSE envelope, or CycloneDX, each as JSON",
        code="unknown-attachment",
    )


def read_manifest(data: bytes, where: str) -> ImageManifest:
    """Parse a manifest's bytes. Raises NotAnArchiveError for other kinds, DamagedArchiveError for invalid ones."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        hint = "check host and repository: this is a web server, or a proxy in between"
        raise NotAnArchiveError("the host is not an OCI registry: it sends no manifest", where=where, hint=hint)
    if content.get("mediaType") in (LIST_TYPE, _DOCKER_LIST):
        what = "this is an index of several manifests, not an archive"
        raise NotAnArchiveError(what, where=where, hint="name the archive's own tag")
    return _decoded(data, ImageManifest, "the manifest", where, "push the archive again: marpack push")


def _decoded(data: bytes | Raw, kind: type[_Kind], what: str, where: str, hint: str | None = None) -> _Kind:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{what} cannot be read: {shortened(str(error), 200)}"
        raise DamagedArchiveError(message, where=where, hint=hint) from error


class RemoteArchive(Struct, frozen=True):
    """An archive in a registry, by its digests: it stays the same when its tag moves."""

    digest: str  # of the manifest
    manifest: ImageManifest
    layer: Descriptor  # of the archive's bytes


def find_archive(session: RegistrySession) -> RemoteArchive:
    """Return the archive that the session's reference names.

    Raises RegistryError, NotAnArchiveError for other content, DamagedArchiveError for other bytes than requested.
    """
    where, reference = session.where, session.reference
    data = fetch_manifest(session, reference.digest or reference.tag or "")
    manifest = read_manifest(data, where)
    if manifest.artifact_type != ARCHIVE_TYPE:
        what = manifest.artifact_type or manifest.config.media_type
        hint = "push the archive under another tag: marpack push"
        raise NotAnArchiveError(f"this is not an archive, but {shortened(what)}", where=where, hint=hint)
    if len(manifest.layers) != 1:
        raise NotAnArchiveError(f"this has {len(manifest.layers)} layers, an archive has one", where=where)
    layer = manifest.layers[0]
    if layer.media_type not in LAYER_TYPES:
        hint = "pip install --upgrade marpack"
        raise NotAnArchiveError(
            f"its layer is not an archive, but {shortened(layer.media_type)}", where=where, hint=hint
        )
    return RemoteArchive(describe(data, "").digest, manifest, layer)


def fetch_manifest(session: RegistrySession, name: str) -> bytes:
    """Return the manifest of a tag or a digest, unchanged and checked against the digest."""
    with session.request("GET", f"manifests/{name}", headers={"Accept": ACCEPTED}) as response:
        data = session.read_whole(response, MAX_MANIFEST)
        said = response.headers.get(_OWN_DIGEST, "")
    digest = describe(data, "").digest
    for expected in (name, said):
        if expected.startswith("sha256:") and expected != digest:
            what = f"the registry sends another manifest: its digest is {digest}, it should be {expected}"
            raise DamagedArchiveError(what, where=session.where, hint=_UNTRUSTED, code="digest-mismatch")
    return data


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
        raise RegistryError(what, where=session.where, hint="push it again", code="upload-mismatch")
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


class BlobPart(Struct, frozen=True):
    """Bytes that are being fetched."""

    start: int  # their offset
    size: int | None  # of the whole; None: unknown
    version: str  # a strong ETag of the whole, or ""
    read: Callable[[int], bytes]  # returns up to so many of the next bytes, none at the end; raises CutError


class BlobSource(Protocol):
    """A source of a blob's bytes: a registry, or a fake in tests."""

    where: str  # its name in messages

    def part(self, start: int, version: str) -> AbstractContextManager[BlobPart]:
        """Give the bytes from `start` on if the version is still the same, otherwise all. Raises CutError."""


def copy_verified(
    source: BlobSource,
    digest: str,
    size: int,
    destination: BinaryIO,
    *,
    progress: Progress | None = None,
    pauses: Sequence[float] = _PAUSES,
) -> None:
    """Copy a blob, and resume it where a connection broke off; accept only the bytes of the digest.

    Args:
        source: Gives the bytes.
        digest: "sha256:<hex>".
        size: Bytes.
        destination: An empty file; discard it when this raises.
        progress: Is called with the number of bytes that arrived for the first time.
        pauses: Seconds to wait, in turn, before attempts that follow one that brought little.

    Raises DamagedArchiveError for other bytes, RegistryError for a blob that cannot be fetched.
    """
    copy, left = _BlobCopy(source.where, size, destination, progress), iter(pauses)
    while True:
        before = copy.furthest
        try:
            with source.part(copy.done, copy.version) as part:
                copy.receive(part)
            break
        except CutError as error:
            if copy.furthest - before >= _WORTH:
                left = iter(pauses)
            pause = next(left, None)
            if pause is None:
                what = f"{error.what}; {copy.furthest:,} of {size:,} bytes arrived, and no attempt brought more"
                raise RegistryError(
                    what, where=error.where, hint="try again later", code="download-incomplete"
                ) from None
            time.sleep(pause)
    if (found := f"sha256:{copy.sha.hexdigest()}") != digest:
        what = f"the registry sends other bytes: their digest is {found}, it should be {digest}"
        raise DamagedArchiveError(what, where=source.where, hint=_UNTRUSTED, code="digest-mismatch")


class _BlobCopy:
    """The state of a copy over several attempts."""

    def __init__(self, where: str, size: int, destination: BinaryIO, progress: Progress | None) -> None:
        self._where, self._size, self._destination, self._progress = where, size, destination, progress
        self.done = self.furthest = 0  # bytes of this attempt, and of the best one
        self.version = ""
        self.sha = hashlib.sha256()

    def receive(self, part: BlobPart) -> None:
        """Write the bytes of one attempt; raise CutError if they end early."""
        if part.size not in (None, self._size):
            raise self._other_blob(f"it has {part.size:,} bytes, the manifest says {self._size:,}")
        if part.start != self.done:  # from the beginning again
            self._destination.seek(0)
            self._destination.truncate()
            self.done, self.sha = 0, hashlib.sha256()
        self.version = part.version
        while block := part.read(min(_BLOCK, self._size - self.done + 1)):
            if self.done + len(block) > self._size:
                raise self._other_blob(f"it has more than the {self._size:,} bytes that the manifest says")
            self._destination.write(block)
            self.sha.update(block)
            self.done += len(block)
            if self.done > self.furthest:
                if self._progress is not None:
                    self._progress(self.done - self.furthest)
                self.furthest = self.done
        if self.done < self._size:
            what = f"the connection broke off after {self.done:,} of {self._size:,} bytes"
            raise CutError(what, where=self._where)

    def _other_blob(self, what: str) -> DamagedArchiveError:
        return DamagedArchiveError(f"the registry sends another blob: {what}", where=self._where, hint=_UNTRUSTED)


class RegistryBlob:
    """A blob of a registry; see `BlobSource`."""

    def __init__(self, session: RegistrySession, digest: str) -> None:
        """Take its address; nothing is requested yet."""
        self._session = session
        self._digest = digest
        self.where = session.where
        self._budget = WaitBudget()  # of all attempts together

    @contextmanager
    def part(self, start: int, version: str) -> Iterator[BlobPart]:
        """Give the bytes from `start` on; see `BlobSource`."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and version:
            headers["If-Range"] = version
        expected = (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT) if start else (HTTPStatus.OK,)
        with self._session.request(
            "GET", f"blobs/{self._digest}", headers=headers, expected=expected, budget=self._budget
        ) as response:
            etag = response.headers.get("ETag", "")
            strong = etag if etag.startswith('"') else ""  # If-Range takes no other (RFC 9110, section 13.1.5)
            yield BlobPart(*self._placed(response, start), strong, response.read)

    def ranged(self, start: int, stop: int) -> bytes | None:
        """Return the bytes [start, stop), which no digest covers; None: the registry does not support ranges."""
        headers, expected = {"Range": f"bytes={start}-{stop - 1}"}, (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)
        with self._session.request("GET", f"blobs/{self._digest}", headers=headers, expected=expected) as response:
            if response.status != HTTPStatus.PARTIAL_CONTENT:
                return None
            self._placed(response, start)
            data = self._session.read_whole(response, stop - start)
        if len(data) != stop - start:
            what = "the registry sends other bytes than the requested ones"
            raise DamagedArchiveError(what, where=self.where, code="wrong-range")
        return data

    def _placed(self, response: HttpResponse, start: int) -> tuple[int, int | None]:
        """Return the offset of a response's bytes, and the size of the whole blob."""
        if response.status == HTTPStatus.OK:
            return 0, response.size
        if response.content_range is None or response.content_range[0] != start:
            said = response.headers.get("Content-Range") or "nothing"
            what = f"the registry sends another part of the blob than the requested one: {said[:60]}"
            raise DamagedArchiveError(what, where=self.where, hint=_UNTRUSTED, code="wrong-range")
        return response.content_range


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
        except CutError:
            if pause is None:
                raise
            time.sleep(pause)
            progress = None  # repeated bytes were counted
        else:
            break
    return blob.size


def _upload_once(session: RegistrySession, blob: Descriptor, stream: BinaryIO, progress: Progress | None) -> None:
    """Send a blob in one request, whose address the response to another one states (OCI distribution, "Pushing")."""
    with session.request("POST", "blobs/uploads/", expected=(HTTPStatus.ACCEPTED,)) as response:
        place = response.headers.get("Location")
    if not place:
        what = "the registry does not state the address for the upload"
        raise RegistryError(what, where=session.where, code="upload-location-missing")

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
