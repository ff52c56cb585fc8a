"""Extracted archives, kept by the identity of their files, so that the second run extracts nothing.

    <root>/<key>.json       what lies where, and what it looked like when it was written: the one way in
    <root>/<key>.lock       held while the archive is being extracted
    <root>/<key>-<random>/  model/ (the files) and lock (held, shared, by those who use them)

A folder counts from the moment its stamp is renamed into place, whole. Nothing that somebody uses is ever removed.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from marpack.archive.protocol import Bar, Progress, no_progress
from marpack.errors import ExtractionError
from marpack.findings import Finding

# Writes an archive's members into a folder, and returns what reading them told.
Extract = Callable[[Path, Progress | None], tuple[Finding, ...]]

DEFAULT_LIMIT = 20 << 30  # bytes
_FORMAT = 1
_GRACE = 600  # seconds after which a folder without a stamp and a holder is a leftover
_MOVE = "set MARPACK_CACHE_DIR to a folder of yours"


class CachedFile(Struct, frozen=True):
    """One extracted file, as it was left."""

    name: str
    size: int  # bytes
    mtime: int  # ns

    @classmethod
    def of(cls, name: str, status: os.stat_result) -> "CachedFile":
        """Return a file as it is."""
        return cls(name, status.st_size, status.st_mtime_ns)


class TreeState(Struct, frozen=True, kw_only=True):
    """What a cached folder holds."""

    folder: str  # beside the stamp
    boot: str  # written before the next boot only: what was not flushed by then may be gone
    files: tuple[CachedFile, ...]
    findings: tuple[Finding, ...] = ()  # what reading the archive told, for those who need not read it again
    format: int = _FORMAT


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
        self._root = root
        self.limit = limit
        self._bar = bar
        self._held: list[int] = []

    @property
    def root(self) -> Path:
        """The folder that everything lies in; this user's, where none was given."""
        if self._root is None:
            import platformdirs  # noqa: PLC0415 - only who extracts pays for it

            self._root = platformdirs.user_cache_path("marpack") / "archives"
        return self._root

    def find(self, key: str) -> Cached | None:
        """Return the extracted archive if it is there and its files are as they were left."""
        stamp = self._stamp(key) if self._is_ours() else None
        if stamp is None or stamp.boot != _boot():
            return None
        folder = self.root / stamp.folder
        if not self._hold(folder) or not _unchanged(folder / "model", stamp.files):
            return None
        with suppress(OSError):
            os.utime(self._stamp_path(key))  # used now: the last to be evicted
        return Cached(folder / "model", stamp.findings, tuple(kept.name for kept in stamp.files))

    def fill(self, key: str, extract: Extract, *, size: int) -> Cached:
        """Extract `size` bytes into a new folder, unless another process has done so meanwhile, and return it.

        Raises whatever `extract` raises, with nothing left behind; ExtractionError if the cache cannot be written.
        """
        try:
            self._prepare()
            with _locked(self.root / f"{key}.lock"):
                cached = self.find(key) or self._extract(key, extract, size)
        except OSError as error:
            raise ExtractionError(
                f"the cache cannot be written: {error.strerror}", where=str(self.root), hint=_MOVE
            ) from error
        with suppress(OSError):  # another process is at it, too
            self._evict(keep=key)
        return cached

    def close(self) -> None:
        """Let go of the folders handed out."""
        while self._held:
            os.close(self._held.pop())

    def _extract(self, key: str, extract: Extract, size: int) -> Cached:
        import tempfile  # noqa: PLC0415 - looking into an archive extracts nothing

        folder = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=self.root))
        with ExitStack() as undo:
            undo.callback(_delete, folder)
            (folder / "lock").touch()
            self._hold(folder)
            model = folder / "model"
            model.mkdir()
            with self._bar("extracting", size) as progress:
                findings = extract(model, progress)
            stamp = TreeState(folder=folder.name, boot=_boot(), files=tuple(_files(str(model))), findings=findings)
            _replace(self._stamp_path(key), msgspec.json.encode(stamp))
            undo.pop_all()
        return Cached(model, findings, tuple(kept.name for kept in stamp.files))

    def _prepare(self) -> None:
        """Make the root, and refuse one that somebody else could have put files into."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._is_ours():
            raise ExtractionError("the cache can be written by others", where=str(self.root), hint=_MOVE)

    def _is_ours(self) -> bool:
        try:
            status = self.root.stat()
        except OSError:
            return False
        return status.st_uid == os.geteuid() and not status.st_mode & stat.S_IWOTH

    def _stamp_path(self, key: str) -> Path:
        return self.root / f"{key}.json"

    def _stamp(self, key: str) -> TreeState | None:
        try:
            stamp = msgspec.json.decode(self._stamp_path(key).read_bytes(), type=TreeState)
        except (OSError, msgspec.DecodeError):
            return None
        return stamp if stamp.format == _FORMAT else None

    def _hold(self, folder: Path) -> bool:
        """Keep others from evicting a folder; say whether it is still there."""
        try:
            fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        with suppress(OSError):  # no locks on this file system: then nothing is evicted there either
            fcntl.flock(fd, fcntl.LOCK_SH)
        if not os.fstat(fd).st_nlink:  # evicted while we waited
            os.close(fd)
            return False
        self._held.append(fd)
        return True

    def _evict(self, *, keep: str) -> None:
        """Remove the least recently used folders until the rest fits the bound, and what crashed processes left."""
        rest = self.limit
        known = set()
        for path in sorted(self.root.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            key, stamp = path.stem, self._stamp(path.stem)
            if stamp is None:
                continue
            rest -= sum(kept.size for kept in stamp.files)
            if key == keep or rest >= 0 or not _remove(self.root / stamp.folder, path):
                known.add(stamp.folder)
        for folder in self.root.glob("*-*/"):
            if folder.name not in known and time.time() - folder.stat().st_mtime > _GRACE:
                _remove(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, waiting for it as long as another process lives that does."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # no locks on this file system: two processes at once both extract, and one wins
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        path.unlink(missing_ok=True)  # who waits for it still does; a third one would only do the work twice
        os.close(fd)


def _remove(folder: Path, stamp: Path | None = None) -> bool:
    """Remove a folder, and the stamp that points at it, unless somebody uses it."""
    try:
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stamp:
                stamp.unlink(missing_ok=True)
            _delete(folder)
    except FileNotFoundError:
        _delete(folder)
    except OSError:  # in use, or there are no locks to tell
        return False
    return True


def _delete(folder: Path) -> None:
    import shutil  # noqa: PLC0415 - as for tempfile

    shutil.rmtree(folder, ignore_errors=True)


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(f".{os.getpid()}")
    new.write_bytes(data)
    new.replace(path)


def _files(folder: str, prefix: str = "") -> Iterator[CachedFile]:
    with os.scandir(folder) as inside:
        for entry in inside:
            if entry.is_dir():
                yield from _files(entry.path, f"{prefix}{entry.name}/")
            else:
                yield CachedFile.of(prefix + entry.name, entry.stat())


def _unchanged(folder: Path, files: tuple[CachedFile, ...]) -> bool:
    """Say whether every file is as it was left; others beside them (`__pycache__`) do no harm."""
    try:
        return all(CachedFile.of(kept.name, os.stat(f"{folder}/{kept.name}")) == kept for kept in files)  # noqa: PTH116 - a Path each is slow
    except OSError:
        return False


def _boot() -> str:
    """Return what changes with every start of the machine, where it tells."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
