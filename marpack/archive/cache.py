"""Extracted archives, kept by the identity of their files, so that the second run extracts nothing.

    <root>/<key>.json       what lies where, and what it looked like when it was written: the one way in
    <root>/<key>.lock       held while the archive is being extracted
    <root>/<key>-<random>/  model/ (the files) and lock (held by those who use them)

A folder counts from the moment its stamp is renamed into place, whole, and only while all that lies in it is as the
stamp says: whoever opens an archive begins with its own bytes. What a handler did to a folder is undone once nobody
uses it; until then others get a folder of their own. Nothing that somebody uses is ever removed or changed.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.locks import LOCK_EX, LOCK_NB, LOCK_SH, flock
from marpack.archive.protocol import Bar, Progress, no_progress
from marpack.errors import ExtractionError
from marpack.findings import Finding

# Writes members into a folder (None: all, and folders that hold nothing), and returns what reading them told.
Extract = Callable[[Path, Collection[str] | None, Progress | None], tuple[Finding, ...]]

DEFAULT_LIMIT = 20 << 30  # bytes
_FORMAT = 2
_KEY = "[0-9a-f]" * 32  # what may be swept: others may keep theirs in the root
_GRACE = 600  # seconds after which a folder that is not whole, has no stamp and no holder is a leftover
_MOVE = "set MARPACK_CACHE_DIR to a folder of yours"


class FileState(Struct, frozen=True, array_like=True):
    """How a file was left; whoever writes to it later cannot set its ctime back."""

    size: int  # bytes
    mtime: int  # ns
    ctime: int  # ns


Tree = dict[str, FileState | None]  # all that lies in a folder, by its name; None: a folder


class TreeState(Struct, frozen=True, kw_only=True):
    """What a cached folder holds."""

    folder: str  # beside the stamp
    boot: str  # written before the next boot only: what was not flushed by then may be gone
    tree: Tree
    written: bool = False  # by those who run there: each of them has it alone
    findings: tuple[Finding, ...] = ()  # what reading the archive told, for those who need not read it again
    format: int = _FORMAT

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file."""
        return {name: state.size for name, state in self.tree.items() if state is not None}


class Cached(Struct, frozen=True):
    """An extracted archive, safe from eviction until the cache it came from is closed."""

    folder: Path
    findings: tuple[Finding, ...]
    names: tuple[str, ...] = ()  # of its files

    @property
    def is_whole(self) -> bool:
        """Whether every file is still there; who runs in the folder may have changed some, as on a server."""
        return all(os.path.lexists(f"{self.folder}/{name}") for name in self.names)


class Cache:
    """The folder of extracted archives. What it hands out is safe from eviction until `close`."""

    def __init__(self, root: Path | None = None, *, limit: int = DEFAULT_LIMIT, bar: Bar = no_progress) -> None:
        """Take the folder, made when first needed, its size bound in bytes, and what shows how far an extraction is."""
        self._given = root
        self.limit = limit
        self._bar = bar
        self._held: list[int] = []

    @cached_property
    def root(self) -> Path:
        """The folder that everything lies in, by no link; this user's, where none was given."""
        if self._given is not None:
            return Path(os.path.realpath(self._given))
        import platformdirs  # noqa: PLC0415 - only who extracts pays for it

        return Path(os.path.realpath(platformdirs.user_cache_path("marpack") / "archives"))

    def find(self, key: str) -> Cached | None:
        """Return the extracted archive if it is there, all of it as it was left and nothing beside it."""
        stamp = self._stamp(key) if _open_folder(self.root) is None else None
        if stamp is None or not self._hold(stamp.folder, LOCK_EX if stamp.written else LOCK_SH):
            return None
        if not _is_as_left(self.root / stamp.folder / "model", stamp.tree):
            os.close(self._held.pop())
            return None
        with suppress(OSError):
            os.utime(self._stamp_path(key))  # used now: the last to be evicted
        return self._cached(stamp)

    def fill(self, key: str, extract: Extract, *, size: int) -> Cached:
        """Extract `size` bytes, or those of them that differ, unless another process has done so meanwhile.

        Raises whatever `extract` raises, with nothing left behind; ExtractionError if the cache cannot be written.
        """
        try:
            self.prepare()
            with _locked(self.root / f"{key}.lock"):
                cached = self.find(key) or self._repair(key, extract) or self._extract(key, extract, size)
        except OSError as error:
            message = f"the cache cannot be written: {error.strerror}"
            raise ExtractionError(message, where=str(self.root), hint=_MOVE) from error
        with suppress(OSError):  # another process is at it, too
            self.evict(keep=key)
        return cached

    def close(self) -> None:
        """Let go of the folders handed out."""
        while self._held:
            os.close(self._held.pop())

    def _extract(self, key: str, extract: Extract, size: int) -> Cached:
        written = self._stamp(key) is not None  # and what it tells of cannot be used
        folder = self.root / f"{key}-{os.urandom(4).hex()}"
        folder.mkdir(mode=0o700)
        with ExitStack() as undo:
            undo.callback(_delete, folder)
            (folder / "lock").touch()
            self._hold(folder.name, LOCK_EX if written else LOCK_SH)
            model = folder / "model"
            model.mkdir()
            with self._bar("extracting", size) as progress:
                findings = extract(model, None, progress)
            stamp = TreeState(folder=folder.name, boot=_boot(), tree=_tree(model), written=written, findings=findings)
            self._publish(key, stamp)
            undo.pop_all()
        return self._cached(stamp)

    def _repair(self, key: str, extract: Extract) -> Cached | None:
        """Undo what was done to a folder that nobody uses now; None: there is none, or it cannot be undone.

        Whoever is killed at it leaves a folder that differs from its stamp, as it did before.
        """
        stamp = self._stamp(key)
        if stamp is None or not self._hold(stamp.folder, LOCK_EX, surely=True):
            return None
        model, sizes = self.root / stamp.folder / "model", stamp.sizes
        with ExitStack() as undo:
            undo.callback(lambda: os.close(self._held.pop()))
            try:
                lost = _clear(model, stamp.tree)
            except OSError:  # what is there can neither be used nor removed
                return None
            if lost:
                with self._bar("extracting", sum(sizes[name] for name in lost)) as progress:
                    extract(model, lost, progress)
            stamp = replace(stamp, tree=_tree(model), written=True)
            self._publish(key, stamp)
            undo.pop_all()
        return self._cached(stamp)

    def _publish(self, key: str, stamp: TreeState) -> None:
        """Rename a stamp into place, once the file system's clock tells what is written from now on from what was."""
        folder = self.root / stamp.folder
        _await_tick(folder / "lock", max((state.ctime for state in stamp.tree.values() if state), default=0))
        (folder / "whole").touch()  # one without is being written, or was left half-written
        new = folder / "stamp"
        new.write_bytes(msgspec.json.encode(stamp))
        new.replace(self._stamp_path(key))

    def prepare(self) -> None:
        """Make the root; raises ExtractionError for one that somebody else could put files into."""
        for folder in (each for each in (*reversed(self.root.parents), self.root) if not each.exists()):
            folder.mkdir(mode=0o700, exist_ok=True)
        open_folder = _open_folder(self.root)
        if open_folder is not None:
            hint = f"if it is yours: chmod go-w {open_folder}; or {_MOVE}"
            message = "others can write to this folder, and so to the cache"
            raise ExtractionError(message, where=str(open_folder), hint=hint, code="unsafe-cache")

    def _cached(self, stamp: TreeState) -> Cached:
        return Cached(self.root / stamp.folder / "model", stamp.findings, tuple(stamp.sizes))

    def _stamp_path(self, key: str) -> Path:
        return self.root / f"{key}.json"

    def _stamp(self, key: str) -> TreeState | None:
        """Return a stamp of this boot and format whose folder is one of its own, beside it."""
        try:
            stamp = msgspec.json.decode(self._stamp_path(key).read_bytes(), type=TreeState)
        except (OSError, msgspec.DecodeError):
            return None
        of_now = stamp.format == _FORMAT and stamp.boot == _boot()
        return stamp if of_now and stamp.folder.startswith(f"{key}-") and "/" not in stamp.folder else None

    def _hold(self, folder: str, how: int, *, surely: bool = False) -> bool:
        """Keep others from evicting a folder, or from all use of it; say whether it is there, and free.

        A file system without locks says yes, as nothing is evicted there either, unless it has to be sure.
        """
        try:
            fd = os.open(self.root / folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        self._held.append(fd)
        try:
            flock(fd, how | LOCK_NB)
            free = os.fstat(fd).st_nlink > 0  # else it was evicted meanwhile
        except OSError as error:
            free = not surely and not isinstance(error, BlockingIOError)
        if not free:
            os.close(self._held.pop())
        return free

    def evict(self, *, keep: str = "") -> None:
        """Remove the least recently used folders until the rest fits the bound, and what crashed processes left."""
        rest, known = self.limit, set[str]()
        for path in sorted(self.root.glob(f"{_KEY}.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            stamp = self._stamp(path.stem)
            if stamp is None:  # of another boot or format: nobody will ever use it
                path.unlink(missing_ok=True)
                continue
            rest -= sum(stamp.sizes.values())
            if path.stem == keep or rest >= 0 or not _remove(self.root / stamp.folder, path):
                known.add(stamp.folder)
        for folder in (each for each in self.root.glob(f"{_KEY}-{'?' * 8}/") if each.name not in known):
            if (folder / "whole").exists() or time.time() - folder.stat().st_mtime > _GRACE:
                _remove(folder)


def _open_folder(root: Path) -> Path | None:
    """Return the folder through which others could put files into the cache: the root, or one above it."""
    try:
        status = root.stat()
        owner = os.geteuid() if hasattr(os, "geteuid") else None  # Windows, where nothing is run and so nothing kept
        if status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return root
        modes = ((above, above.stat().st_mode) for above in root.parents)
        return next((above for above, mode in modes if mode & stat.S_IWOTH and not mode & stat.S_ISVTX), None)
    except OSError:  # there is none yet
        return root


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, waiting for it as long as another process lives that does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # no locks on this file system: two processes at once both extract, and one wins
            flock(fd, LOCK_EX)
        yield
    finally:
        path.unlink(missing_ok=True)  # who waits for it still does; a third one would only do the work twice
        os.close(fd)


def _remove(folder: Path, stamp: Path | None = None) -> bool:
    """Remove a folder, and the stamp that points at it, unless somebody uses it."""
    try:
        with (folder / "lock").open("rb") as lock:
            flock(lock, LOCK_EX | LOCK_NB)
            if stamp:
                stamp.unlink(missing_ok=True)
            _delete(folder)
    except FileNotFoundError:
        _delete(folder)
    except OSError:  # in use, or there are no locks to tell
        return False
    return True


def _delete(path: Path) -> None:
    """Remove a file, a link or a folder, as far as it can be removed."""
    import shutil  # noqa: PLC0415 - looking into an archive removes nothing

    with suppress(OSError, RecursionError):  # the latter for folders nested beyond reason
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _clear(model: Path, tree: Tree) -> set[str]:
    """Remove what is not as it was left, make the folders that are missing, and return the files that now are.

    Raises OSError where something withstands.
    """
    for name, state in sorted(_tree(model).items()):  # a folder before what is in it
        if name not in tree or tree[name] != state:
            _delete(model / name)
    for name in (name for name, state in tree.items() if state is None):
        (model / name).mkdir(parents=True, exist_ok=True)
    left = _tree(model)
    if not left.items() <= tree.items():
        raise OSError(errno.ENOTEMPTY, "it cannot be cleared", str(model))
    return tree.keys() - left.keys()


def _tree(model: Path) -> Tree:
    """Return all that lies in a folder; raises OSError where it cannot be seen, or is reached by a link."""
    if os.path.realpath(model) != str(model):
        raise NotADirectoryError(errno.ENOTDIR, "a link is in its place", str(model))
    tree: Tree = {}
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
                    status = entry.stat(follow_symlinks=False)
                    tree[name] = FileState(status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return tree


def _is_as_left(model: Path, tree: Tree) -> bool:
    with suppress(OSError):
        return _tree(model) == tree
    return False


def _await_tick(file: Path, time_ns: int) -> None:
    """Wait until a file that is written now has a later ctime than that; give up where no clock moves."""
    end = time.monotonic() + 2.0  # seconds: no file system's is coarser
    while time.monotonic() < end:
        os.utime(file)
        if file.stat().st_ctime_ns > time_ns:
            return
        time.sleep(0.001)


@cache
def _boot() -> str:
    """Return what changes with every start of the machine, where it tells."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""
