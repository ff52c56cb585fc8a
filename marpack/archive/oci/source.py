"""SOURCE in a registry: read by range where that will do, or fetched whole, once, into this user's cache."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from marpack.archive.cache import Cache
from marpack.archive.download import check_size, find_kept, keep
from marpack.archive.oci.blobs import RegistryBlob, copy_verified
from marpack.archive.oci.manifests import LAYER_TYPES, Descriptor
from marpack.archive.oci.pull import title_of
from marpack.archive.oci.reference import Reference
from marpack.archive.oci.repository import RemoteArchive, find_archive
from marpack.archive.oci.session import RegistrySession
from marpack.archive.protocol import Bar, Limits, Progress, no_progress
from marpack.archive.remote import FetchedRange, RemoteFile
from marpack.archive.zip_archive import ZipArchive
from marpack.errors import located

_BY_RANGE = ".mar"  # the form whose directory says where everything is


class FetchedArchive(Struct, frozen=True):
    """An archive of a registry, here."""

    path: Path
    reference: str  # by digest


def fetch_archive(address: str, cache: Cache, *, maximum: int, bar: Bar = no_progress) -> FetchedArchive:
    """Return an archive as a file of the cache; what is there already is not fetched again.

    Args:
        address: oci://HOST/REPOSITORY:TAG.
        cache: Its folder is where the file lies.
        maximum: Bytes that the archive may have.
        bar: Shows how far it is.

    Raises UsageError, RegistryError, ArchiveError; ExtractionError if the cache cannot be written.
    """
    with RegistrySession(Reference.parse(address)) as session:
        return _fetched(session, find_archive(session), cache, maximum=maximum, bar=bar)


def find_readable(address: str, *, limits: Limits, cache: Cache, whole: bool, bar: Bar) -> ZipArchive | Path:
    """Return an archive in a registry, read by range, or else the file that it was fetched into.

    Ranges are not held against the blob's digest, which takes all of its bytes; what the archive says of its members
    is. It is fetched `whole` where that is asked for, where the registry sends no ranges, and where it is no .mar.
    Raises as `fetch_archive` does, and what opening an archive raises.
    """
    with ExitStack() as undo, located(address):
        session = undo.enter_context(RegistrySession(Reference.parse(address)))
        remote = find_archive(session)
        if not whole and LAYER_TYPES[remote.layer.media_type] == _BY_RANGE:
            with suppress(_NoRangesError):
                archive = ZipArchive(address, _RegistryFile(session, remote.layer), limits=limits, cache=cache)
                undo.pop_all()
                return archive
        return _fetched(session, remote, cache, maximum=limits.total, bar=bar).path


class _NoRangesError(Exception):
    """The registry sends no parts of blobs: what it holds is fetched whole instead."""


class _BlobRanges:
    """Ranges of a blob; see `marpack.archive.remote.Fetch`."""

    def __init__(self, session: RegistrySession, layer: Descriptor) -> None:
        self._blob = RegistryBlob(session, layer.digest)
        self._layer = layer

    def last(self, count: int) -> FetchedRange:
        return self.part(max(0, self._layer.size - count), self._layer.size)

    def part(self, start: int, stop: int) -> FetchedRange:
        data = self._blob.ranged(start, stop) if start < stop else None
        if data is None:
            raise _NoRangesError
        return FetchedRange(data, start, self._layer.size, self._layer.digest)


class _RegistryFile(RemoteFile):
    """A blob, read by range over a session of its own."""

    def __init__(self, session: RegistrySession, layer: Descriptor) -> None:
        super().__init__(str(session.reference), _BlobRanges(session, layer))
        self._session = session

    def close(self) -> None:
        super().close()
        self._session.close()


def _fetched(
    session: RegistrySession, remote: RemoteArchive, cache: Cache, *, maximum: int, bar: Bar
) -> FetchedArchive:
    layer = remote.layer
    check_size(layer.size, maximum, str(session.reference))
    name = title_of(layer, session.reference)

    def copy(file: BinaryIO, progress: Progress | None) -> None:
        copy_verified(RegistryBlob(session, layer.digest), layer.digest, layer.size, file, progress=progress)

    path = find_kept(cache, layer.hex, name) or keep(cache, layer.hex, name, copy, size=layer.size, bar=bar)
    return FetchedArchive(path, str(session.reference.by_digest(remote.digest)))
