"""SOURCE in a registry: read by range if possible, otherwise fetched once into this user's cache."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from marpack.archive.addresses import Reference
from marpack.archive.cache import Cache
from marpack.archive.download import check_size, find_kept, keep
from marpack.archive.names import check_member_name
from marpack.archive.oci.repository import (
    LAYER_TYPES,
    TITLE,
    Descriptor,
    RegistryBlob,
    RemoteArchive,
    copy_verified,
    find_archive,
)
from marpack.archive.oci.session import RegistrySession
from marpack.archive.protocol import Bar, Limits, Progress, no_progress
from marpack.archive.remote import FetchedRange, RemoteFile
from marpack.archive.zip_archive import ZipArchive
from marpack.errors import UnsafeArchiveError, located

_BY_RANGE = ".mar"  # the form with a directory of its members


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
        raise UnsafeArchiveError(what, where=str(reference), hint=f"name the file yourself: -o model{suffix}")
    return title


class FetchedArchive(Struct, frozen=True):
    """An archive of a registry in this user's cache."""

    path: Path
    reference: str  # by digest


def fetch_archive(address: str, cache: Cache, *, maximum: int, bar: Bar = no_progress) -> FetchedArchive:
    """Return an archive as a file of the cache; fetch it unless it is there.

    Args:
        address: oci://HOST/REPOSITORY:TAG.
        cache: The file is in its folder.
        maximum: Bytes that the archive may have.
        bar: Shows the progress.

    Raises UsageError, RegistryError, ArchiveError; ExtractionError if the cache cannot be written.
    """
    with RegistrySession(Reference.parse(address)) as session:
        return _fetch(session, find_archive(session), cache, maximum=maximum, bar=bar)


def _fetch(session: RegistrySession, remote: RemoteArchive, cache: Cache, *, maximum: int, bar: Bar) -> FetchedArchive:
    layer = remote.layer
    check_size(layer.size, maximum, session.where)
    name = title_of(layer, session.reference)

    def copy(file: BinaryIO, progress: Progress | None) -> None:
        copy_verified(RegistryBlob(session, layer.digest), layer.digest, layer.size, file, progress=progress)

    path = find_kept(cache, layer.hex, name) or keep(cache, layer.hex, name, copy, size=layer.size, bar=bar)
    return FetchedArchive(path, str(session.reference.by_digest(remote.digest)))


def find_readable(address: str, *, limits: Limits, cache: Cache, whole: bool, bar: Bar) -> ZipArchive | Path:
    """Return an archive that is read by range, or the file that it was fetched into.

    Ranges cannot be checked against the blob's digest, only against the digests that the archive has of its members.
    An archive is fetched `whole` on request, from a registry without range requests, and if it is not a .mar.
    Raises as `fetch_archive` does, and as opening an archive does.
    """
    with ExitStack() as undo, located(address):
        session = undo.enter_context(RegistrySession(Reference.parse(address)))
        remote = find_archive(session)
        if not whole and LAYER_TYPES[remote.layer.media_type] == _BY_RANGE:
            with suppress(_NoRangesError):
                file = RemoteFile(session.where, _BlobRanges(session, remote.layer))
                archive = ZipArchive(address, file, limits=limits, cache=cache)
                undo.pop_all()
                return archive
        return _fetch(session, remote, cache, maximum=limits.total, bar=bar).path


class _NoRangesError(Exception):
    """The registry does not support range requests: the blob is fetched whole instead."""


class _BlobRanges:
    """Ranges of a blob; see `marpack.archive.remote.Fetch`."""

    def __init__(self, session: RegistrySession, layer: Descriptor) -> None:
        self._blob = RegistryBlob(session, layer.digest)
        self._layer = layer
        self.close = session.close

    def last(self, count: int) -> FetchedRange:
        return self.part(max(0, self._layer.size - count), self._layer.size)

    def part(self, start: int, stop: int) -> FetchedRange:
        data = self._blob.ranged(start, stop) if start < stop else None
        if data is None:
            raise _NoRangesError
        return FetchedRange(data, start, self._layer.size, self._layer.digest)
