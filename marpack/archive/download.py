"""Whole files from elsewhere, each fetched once into this user's cache.

<cache>/blobs/<key>/<name>        a file as it was verified when it was fetched; the key is its SHA-256, where that was
                                  known before
<cache>/blobs/<key>/<name>.json   what the file looked like then: one that was touched since is fetched again
"""

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import msgspec

from marpack.archive.cache import Cache, FileState
from marpack.archive.names import check_member_name
from marpack.archive.protocol import Bar, Progress, is_in_registry, no_progress
from marpack.archive.remote import Download, open_whole, public_address
from marpack.archive.staging import staged_file
from marpack.errors import (
    DamagedArchiveError,
    ExtractionError,
    LimitExceededError,
    UnsafeArchiveError,
    UsageError,
    convert_os_errors,
    shortened,
)

_IN_USE = 24 * 3600  # seconds after it was last asked for, within which somebody may still work with a file
_BLOCK = 1 << 20  # bytes
_MAX_NAME = 200  # bytes: a stamp's and a temporary file's are longer
_UNNAMED = "file"
_STAMP = ".json"
_SHA256 = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)


def split_digest(source: str) -> tuple[str, str | None]:
    """Return an address without the `#sha256=…` behind it, and that; raises UsageError for anything else behind #."""
    address, mark, fragment = source.partition("#")
    name, _, sha256 = fragment.partition("=")
    if not mark:
        return address, None
    if name != "sha256" or not _SHA256.fullmatch(sha256):
        what = f"'#{shortened(fragment)}' is no digest"
        raise UsageError(what, where=public_address(address), hint="write #sha256= and 64 hexadecimal digits")
    return address, sha256.lower()


def with_digest(source: str | None, digest: str | None) -> str | None:
    """Return a SOURCE with the digest of its file, `sha256:<hex>`, if one is given; raises UsageError."""
    if digest is None:
        return source
    where = f"--digest {shortened(digest)}".strip()
    name, _, sha256 = digest.partition(":")
    if name != "sha256" or not _SHA256.fullmatch(sha256):
        raise UsageError("this is no digest", where=where, hint="write sha256: and 64 hexadecimal digits")
    if source is None or "://" not in source or is_in_registry(source):
        hint = "a registry's archive is named by its own: oci://HOST/REPOSITORY@sha256:…"
        raise UsageError("it is for a file at an http, https or s3 address", where=where, hint=hint)
    address, other = split_digest(source)
    if other not in (None, sha256.lower()):
        raise UsageError(f"the address says another: {other}", where=where, hint="leave the wrong one out")
    return f"{address}#sha256={sha256.lower()}"


def fetch_whole(address: str, cache: Cache, *, sha256: str | None, maximum: int, bar: Bar = no_progress) -> Path:
    """Return a file at an address as one of the cache, whole; what is there already is not fetched again.

    Args:
        address: http, https or s3, or whatever else fsspec reads.
        cache: Its folder is where the file lies.
        sha256: That of its bytes, lower-case hex; None: it is taken as it comes, and again once it has changed there.
        maximum: Bytes that it may have.
        bar: Shows how far it is.

    Raises NotAnArchiveError where nothing can be had, DamagedArchiveError for other bytes than these or too few,
    LimitExceededError, MissingExtraError; ExtractionError if the cache cannot be written.
    """
    where, name = public_address(address), _name_of(address)
    if sha256 is not None and (path := find_kept(cache, sha256, name)):
        return path
    with open_whole(address) as download:
        check_size(download.size or 0, maximum, where)
        key = sha256 or _key(address, download)
        path = find_kept(cache, key, name) if download.version and sha256 is None else None
        copy = partial(_copy, download, where, sha256, maximum)
        return path or keep(cache, key, name, copy, size=download.size or 0, bar=bar)


def check_size(size: int, maximum: int, where: str) -> None:
    """Raise LimitExceededError for an archive that is larger than may be fetched."""
    if size > maximum:
        what = f"the archive has {size:,} bytes; {maximum:,} is the most"
        raise LimitExceededError(what, where=where, hint="--max-size raises it")


def _name_of(address: str) -> str:
    """Return the name under which a file is kept: its own, if that can be a file's."""
    name = unquote(urlsplit(address).path).rpartition("/")[2]
    try:
        check_member_name(name)
    except UnsafeArchiveError:
        return _UNNAMED
    return _UNNAMED if name.startswith(".") or name.endswith(_STAMP) or len(os.fsencode(name)) > _MAX_NAME else name


def _key(address: str, download: Download) -> str:
    """Return what tells a file from others at this address, and before or after."""
    parts = (address.partition("#")[0], download.size, download.version)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _copy(
    download: Download, where: str, sha256: str | None, maximum: int, file: BinaryIO, progress: Progress | None
) -> None:
    sha, count = hashlib.sha256(), 0
    while block := download.read(_BLOCK):
        count += len(block)
        if count > maximum:
            what = f"it has more bytes than {maximum:,}, which is the most"
            raise LimitExceededError(what, where=where, hint="--max-size raises it")
        file.write(block)
        sha.update(block)
        if progress is not None:
            progress(len(block))
    if download.size is not None and count != download.size:
        what = f"the connection broke off after {count:,} of {download.size:,} bytes"
        raise DamagedArchiveError(what, where=where, hint="try again")
    if sha256 is not None and sha.hexdigest() != sha256:
        what = f"these are other bytes than were asked for: their digest is sha256:{sha.hexdigest()}"
        hint = f"it should be sha256:{sha256}; ask whoever told you that"
        raise DamagedArchiveError(what, where=where, hint=hint, code="digest-mismatch")


def find_kept(cache: Cache, key: str, name: str) -> Path | None:
    """Return a file of the cache that nobody has touched since it was fetched, and note that it is used now."""
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
    """Write a file into the cache, whole or not at all, and return where it lies; `size` bytes are to come, 0: unknown.

    What is kept under one key never changes. What `copy` raises leaves nothing behind. Raises ExtractionError if the
    cache cannot be written, or has no room.
    """
    path = cache.root / "blobs" / key / name
    cache.prepare()
    with _writable(cache.root):
        path.parents[1].mkdir(mode=0o700, exist_ok=True)
        if size > (free := shutil.disk_usage(cache.root).free):
            raise OSError(errno.ENOSPC, f"{size:,} bytes are to come, and there is room for {free:,}")
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
    """Remove what was used least recently, and not within `unused` seconds, until the rest fits the bound."""
    for used, stamp in sorted(_stamps(blobs), reverse=True):
        path = stamp.with_name(stamp.name.removesuffix(_STAMP))
        with suppress(OSError):  # a file that cannot be removed, or that another process removes, does not end the loop
            is_orphan = not path.exists()
            limit -= 0 if is_orphan else path.stat().st_size
            if is_orphan or (limit < 0 and path != keep and time.time() - used > unused):
                path.unlink(missing_ok=True)
                stamp.unlink()
                path.parent.rmdir()


def _stamps(blobs: Path) -> Iterator[tuple[float, Path]]:
    """Yield when each file of the cache was used last, and its stamp."""
    for stamp in blobs.glob(f"*/*{_STAMP}"):
        with suppress(OSError):  # another process removes it at the same time
            yield stamp.stat().st_mtime, stamp


@contextmanager
def _writable(root: Path) -> Iterator[None]:
    hint = "set MARPACK_CACHE_DIR to a folder of yours"
    with convert_os_errors(ExtractionError, "the cache cannot be written", where=str(root), hint=hint):
        yield
