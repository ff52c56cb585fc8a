"""Whole remote files, each fetched once into this user's cache.

<cache>/blobs/<key>/<name>        a verified file; the key is its SHA-256, if that was given
<cache>/blobs/<key>/<name>.json   the file's state at that time: a file that changed since is fetched again
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import msgspec

from marpack.archive.addresses import public_address
from marpack.archive.cache import Cache, FileState
from marpack.archive.names import check_member_name
from marpack.archive.protocol import Bar, Progress, no_progress
from marpack.archive.staging import staged_file
from marpack.errors import (
    DamagedArchiveError,
    ExtractionError,
    LimitExceededError,
    UnsafeArchiveError,
    convert_os_errors,
)

_IN_USE = 24 * 3600  # seconds after its last use, within which a process may still work with a file
_BLOCK = 1 << 20  # bytes
_MAX_NAME = 200  # bytes: the names of a stamp and of a temporary file are longer
_UNNAMED = "file"
_STAMP = ".json"


def fetch_whole(address: str, cache: Cache, *, sha256: str | None, maximum: int, bar: Bar = no_progress) -> Path:
    """Return a remote file as one of the cache, whole; fetch it unless it is there.

    Args:
        address: http, https or s3, or any other that fsspec reads.
        cache: The file is in its folder.
        sha256: Of its bytes, lower-case hex; None: any bytes, fetched again once the server's version changes.
        maximum: Bytes that it may have.
        bar: Shows the progress.

    Raises NotAnArchiveError for a file that cannot be fetched, DamagedArchiveError for other bytes or too few,
    LimitExceededError, MissingExtraError; ExtractionError if the cache cannot be written.
    """
    from marpack.archive.remote import open_whole  # noqa: PLC0415 - nothing of HTTP where the file is there

    where, name = public_address(address), unquote(urlsplit(address).path).rpartition("/")[2]
    try:
        check_member_name(name)
        if name.startswith(".") or name.endswith(_STAMP) or len(os.fsencode(name)) > _MAX_NAME:
            name = _UNNAMED
    except UnsafeArchiveError:
        name = _UNNAMED
    if sha256 is not None and (path := find_kept(cache, sha256, name)):
        return path
    with open_whole(address) as download:
        check_size(download.size or 0, maximum, where)
        version = (address.partition("#")[0], download.size, download.version)
        key = sha256 or hashlib.sha256(repr(version).encode()).hexdigest()
        if sha256 is None and download.version and (path := find_kept(cache, key, name)):
            return path

        def copy(file: BinaryIO, progress: Progress | None) -> None:
            sha, count = hashlib.sha256(), 0
            while block := download.read(_BLOCK):
                count += len(block)
                check_size(count, maximum, where)
                file.write(block)
                sha.update(block)
                if progress is not None:
                    progress(len(block))
            if download.size is not None and count != download.size:
                what = f"the connection broke off after {count:,} of {download.size:,} bytes"
                raise DamagedArchiveError(what, where=where, hint="try again")
            if sha256 is not None and sha.hexdigest() != sha256:
                what = f"the file has another digest: sha256:{sha.hexdigest()}"
                hint = f"it should be sha256:{sha256}; ask the source of that digest"
                raise DamagedArchiveError(what, where=where, hint=hint, code="digest-mismatch")

        return keep(cache, key, name, copy, size=download.size or 0, bar=bar)


def check_size(size: int, maximum: int, where: str) -> None:
    """Raise LimitExceededError for an archive with more bytes than may be fetched."""
    if size > maximum:
        what = f"the archive has at least {size:,} bytes; the maximum is {maximum:,}"
        raise LimitExceededError(what, where=where, hint="raise it with --max-size")


def find_kept(cache: Cache, key: str, name: str) -> Path | None:
    """Return a file of the cache that did not change since it was fetched, and note its use."""
    path = cache.root / "blobs" / key / name
    try:
        same = msgspec.json.decode(_stamp(path).read_bytes(), type=FileState) == _state(path)
        if same:
            os.utime(_stamp(path))
    except (OSError, msgspec.DecodeError):
        return None
    return path if same else None


def keep(
    cache: Cache,
    key: str,
    name: str,
    copy: Callable[[BinaryIO, Progress | None], object],
    *,
    size: int,
    bar: Bar,
) -> Path:
    """Write a file into the cache, whole or not at all, and return its path; `size` is its bytes, or 0 if unknown.

    A key's contents never change. An error of `copy` leaves nothing behind. Raises ExtractionError if the cache cannot
    be written, or has no room.
    """
    path = cache.root / "blobs" / key / name
    cache.prepare()
    hint = "set MARPACK_CACHE_DIR to a folder that you can write"
    with convert_os_errors(ExtractionError, "the cache cannot be written", where=str(cache.root), hint=hint):
        path.parents[1].mkdir(mode=0o700, exist_ok=True)
        if size > (free := shutil.disk_usage(cache.root).free):
            raise OSError(errno.ENOSPC, f"the file has {size:,} bytes, and {free:,} are free")
        with bar("fetching", size) as progress, staged_file(path, replace=True, durable=True) as file:
            copy(file, progress)
        with staged_file(_stamp(path), replace=True) as stamp:
            stamp.write(msgspec.json.encode(_state(path)))
    evict(cache.root / "blobs", cache.limit, keep=path)
    return path


def _stamp(path: Path) -> Path:
    return path.with_name(f"{path.name}{_STAMP}")


def _state(path: Path) -> FileState:
    status = path.stat(follow_symlinks=False)
    return FileState(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def evict(blobs: Path, limit: int, *, keep: Path | None = None, unused: float = _IN_USE) -> None:
    """Remove the least recently used files, except those of the last `unused` seconds, until the rest fits."""
    stamps = []
    for stamp in blobs.glob(f"*/*{_STAMP}"):
        with suppress(OSError):  # another process removes it at the same time
            stamps.append((stamp.stat().st_mtime, stamp))
    for used, stamp in sorted(stamps, reverse=True):
        path = stamp.with_name(stamp.name.removesuffix(_STAMP))
        with suppress(OSError):  # a file that cannot be removed, or that another process removes, does not end the loop
            is_orphan = not path.exists()
            limit -= 0 if is_orphan else path.stat().st_size
            if is_orphan or (limit < 0 and path != keep and time.time() - used > unused):
                path.unlink(missing_ok=True)
                stamp.unlink()
                path.parent.rmdir()
