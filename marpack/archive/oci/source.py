"""Archives in registries, read by range or fetched into the cache."""

from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from marpack.archive.addresses import Reference
from marpack.archive.cache import Cache, check_size, find_kept, keep
from marpack.archive.oci.repository import LAYER_TYPES, TITLE, Descriptor, blob_range, copy_verified, find_archive
from marpack.archive.oci.session import RegistrySession
from marpack.archive.protocol import Bar, Limits, check_member_name, no_progress
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
        raise UnsafeArchiveError(what, where=str(reference), hint=f"Name the file: -o model{suffix}")
    return title


def fetch_archive(address: str, cache: Cache, *, maximum: int, bar: Bar = no_progress) -> tuple[Path, str]:
    """Return an archive as a file of the cache, and its reference by digest; fetch it if the cache does not have it.

    Raises UsageError for an address that is not valid, RegistryError, NotAnArchiveError, DamagedArchiveError for other
    bytes, LimitExceededError for an archive of more than `maximum` bytes.
    """
    with RegistrySession(Reference.parse(address)) as session:
        remote = find_archive(session)
        return _fetch(session, remote.layer, cache, maximum, bar), str(session.reference.by_digest(remote.digest))


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
        layer = find_archive(session).layer
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
