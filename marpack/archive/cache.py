"""Extracted archives and fetched files in this user's cache, so that the second run extracts and fetches nothing.

    <root>/<key>.json       the stamp of an entry: the folder with its files, and their state when they were written
    <root>/<key>.lock       held while the entry is being written
    <root>/<key>-<random>/  model/ (an archive's files, or a fetched file) and lock (held by each user of the folder)

An entry counts from the moment its complete stamp is renamed into place, and only while all files in the folder are as
the stamp says: everyone who opens an archive begins with its own bytes. All files are on the disk before the stamp is,
so an entry is valid on every machine that shares the cache, and after a crash. Files that a handler added are removed
when no process uses the folder; after any other change the entry is written again. A folder in use is never removed or
changed. Entries of an earlier marpack are removed like leftovers of killed processes, once it does not use them.
"""

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from marpack.archive.protocol import Bar, Progress, check_member_name, no_progress
from marpack.archive.staging import sync_file, sync_tree
from marpack.errors import (
    DamagedArchiveError,
    ExtractionError,
    LimitExceededError,
    UnsafeArchiveError,
    convert_os_errors,
    located,
)
from marpack.findings import Finding

with suppress(ImportError):  # Windows has no locks; it runs nothing, and so caches nothing
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock

if TYPE_CHECKING:
    from marpack.archive.http import HttpClient


class Extract(Protocol):
    """Writes all files into a folder, and returns the findings of reading the archive."""

    def __call__(self, folder: Path, /, progress: Progress | None) -> tuple[Finding, ...]:
        """Raise what makes the entry invalid."""


DEFAULT_LIMIT = 20 << 30  # bytes
_FORMAT = 4
_HEX = "[0-9a-f]"
_KEY = _HEX * 32  # what may be swept: the root may hold other files
_OLD_FILES = f"blobs/{_HEX * 64}/"  # where marpack 0.2 kept fetched files
_GRACE = 60  # seconds in which a new folder gets its lock, and a new lock is locked
_IN_USE = 24 * 3600  # seconds after its last use, within which a process may still work with a fetched file
_BLOCK = 1 << 20  # bytes
_MAX_NAME = 200  # bytes: the names of a stamp and of a temporary file are longer
_UNNAMED = "file"


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
    tree: dict[str, FileState | None]  # everything in the folder, by its name; None: a folder
    findings: tuple[Finding, ...] = ()  # of reading the archive, which a cached one is not read for again
    fetched: bool = False  # a file, which its users do not lock
    format: int = _FORMAT

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file."""
        return {name: state.size for name, state in self.tree.items() if state is not None}


class Cached(Struct, frozen=True):
    """An entry, safe from eviction until its cache is closed."""

    folder: Path
    findings: tuple[Finding, ...]
    names: tuple[str, ...] = ()  # of its files

    @property
    def is_whole(self) -> bool:
        """Return whether every file still exists; a handler may have changed some, as on a server."""
        return all(os.path.lexists(f"{self.folder}/{name}") for name in self.names)


class Cache:
    """The folder of extracted archives and fetched files; the entries that it returns stay until `close`."""

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
        """Return the entry if it is complete and unchanged, and nothing was added that must stay."""
        stamp = self._stamp(key) if _open_folder(self.root) is None else None
        if stamp is None or not self._hold(stamp.folder):
            return None
        if not self._is_unchanged(stamp):
            self.release()
            return None
        with suppress(OSError):
            os.utime(self.root / f"{key}.json")  # used now: the last to be evicted
        return Cached(self.root / stamp.folder / "model", stamp.findings, tuple(stamp.sizes))

    def fill(
        self,
        key: str,
        extract: Extract,
        *,
        size: int,
        fetched: bool = False,
        again: bool = False,
        bar: Bar | None = None,
    ) -> Cached:
        """Write an entry of `size` bytes, unless another process has done so meanwhile; with `again`, in any case.

        Raises what `extract` raises, with nothing left behind; ExtractionError if the cache cannot be written.
        """
        where = str(self.root)
        with located(where), convert_os_errors(ExtractionError, "the cache cannot be written", where=where):
            self.prepare()
            with suppress(OSError):  # another process evicts at the same time
                self.evict(keep=key)  # leftovers may fill the disk
            lock = self.root / f"{key}.lock"
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                with suppress(OSError):  # without locks, two processes at once both write it, and one wins
                    flock(fd, LOCK_EX)
                cached = None if again else self.find(key)
                if cached is None:
                    with (bar or self._bar)("fetching" if fetched else "extracting", size) as progress:
                        cached = self._write(key, partial(extract, progress=progress), fetched=fetched)
            finally:
                lock.unlink(missing_ok=True)  # those who wait for it still do; another one would only do the work twice
                os.close(fd)
        with suppress(OSError):  # as above
            self.evict(keep=key)
        return cached

    def release(self) -> None:
        """Release the entry that was returned last."""
        os.close(self._held.pop())

    def close(self) -> None:
        """Release the folders."""
        while self._held:
            self.release()

    def prepare(self) -> None:
        """Make the root; raises ExtractionError if another user could put files into it."""
        for folder in (each for each in (*reversed(self.root.parents), self.root) if not each.exists()):
            folder.mkdir(mode=0o700, exist_ok=True)
        open_folder = _open_folder(self.root)
        if open_folder is not None:
            hint = f"Set MARPACK_CACHE_DIR to a folder of yours. If this folder is yours: chmod go-w {open_folder}"
            message = "others can write to this folder, and so to the cache"
            raise ExtractionError(message, where=str(open_folder), hint=hint, code="unsafe-cache")

    def evict(self, *, keep: str = "", unused: float = _IN_USE) -> None:
        """Remove the least recently used entries until the rest fits the limit, and leftovers of crashed processes.

        Fetched files stay for `unused` seconds after their last use: their users do not hold them.
        """
        rest, known, now = self.limit, set[str](), time.time()
        for path, used in sorted(_times(self.root.glob(f"{_KEY}.json")), key=itemgetter(1), reverse=True):
            stamp = self._stamp(path.stem)
            if stamp is None:  # of another format: it is never used again
                path.unlink(missing_ok=True)
                continue
            rest -= sum(stamp.sizes.values())
            is_needed = path.stem == keep or rest >= 0 or (stamp.fetched and now - used <= unused)
            if is_needed or not _remove(self.root / stamp.folder, path):
                known.add(stamp.folder)
        for folder, changed in _times(self.root.glob(f"{_KEY}-{'?' * 8}/")):
            if folder.name not in known and now - changed > _GRACE:
                _remove(folder)
        for path, changed in _times(self.root.glob(f"{_KEY}.lock")):
            if now - changed > _GRACE:
                _remove_lock(path)
        for folder, _ in _times(self.root.glob(_OLD_FILES)):
            if all(now - used > _IN_USE for _, used in _times(folder.iterdir())):  # marpack 0.2 does not lock them
                _delete(folder)
        with suppress(OSError):  # it is not empty, or does not exist
            (self.root / "blobs").rmdir()

    def fetched_bytes(self) -> int:
        """Return the size of all fetched files."""
        stamps = (self._stamp(path.stem) for path in self.root.glob(f"{_KEY}.json"))
        return sum(sum(stamp.sizes.values()) for stamp in stamps if stamp is not None and stamp.fetched)

    def _write(self, key: str, extract: Callable[[Path], tuple[Finding, ...]], *, fetched: bool) -> Cached:
        old = self._stamp(key)
        folder = self.root / f"{key}-{os.urandom(4).hex()}"
        model = folder / "model"
        folder.mkdir(mode=0o700)
        with ExitStack() as undo:
            undo.callback(_delete, folder)
            (folder / "lock").touch()
            if self._hold(folder.name):
                undo.callback(self.release)
            model.mkdir()
            findings = extract(model)
            sync_tree(folder)
            stamp = TreeState(folder=folder.name, tree=_tree(model), findings=findings, fetched=fetched)
            new = folder / "stamp"
            new.write_bytes(msgspec.json.encode(stamp))
            sync_file(new)
            new.replace(self.root / f"{key}.json")
            undo.pop_all()
        if old is not None:
            _remove(self.root / old.folder)
        return Cached(model, findings, tuple(stamp.sizes))

    def _stamp(self, key: str) -> TreeState | None:
        """Return the stamp of a key if it is of this format, and names a folder of this key."""
        try:
            stamp = msgspec.json.decode((self.root / f"{key}.json").read_bytes(), type=TreeState)
        except (OSError, msgspec.DecodeError):
            return None
        is_current = stamp.format == _FORMAT
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
            self.release()
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
        with (folder / "lock").open("r+b") as lock:  # NFS locks only files that are open for writing
            flock(lock, LOCK_EX | LOCK_NB)
            if stamp:
                stamp.unlink(missing_ok=True)
            _delete(folder)
    except FileNotFoundError:
        if stamp:
            stamp.unlink(missing_ok=True)
        _delete(folder)
    except OSError:  # in use, or the file system has no locks
        return False
    return True


def _remove_lock(path: Path) -> None:
    """Remove the lock of an entry that no process writes."""
    with suppress(OSError), path.open("r+b") as lock:
        flock(lock, LOCK_EX | LOCK_NB)
        path.unlink()


def _times(paths: Iterable[Path]) -> list[tuple[Path, float]]:
    """Return paths with the times of their last change, in seconds, without those that another process removes."""
    found = []
    for path in paths:
        with suppress(OSError):
            found.append((path, path.lstat().st_mtime))
    return found


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
        if name.startswith(".") or len(os.fsencode(name)) > _MAX_NAME:
            name = _UNNAMED
    except UnsafeArchiveError:
        name = _UNNAMED
    if sha256 is not None and (path := _find_file(cache, _file_key(sha256, name), name)):
        return path
    with open_whole(address, client) as download:
        check_size(download.size or 0, maximum, where)
        version = (address.partition("#")[0], download.size, download.version)
        key = _file_key(sha256 or repr(version), name)
        is_lasting = sha256 is not None or bool(download.version)
        if sha256 is None and is_lasting and (path := _find_file(cache, key, name)):
            return path

        def fetch(folder: Path, progress: Progress | None) -> tuple[Finding, ...]:
            size, free = download.size or 0, shutil.disk_usage(folder).free
            if size > free:
                raise OSError(errno.ENOSPC, f"the file has {size:,} bytes, and {free:,} are free")
            sha, count = hashlib.sha256(), 0
            with (folder / name).open("xb") as file:
                for block in download.blocks(_BLOCK):
                    count += len(block)
                    check_size(count, maximum, where)
                    file.write(block)
                    sha.update(block)
                    if progress is not None:
                        progress(len(block))
            if sha256 is not None and sha.hexdigest() != sha256:
                what = f"the file has the digest sha256:{sha.hexdigest()}, not sha256:{sha256}"
                hint = "Do not use the file. Ask its publisher for the digest."
                raise DamagedArchiveError(what, where=where, hint=hint, code="digest-mismatch")
            return ()

        cached = cache.fill(key, fetch, size=download.size or 0, fetched=True, again=not is_lasting, bar=bar)
    cache.release()
    return cached.folder / name


def _file_key(identity: str, name: str) -> str:
    return hashlib.blake2b(f"{identity}\0{name}".encode(), digest_size=16).hexdigest()


def _find_file(cache: Cache, key: str, name: str) -> Path | None:
    """Return a fetched file that did not change since, and note its use."""
    cached = cache.find(key)
    if cached is None:
        return None
    cache.release()
    return cached.folder / name


def check_size(size: int, maximum: int, where: str) -> None:
    """Raise LimitExceededError for an archive with more bytes than may be fetched."""
    if size > maximum:
        what = f"the archive has at least {size:,} bytes; the maximum is {maximum:,}"
        raise LimitExceededError(what, where=where, hint="Raise the limit with --max-size.")
