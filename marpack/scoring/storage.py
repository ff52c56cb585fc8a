"""Where tables and files lie: here, or whatever fsspec reaches; found by name, folder or pattern, or named by rows."""

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from msgspec import Struct

from marpack.archive.addresses import public_address
from marpack.archive.remote import check_address, from_file_system
from marpack.errors import UsageError, did_you_mean
from marpack.torchserve.http import TooLargeError

_WEB = ("http", "https")
_OUTSIDE = "only files below {root} are read: links, `..` and whole paths that lead elsewhere are not followed"


class FileState(Struct, frozen=True, array_like=True):
    """What a file was like; one that is replaced or written to is another."""

    size: int  # bytes
    version: str  # when it was changed last, in ns; elsewhere what the store tells versions apart by


class FoundFiles(Struct, frozen=True):
    """What a word of the command line stands for."""

    root: str  # the folder or address that the names are relative to
    names: tuple[str, ...]  # in order, with "/"

    def path(self, name: str) -> str:
        """Return a file's whole path or address."""
        return f"{self.root.rstrip('/')}/{name}" if self.root != "." else name


def find(word: str) -> FoundFiles:
    """Return the files that a path, a folder, a pattern or an address stands for; raises UsageError for none.

    Of folders and patterns, what begins with a dot or an underscore is left out.
    """
    if "://" in word:
        return _find_elsewhere(word)
    if Path(word).is_file():
        return FoundFiles(os.path.dirname(word) or ".", (os.path.basename(word),))  # noqa: PTH119, PTH120 - as typed
    if Path(word).is_dir():
        return _found(word, (os.path.join(folder, name) for folder, _, names in os.walk(word) for name in names))  # noqa: PTH118
    if glob.has_magic(word):
        root = word[: next(place for place, letter in enumerate(word) if letter in "*?[")].rpartition("/")[0]
        root = root or ("/" if word.startswith("/") else ".")
        return _found(root, filter(os.path.isfile, glob.glob(word, recursive=True)), word)  # noqa: PTH207
    beside = Path(word).parent
    hint = did_you_mean(Path(word).name, (each.name for each in beside.iterdir())) if beside.is_dir() else None
    raise UsageError("there is no such file or folder", where=word, hint=hint, code="input-not-found")


def _found(root: str, paths: Iterable[str], word: str | None = None) -> FoundFiles:
    names = sorted(Path(os.path.relpath(path, root)).as_posix() for path in paths)
    shown = tuple(name for name in names if not name.startswith(("_", ".")) and "/." not in name and "/_" not in name)
    if not shown:
        raise UsageError(
            "nothing matches this" if word else "the folder holds no files", where=word or root, code="no-files"
        )
    return FoundFiles(root, shown)


def _find_elsewhere(word: str) -> FoundFiles:
    import fsspec  # noqa: PLC0415 - only such inputs need it

    check_address(word)
    with _reached(word):
        files, path = fsspec.core.url_to_fs(word)
        if any(letter in path for letter in "*?["):
            found = [name for name, info in files.glob(path, detail=True).items() if info.get("type") != "directory"]
            path = path[: min(path.index(letter) for letter in "*?[" if letter in path)].rpartition("/")[0]
        elif word.partition("://")[0] not in _WEB and files.isdir(path):
            found = list(files.find(path))
        else:
            path, _, name = path.rpartition("/")
            return FoundFiles(files.unstrip_protocol(path), (name,))
    return _found_elsewhere(files.unstrip_protocol(path), path.rstrip("/") + "/", found)


def _found_elsewhere(root: str, prefix: str, found: Iterable[str]) -> FoundFiles:
    names = sorted(name.removeprefix(prefix).removeprefix("/") for name in found)
    shown = tuple(name for name in names if not any(part.startswith(("_", ".")) for part in name.split("/")))
    if not shown:
        raise UsageError(
            "nothing matches this, or the folder holds no files", where=public_address(root), code="no-files"
        )
    return FoundFiles(root, shown)


def shown(path: str) -> str:
    """Return what a file is called in messages: an address without what may be secret in it."""
    return public_address(path) if "://" in path else path


def state_of(path: str) -> FileState:
    """Return what a file is like; raises UsageError where it is gone."""
    if "://" not in path:
        try:
            status = os.stat(path)  # noqa: PTH116 - after every batch
        except OSError as error:
            raise UsageError(f"the file cannot be read: {error.strerror}", where=path) from None
        return FileState(status.st_size, str(status.st_mtime_ns))
    import fsspec  # noqa: PLC0415 - as above

    with _reached(path):
        files, inside = fsspec.core.url_to_fs(path)
        info: dict[str, Any] = files.info(inside)  # Any: every file system tells something else
    versions = (info.get(key) for key in ("ETag", "etag", "LastModified", "mtime", "updated", "created"))
    return FileState(info.get("size") or 0, str(next((each for each in versions if each), "")))


def open_file(path: str) -> BinaryIO:
    """Open a file for reading; raises UsageError where that cannot be."""
    if "://" not in path:
        try:
            return Path(path).open("rb")
        except OSError as error:
            raise UsageError(f"the file cannot be read: {error.strerror}", where=path) from None
    import fsspec  # noqa: PLC0415 - as above

    with _reached(path):
        files, inside = fsspec.core.url_to_fs(path)
        opened: BinaryIO = files.open(inside, "rb")
    return opened


def _reached(path: str) -> AbstractContextManager[None]:
    where = shown(path)
    return from_file_system(path, lambda text: UsageError(text, where=where), "it cannot be read", "the files")


class FileFolder:
    """A folder that the files of rows lie in."""

    def __init__(self, root: str | None) -> None:
        """Take a folder, or an address that fsspec knows; None: the current one. Raises UsageError for no folder."""
        self._root = root if root is not None else "."
        self._files: Any = None  # Any: fsspec's file system; None: local
        if "://" in self._root:
            import fsspec  # noqa: PLC0415 - as above

            with _reached(self._root):
                self._files, self._base = fsspec.core.url_to_fs(self._root)
        elif Path(self._root).is_dir():
            self._base = os.path.realpath(self._root)
        else:
            raise UsageError("the root is no folder", where=self._root, code="root-not-found")

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a file's bytes.

        Raises UsageError for one that lies elsewhere or cannot be read, TooLargeError for more than `max_bytes`.
        """
        parts = PurePosixPath(name.replace("\\", "/") if os.sep == "\\" else name)
        if parts.is_absolute() or ".." in parts.parts or "\0" in name or Path(name).is_absolute():
            raise self._outside(name)
        return self._read_local(name, max_bytes) if self._files is None else self._fetch(str(parts), max_bytes)

    def _outside(self, name: str) -> UsageError:
        return UsageError(f"the file {name!r} is not read", hint=_OUTSIDE.format(root=self._root))

    def _read_local(self, name: str, max_bytes: int) -> bytes:
        path = os.path.realpath(os.path.join(self._base, name))  # noqa: PTH118 - thousands a second
        if not path.startswith(self._base.rstrip(os.sep) + os.sep):
            raise self._outside(name)
        try:
            with _opened(path) as descriptor:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise UsageError(f"{name!r} is no file")
                if status.st_size > max_bytes:
                    raise TooLargeError(status.st_size, max_bytes)
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read(max_bytes + 1)
        except OSError as error:
            raise UsageError(f"the file {name!r} cannot be read: {error.strerror}") from None

    def _fetch(self, name: str, max_bytes: int) -> bytes:
        path = f"{self._base.rstrip('/')}/{name}"
        with _reached(self._root):
            size = self._files.size(path)
            data: bytes = b"" if size > max_bytes else self._files.cat_file(path)
        if size > max_bytes:
            raise TooLargeError(size, max_bytes)
        return data


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Open whatever lies there now: no link that came meanwhile, and no pipe that one would wait for."""
    flags = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    descriptor = os.open(path, sum(flags, os.O_RDONLY))
    try:
        yield descriptor
    finally:
        os.close(descriptor)
