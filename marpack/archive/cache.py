"""Extracted archives and fetched files in this user's cache, so that the second run extracts and fetches nothing.

    <root>/<key>.json               where the files of an archive are, and their state when they were written
    <root>/<key>.lock               held while the archive is being extracted
    <root>/<key>-<random>/          model/ (the files) and lock (held by each user of the folder)
    <root>/blobs/<key>/<name>       a fetched file; the key is its SHA-256, if that was given
    <root>/blobs/<key>/<name>.json  its state at that time: a file that changed since is fetched again

A folder counts from the moment its complete stamp is renamed into place, and only while all files in it are as the
stamp says: everyone who opens an archive begins with its own bytes. Files that a handler added are removed when no
process uses the folder; after any other change the archive is extracted again. A folder in use is never removed or
changed.
"""

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from marpack.archive.protocol import Bar, Progress, check_member_name, no_progress
from marpack.archive.staging import LOCK_EX, LOCK_NB, LOCK_SH, flock, staged_file
from marpack.errors import (
    DamagedArchiveError,
    ExtractionError,
    LimitExceededError,
    UnsafeArchiveError,
    convert_os_errors,
    located,
)
from marpack.findings import Finding

if TYPE_CHECKING:
    from marpack.archive.http import HttpClient

# Writes all members into a folder, and returns the findings of reading them.
Extract = Callable[[Path, Progress | None], tuple[Finding, ...]]

DEFAULT_LIMIT = 20 << 30  # bytes
_FORMAT = 3
_KEY = "[0-9a-f]" * 32  # what may be swept: the root may hold other files
_GRACE = 60  # seconds in which a new folder gets its lock
_IN_USE = 24 * 3600  # seconds after its last use, within which a process may still work with a fetched file
_BLOCK = 1 << 20  # bytes
_MAX_NAME = 200  # bytes: the names of a stamp and of a temporary file are longer
_UNNAMED = "file"
_STAMP = ".json"


class FileState(Struct, frozen=True, array_like=True):
    """A file's state when it was written; a later write cannot set its ctime back."""

    size: int  # bytes
    mtime: int  # ns
    ctime: int  # ns

    @classmethod
    def of(cls, status: os.stat_result) -> "FileState":
        """Return the state of a file."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class TreeState(Struct, frozen=True, kw_only=True):
    """The contents of a cached folder."""

    folder: str  # beside the stamp
    boot: str  # a stamp counts until the next boot: files that were not on the disk by then may be damaged
    tree: dict[str, FileState | None]  # everything in the folder, by its name; None: a folder
    findings: tuple[Finding, ...] = ()  # of reading the archive, which a cached one is not read for again
    format: int = _FORMAT

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file."""
        return {name: state.size for name, state in self.tree.items() if state is not None}


class Cached(Struct, frozen=True):
    """An extracted archive, safe from eviction until its cache is closed."""

    folder: Path
    findings: tuple[Finding, ...]
    names: tuple[str, ...] = ()  # of its files

    @property
    def is_whole(self) -> bool:
        """Return whether every file still exists; a handler may have changed some, as on a server."""
        return all(os.path.lexists(f"{self.folder}/{name}") for name in self.names)


class Cache:
    """The folder of extracted archives; the folders that it returns are safe from eviction until `close`."""

    def __init__(self, root: Path | None = None, *, limit: int = DEFAULT_LIMIT, bar: Bar = no_progress) -> None:
        """Take the folder, made when first needed, its maximum size in bytes, and a progress bar."""
        self._given = root
        self.limit = limit
        self._bar = bar
        self._held: list[int] = []

    @cached_property
    def root(self) -> Path:
        """The folder, links resolved; by default this user's."""
        if self._given is not None:
            return Path(os.path.realpath(self._given))
        import platformdirs  # noqa: PLC0415 - only needed for extraction

        return Path(os.path.realpath(platformdirs.user_cache_path("marpack") / "archives"))

    def find(self, key: str) -> Cached | None:
        """Return the extracted archive if it is complete and unchanged, and nothing was added that must stay."""
        stamp = self._stamp(key) if _open_folder(self.root) is None else None
        if stamp is None or not self._hold(stamp.folder):
            return None
        if not self._is_unchanged(stamp):
            os.close(self._held.pop())
            return None
        with suppress(OSError):
            os.utime(self.root / f"{key}.json")  # used now: the last to be evicted
        return Cached(self.root / stamp.folder / "model", stamp.findings, tuple(stamp.sizes))

    def fill(self, key: str, extract: Extract, *, size: int) -> Cached:
        """Extract `size` bytes, unless another process has done so meanwhile.

        Raises what `extract` raises, with nothing left behind; ExtractionError if the cache cannot be written.
        """
        where = str(self.root)
        with located(where), convert_os_errors(ExtractionError, "the cache cannot be written", where=where):
            self.prepare()
            lock = self.root / f"{key}.lock"
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                with suppress(
                    OSError
                ):  # no locks on this file system: two processes at once both extract, and one wins
                    flock(fd, LOCK_EX)
                cached = self.find(key) or self._extract(key, extract, size)
            finally:
                lock.unlink(missing_ok=True)  # those who wait for it still do; another one would only do the work twice
                os.close(fd)
        with suppress(OSError):  # another process evicts at the same time
            self.evict(keep=key)
        return cached

    def close(self) -> None:
        """Release the folders."""
        while self._held:
            os.close(self._held.pop())

    def prepare(self) -> None:
        """Make the root; raises ExtractionError if another user could put files into it."""
        for folder in (each for each in (*reversed(self.root.parents), self.root) if not each.exists()):
            folder.mkdir(mode=0o700, exist_ok=True)
        open_folder = _open_folder(self.root)
        if open_folder is not None:
            hint = f"Set MARPACK_CACHE_DIR to a folder of yours. If this folder is yours: chmod go-w {open_folder}"
            message = "others can write to this folder, and so to the cache"
            raise ExtractionError(message, where=str(open_folder), hint=hint, code="unsafe-cache")

    def evict(self, *, keep: str = "") -> None:
        """Remove the least recently used folders until the rest fits the limit, and leftovers of crashed processes."""
        rest, known = self.limit, set[str]()
        for path in sorted(self.root.glob(f"{_KEY}.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            stamp = self._stamp(path.stem)
            if stamp is None:  # of another boot or format: it is never used again
                path.unlink(missing_ok=True)
                continue
            rest -= sum(stamp.sizes.values())
            if path.stem == keep or rest >= 0 or not _remove(self.root / stamp.folder, path):
                known.add(stamp.folder)
        for folder in (each for each in self.root.glob(f"{_KEY}-{'?' * 8}/") if each.name not in known):
            if time.time() - folder.stat().st_mtime > _GRACE:
                _remove(folder)

    def _extract(self, key: str, extract: Extract, size: int) -> Cached:
        old = self._stamp(key)
        folder = self.root / f"{key}-{os.urandom(4).hex()}"
        model = folder / "model"
        folder.mkdir(mode=0o700)
        with ExitStack() as undo:
            undo.callback(_delete, folder)
            (folder / "lock").touch()
            self._hold(folder.name)
            model.mkdir()
            with self._bar("extracting", size) as progress:
                findings = extract(model, progress)
            stamp = TreeState(folder=folder.name, boot=_boot(), tree=_tree(model), findings=findings)
            new = folder / "stamp"
            new.write_bytes(msgspec.json.encode(stamp))
            new.replace(self.root / f"{key}.json")
            undo.pop_all()
        if old is not None:
            _remove(self.root / old.folder)
        return Cached(model, findings, tuple(stamp.sizes))

    def _stamp(self, key: str) -> TreeState | None:
        """Return the stamp of a key if it is of this boot and format, and names a folder of this key."""
        try:
            stamp = msgspec.json.decode((self.root / f"{key}.json").read_bytes(), type=TreeState)
        except (OSError, msgspec.DecodeError):
            return None
        is_current = stamp.format == _FORMAT and stamp.boot == _boot()
        return stamp if is_current and stamp.folder.startswith(f"{key}-") and "/" not in stamp.folder else None

    def _hold(self, folder: str) -> bool:
        """Keep others from evicting a folder; return whether it exists and is free.

        On a file system without locks it is: nothing is evicted there either.
        """
        try:
            fd = os.open(self.root / folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        self._held.append(fd)
        try:
            flock(fd, LOCK_SH | LOCK_NB)
            is_free = os.fstat(fd).st_nlink > 0  # otherwise it was evicted meanwhile
        except OSError as error:
            is_free = not isinstance(error, BlockingIOError)
        if not is_free:
            os.close(self._held.pop())
        return is_free

    def _is_unchanged(self, stamp: TreeState) -> bool:
        """Return whether the folder held last is as its stamp says, once added files are removed if no one uses it."""
        model = self.root / stamp.folder / "model"
        with suppress(OSError):
            tree = _tree(model)
            if stamp.tree.items() < tree.items():
                flock(self._held[-1], LOCK_EX | LOCK_NB)  # raises if it is in use; kept: its user adds files again
                for name in sorted(tree.keys() - stamp.tree.keys()):  # a folder before its files
                    _delete(model / name)
                tree = _tree(model)
            return tree == stamp.tree
        return False


def _open_folder(root: Path) -> Path | None:
    """Return the folder through which others could put files into the cache: the root, or one above it."""
    try:
        status = root.stat()
        owner = os.geteuid() if hasattr(os, "geteuid") else None  # Windows runs nothing, and so caches nothing
        if status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return root
        modes = ((above, above.stat().st_mode) for above in root.parents)
        return next((above for above, mode in modes if mode & stat.S_IWOTH and not mode & stat.S_ISVTX), None)
    except OSError:  # it does not exist yet
        return root


def _remove(folder: Path, stamp: Path | None = None) -> bool:
    try:
        with (folder / "lock").open("rb") as lock:
            flock(lock, LOCK_EX | LOCK_NB)
            if stamp:
                stamp.unlink(missing_ok=True)
            _delete(folder)
    except FileNotFoundError:
        _delete(folder)
    except OSError:  # in use, or the file system has no locks
        return False
    return True


def _delete(path: Path) -> None:
    with suppress(OSError, RecursionError):  # the latter for folders nested beyond reason
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _tree(model: Path) -> dict[str, FileState | None]:
    """Return everything in a folder; raises OSError if it cannot be listed, or is reached by a link."""
    if os.path.realpath(model) != str(model):
        raise NotADirectoryError(errno.ENOTDIR, "a link is in its place", str(model))
    tree: dict[str, FileState | None] = {}
    ahead = [""]
    while ahead:
        prefix = ahead.pop()
        with os.scandir(f"{model}/{prefix}") as inside:
            for entry in inside:
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    tree[name] = None
                    ahead.append(f"{name}/")
                else:
                    tree[name] = FileState.of(entry.stat(follow_symlinks=False))
    return tree


@cache
def _boot() -> str:
    """Return an identity of this start of the machine, if the system has one."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def fetch_whole(
    address: str,
    cache: Cache,
    *,
    sha256: str | None,
    maximum: int,
    bar: Bar = no_progress,
    client: "HttpClient | None" = None,
) -> Path:
    """Return a remote file of up to `maximum` bytes as one of the cache; fetch it if the cache does not have it.

    `sha256` is of its bytes, lower-case hex. With None, any bytes are accepted, and fetched again once the server's
    version changes. The address is of http, https or s3, or of another kind that fsspec reads. For `client`, see
    `open_whole`.

    Raises NotAnArchiveError for a file that cannot be fetched, DamagedArchiveError for other bytes or too few,
    LimitExceededError, MissingExtraError; ExtractionError if the cache cannot be written.
    """
    from marpack.archive.addresses import public_address  # noqa: PLC0415 - local archives have no address
    from marpack.archive.remote import open_whole  # noqa: PLC0415 - a file of the cache needs no HTTP

    where, name = public_address(address), unquote(urlsplit(address).path).rpartition("/")[2]
    try:
        check_member_name(name)
        if name.startswith(".") or name.endswith(_STAMP) or len(os.fsencode(name)) > _MAX_NAME:
            name = _UNNAMED
    except UnsafeArchiveError:
        name = _UNNAMED
    if sha256 is not None and (path := find_kept(cache, sha256, name)):
        return path
    with open_whole(address, client) as download:
        check_size(download.size or 0, maximum, where)
        version = (address.partition("#")[0], download.size, download.version)
        key = sha256 or hashlib.sha256(repr(version).encode()).hexdigest()
        if sha256 is None and download.version and (path := find_kept(cache, key, name)):
            return path

        def copy(file: BinaryIO, progress: Progress | None) -> None:
            sha, count = hashlib.sha256(), 0
            for block in download.blocks(_BLOCK):
                count += len(block)
                check_size(count, maximum, where)
                file.write(block)
                if sha256 is not None:
                    sha.update(block)
                if progress is not None:
                    progress(len(block))
            if sha256 is not None and sha.hexdigest() != sha256:
                what = f"the file has the digest sha256:{sha.hexdigest()}, not sha256:{sha256}"
                hint = "Do not use the file. Ask its publisher for the digest."
                raise DamagedArchiveError(what, where=where, hint=hint, code="digest-mismatch")

        return keep(cache, key, name, copy, size=download.size or 0, bar=bar)


def check_size(size: int, maximum: int, where: str) -> None:
    """Raise LimitExceededError for an archive with more bytes than may be fetched."""
    if size > maximum:
        what = f"the archive has at least {size:,} bytes; the maximum is {maximum:,}"
        raise LimitExceededError(what, where=where, hint="Raise the limit with --max-size.")


def find_kept(cache: Cache, key: str, name: str) -> Path | None:
    """Return a file of the cache that did not change since it was fetched, and note its use.

    A cache that others can write to has none: they could have written both the file and its state.
    """
    if _open_folder(cache.root) is not None:
        return None
    path = cache.root / "blobs" / key / name
    stamp = path.with_name(name + _STAMP)
    try:
        status = path.stat(follow_symlinks=False)
        if msgspec.json.decode(stamp.read_bytes(), type=FileState) != FileState.of(status):
            return None
        os.utime(stamp)
    except (OSError, msgspec.DecodeError):
        return None
    return path


def keep(
    cache: Cache, key: str, name: str, copy: Callable[[BinaryIO, Progress | None], object], *, size: int, bar: Bar
) -> Path:
    """Write a file into the cache, whole or not at all, and return its path; `size` is its bytes, or 0 if unknown.

    A key's contents never change. An error of `copy` leaves nothing behind. Raises ExtractionError if the cache cannot
    be written, or has no room.
    """
    path = cache.root / "blobs" / key / name
    cache.prepare()
    with convert_os_errors(ExtractionError, "the cache cannot be written", where=str(cache.root)):
        path.parents[1].mkdir(mode=0o700, exist_ok=True)
        if size > (free := shutil.disk_usage(cache.root).free):
            raise OSError(errno.ENOSPC, f"the file has {size:,} bytes, and {free:,} are free")
        with bar("fetching", size) as progress, staged_file(path, replace=True, durable=True) as file:
            copy(file, progress)
        with staged_file(path.with_name(name + _STAMP), replace=True) as stamp:
            stamp.write(msgspec.json.encode(FileState.of(path.stat(follow_symlinks=False))))
    evict_fetched(cache.root / "blobs", cache.limit, keep=path)
    return path


def evict_fetched(blobs: Path, limit: int, *, keep: Path | None = None, unused: float = _IN_USE) -> None:
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
