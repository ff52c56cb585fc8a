"""SOURCE in a registry: read by range where that will do, or fetched whole, once, into this user's cache.

<cache>/blobs/<SHA-256>/<name>        an archive, as it was verified when it was fetched
<cache>/blobs/<SHA-256>/<name>.json   what the file looked like then: one that was touched since is fetched again
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from marpack.archive.cache import Cache, FileState
from marpack.archive.oci.blobs import RegistryBlob, copy_verified
from marpack.archive.oci.manifests import LAYER_TYPES, Descriptor
from marpack.archive.oci.pull import check_size, title_of
from marpack.archive.oci.reference import Reference
from marpack.archive.oci.repository import RemoteArchive, find_archive
from marpack.archive.oci.session import RegistrySession
from marpack.archive.protocol import Bar, Limits, no_progress
from marpack.archive.remote import FetchedRange, RemoteFile
from marpack.archive.staging import staged_file
from marpack.archive.zip_reader import ZipArchive
from marpack.errors import ExtractionError, located

_IN_USE = 24 * 3600  # seconds after it was last asked for, within which somebody may still work with a file
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
    layer, where = remote.layer, str(session.reference)
    check_size(layer, maximum, where)
    path = cache.root / "blobs" / layer.hex / title_of(layer, session.reference)
    if not _is_as_verified(path):
        cache.prepare()
        with _writable(cache.root):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with bar("fetching", layer.size) as progress, staged_file(path, replace=True, durable=True) as file:
                blob = RegistryBlob(session, layer.digest)
                copy_verified(blob, layer.digest, layer.size, file, progress=progress)
            with staged_file(_stamp(path), replace=True) as stamp:
                stamp.write(msgspec.json.encode(_state(path)))
        _evict(cache.root / "blobs", cache.limit, keep=path)
    return FetchedArchive(path, str(session.reference.by_digest(remote.digest)))


def _stamp(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _state(path: Path) -> FileState:
    status = path.stat(follow_symlinks=False)
    return FileState(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _is_as_verified(path: Path) -> bool:
    """Say whether nobody has touched a file since its digest was taken, and note that it is used now."""
    try:
        same = msgspec.json.decode(_stamp(path).read_bytes(), type=FileState) == _state(path)
        if same:
            os.utime(_stamp(path))
    except (OSError, msgspec.DecodeError):
        return False
    return same


def _evict(blobs: Path, limit: int, *, keep: Path) -> None:
    """Remove what was used least recently, and not of late, until the rest fits the bound."""
    with suppress(OSError):  # another process is at it, too
        stamps = [(stamp.stat().st_mtime, stamp) for stamp in blobs.glob("*/*.json")]
        for used, stamp in sorted(stamps, reverse=True):
            path = stamp.with_name(stamp.name.removesuffix(".json"))
            limit -= path.stat().st_size
            if limit < 0 and path != keep and time.time() - used > _IN_USE:
                path.unlink()
                stamp.unlink()
                path.parent.rmdir()


@contextmanager
def _writable(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what, hint = f"the cache cannot be written: {error.strerror}", "set MARPACK_CACHE_DIR to a folder of yours"
        raise ExtractionError(what, where=str(root), hint=hint) from error
