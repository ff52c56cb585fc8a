"""Opening an archive, whatever its form; the form is told by content, never by name."""

from contextlib import ExitStack
from pathlib import Path

from marpack.archive.bytesource import LocalFile
from marpack.archive.cache import Cache
from marpack.archive.protocol import Archive, Bar, Limits, is_in_registry, no_progress
from marpack.archive.zip_archive import ZipArchive
from marpack.errors import NotAnArchiveError, located

_GZIP = b"\x1f\x8b"


def open_archive(
    source: str | Path,
    *,
    limits: Limits | None = None,
    cache: Cache | None = None,
    whole: bool = False,
    bar: Bar = no_progress,
) -> Archive:
    """Open a .mar, a .tar.gz or a model folder; what is in it is checked, nothing of it is run or written.

    Args:
        source: The path, or an address (https, s3, oci, …), of which only what is asked for is fetched if that can be;
            all of it where its digest is given, as `#sha256=…` behind it.
        limits: What is refused for its mere size.
        cache: Where `materialize` extracts to, and what registries hold is fetched to; this user's by default.
        whole: Of a registry: fetch all bytes, and hold them against the digest.
        bar: Shows how far such a fetch is.

    Raises NotAnArchiveError, DamagedArchiveError, UnsafeArchiveError or LimitExceededError, naming source and member.
    """
    if isinstance(source, str) and is_in_registry(source):
        from marpack.archive.oci.source import find_readable  # noqa: PLC0415 - as for other addresses

        limits, cache = limits or Limits(), cache or Cache()
        found = find_readable(source, limits=limits, cache=cache, whole=whole, bar=bar)
        if not isinstance(found, Path):
            return found
        source = found
    if isinstance(source, str) and "://" in source:
        from marpack.archive.addresses import split_digest  # noqa: PLC0415 - as above
        from marpack.archive.download import fetch_whole  # noqa: PLC0415 - as above

        address, sha256 = split_digest(source)
        limits, cache = limits or Limits(), cache or Cache()
        if sha256 is None:
            return _open_address(address, limits, cache)
        source = fetch_whole(address, cache, sha256=sha256, maximum=limits.total, bar=bar)
    with located(str(source)):
        return _open(Path(source), limits or Limits(), cache or Cache())


def _open(path: Path, limits: Limits, cache: Cache) -> Archive:
    if _is_folder(path):
        from marpack.archive.folder import FolderArchive  # noqa: PLC0415 - nearly every archive is a .mar

        return FolderArchive(str(path), path, limits=limits)
    with ExitStack() as undo:
        data = LocalFile(path)
        undo.callback(data.close)
        if data.size >= 2 and data.read_at(0, 2) == _GZIP:
            from marpack.archive.tar_archive import TarArchive  # noqa: PLC0415 - as for folders

            archive: Archive = TarArchive(str(path), data, limits=limits, cache=cache)
        else:
            archive = ZipArchive(str(path), data, limits=limits, cache=cache)
        undo.pop_all()
    return archive


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # a folder above it that may not be entered, a name that is too long
        raise NotAnArchiveError(f"the archive cannot be opened: {error.strerror}") from None


def _open_address(address: str, limits: Limits, cache: Cache) -> Archive:
    from marpack.archive.remote import open_remote  # noqa: PLC0415 - local archives need no network

    data = open_remote(address)
    with located(data.where):
        if data.read_at(0, min(2, data.size)) == _GZIP:
            hint = "download it, and name the file"
            raise NotAnArchiveError("a .tar.gz cannot be read by range", hint=hint, code="no-ranges")
        return ZipArchive(data.where, data, limits=limits, cache=cache)
