"""Tables and files, local or of fsspec: found by name, folder or pattern, or named by rows, also by address."""

import glob
import math
import os
import stat
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from msgspec import Struct

from marpack.archive.addresses import is_http, is_public, public_address
from marpack.archive.http import Deadline, HttpClient, HttpError, split_credentials
from marpack.archive.remote import check_address, from_file_system
from marpack.errors import UsageError, convert_os_errors, describe_os_error, nearest
from marpack.torchserve.http import TooLargeError

_WEB = ("http", "https")
_SECONDS = 30.0  # that one address may take
_OUTSIDE = "Name a file below {root}, without `..` and links out of it."

_CHECK = "Check the address and your access to it."


class FileState(Struct, frozen=True, array_like=True):
    """The state of a file, which changes when it is replaced or written to."""

    size: int  # bytes
    version: str  # its last change in ns; of a remote file, the version that its store states


class FoundFiles(Struct, frozen=True):
    """The files that a word of the command line names."""

    root: str  # the folder or address that the names are relative to
    names: tuple[str, ...]  # in order, with "/"

    def path(self, name: str) -> str:
        """Return a file's whole path or address."""
        return f"{self.root.rstrip('/')}/{name}" if self.root != "." else name


def find(word: str) -> FoundFiles:
    """Return the files that a path, a folder, a pattern or an address names; raise UsageError for none.

    Of folders and patterns, names that begin with a dot or an underscore are left out.
    """
    if "://" in word:
        return _find_remote(word)
    if Path(word).is_file():
        return FoundFiles(os.path.dirname(word) or ".", (os.path.basename(word),))  # noqa: PTH119, PTH120 - as typed
    if Path(word).is_dir():
        root, paths = word, [f"{folder}/{name}" for folder, _, names in os.walk(word) for name in names]
    elif glob.has_magic(word):
        root = word[: next(place for place, letter in enumerate(word) if letter in "*?[")].rpartition("/")[0]
        root = root or ("/" if word.startswith("/") else ".")
        paths = list(filter(os.path.isfile, glob.glob(word, recursive=True)))  # noqa: PTH207
    else:
        beside = Path(word).parent
        near = nearest(Path(word).name, (each.name for each in beside.iterdir())) if beside.is_dir() else None
        hint = f"Did you mean {beside / near}?" if near else "Check the path. Put a pattern in quotes."
        raise UsageError("the file or folder does not exist", where=word, hint=hint, code="input-not-found")
    return _visible(root, (Path(os.path.relpath(path, root)).as_posix() for path in paths), word)


def _find_remote(word: str) -> FoundFiles:
    import fsspec  # noqa: PLC0415 - only such inputs need it

    check_address(word)
    with _errors(word):
        files, path = fsspec.core.url_to_fs(word)
        if any(letter in path for letter in "*?["):
            found = [name for name, info in files.glob(path, detail=True).items() if info.get("type") != "directory"]
            path = path[: min(path.index(letter) for letter in "*?[" if letter in path)].rpartition("/")[0]
        elif word.partition("://")[0] not in _WEB and files.isdir(path):
            found = list(files.find(path))
        else:
            path, _, name = path.rpartition("/")
            return FoundFiles(files.unstrip_protocol(path), (name,))
    root, prefix = files.unstrip_protocol(path), path.rstrip("/") + "/"
    return _visible(root, (name.removeprefix(prefix).removeprefix("/") for name in found), public_address(root))


def _visible(root: str, names: Iterable[str], where: str) -> FoundFiles:
    """Return the files without those that begin with a dot or an underscore; raise UsageError if none is left."""
    kept = (name for name in sorted(names) if not any(part.startswith(("_", ".")) for part in name.split("/")))
    found = FoundFiles(root, tuple(kept))
    if not found.names:
        hint = "Check the path. Names that start with a dot or an underscore are ignored."
        raise UsageError("no files match", where=where, hint=hint, code="no-files")
    return found


def shown(path: str) -> str:
    """Return a file's name in messages: an address without its secrets."""
    return public_address(path) if "://" in path else path


def state_of(path: str) -> FileState:
    """Return a file's state; raise UsageError if it is missing."""
    if "://" not in path:
        with convert_os_errors(UsageError, "the file cannot be read", where=path):
            status = os.stat(path)  # noqa: PTH116 - after every batch
        return FileState(status.st_size, str(status.st_mtime_ns))
    import fsspec  # noqa: PLC0415 - as above

    with _errors(path):
        files, inside = fsspec.core.url_to_fs(path)
        info: dict[str, Any] = files.info(inside)  # Any: every file system has other keys
    versions = (info.get(key) for key in ("ETag", "etag", "LastModified", "mtime", "updated", "created"))
    return FileState(info.get("size") or 0, str(next((each for each in versions if each), "")))


def open_file(path: str) -> BinaryIO:
    """Open a file for reading; raise UsageError if it cannot be read."""
    if "://" not in path:
        with convert_os_errors(UsageError, "the file cannot be read", where=path):
            return Path(path).open("rb")
    import fsspec  # noqa: PLC0415 - as above

    with _errors(path):
        files, inside = fsspec.core.url_to_fs(path)
        opened: BinaryIO = files.open(inside, "rb")
    return opened


def _errors(path: str) -> AbstractContextManager[None]:
    where = shown(path)
    return from_file_system(
        path, lambda text: UsageError(text, where=where, hint=_CHECK), "the file cannot be read", "the files"
    )


class FileFolder:
    """The folder of the files that rows name."""

    def __init__(self, root: str | None) -> None:
        """Take a folder, or an address of fsspec; None: the current one. Raises UsageError for another file."""
        self._root = root if root is not None else "."
        self._files: Any = None  # Any: fsspec's file system; None: local
        if "://" in self._root:
            import fsspec  # noqa: PLC0415 - as above

            with _errors(self._root):
                self._files, self._base = fsspec.core.url_to_fs(self._root)
        elif Path(self._root).is_dir():
            self._base = os.path.realpath(self._root)
        else:
            hint = "Name the folder that the paths are relative to."
            raise UsageError("the root is not a folder", where=self._root, hint=hint, code="root-not-found")

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return a file's bytes.

        Raises UsageError for one outside of the folder or unreadable, TooLargeError for more than `max_bytes`.
        """
        outside = UsageError(f"the file {name!r} is not read", hint=_OUTSIDE.format(root=self._root))
        parts = PurePosixPath(name.replace("\\", "/") if os.sep == "\\" else name)
        if parts.is_absolute() or ".." in parts.parts or "\0" in name or Path(name).is_absolute():
            raise outside
        if self._files is not None:
            path = f"{self._base.rstrip('/')}/{parts}"
            with _errors(self._root):
                size = self._files.size(path)
                data: bytes = b"" if size > max_bytes else self._files.cat_file(path)
            if size > max_bytes:
                raise TooLargeError(size, max_bytes)
            return data
        path = os.path.realpath(os.path.join(self._base, name))  # noqa: PTH118 - thousands a second
        if not path.startswith(self._base.rstrip(os.sep) + os.sep):
            raise outside
        # A link that replaced the file meanwhile is not followed, and a pipe is not waited for.
        flags = (getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
        try:
            descriptor = os.open(path, sum(flags, os.O_RDONLY))
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise UsageError(f"{name!r} is not a file", hint="Name one file in each row.")
                if status.st_size > max_bytes:
                    raise TooLargeError(status.st_size, max_bytes)
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read(max_bytes + 1)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UsageError(f"the file {name!r} cannot be read: {describe_os_error(error)}") from None


class UrlFetcher:
    """Fetches http and https addresses over kept connections, bounded in size and time; threads may share it.

    Each IP address is checked when a connection to it is made, so that a name cannot change its meaning between the
    check and the connection. Proxies of the environment are not used: they would connect in place of this process.
    """

    def __init__(self, *, allow_private: bool, max_bytes: int, seconds: float = _SECONDS) -> None:
        """Take whether private addresses are allowed, the bytes of a response, and the time that it may take."""
        self._client = HttpClient(proxies=False, is_allowed=None if allow_private else is_public)
        self._max_bytes = max_bytes
        self._seconds = seconds

    def fetch(self, url: str) -> bytes:
        """Return the bytes at an address; it may redirect five times, never from https to http.

        Raises UsageError for an address that cannot be fetched, TooLargeError for a response that is too large.
        """
        try:
            if not is_http(url):
                raise HttpError("only http:// and https:// addresses are fetched", code="invalid-address")
            if split_credentials(url)[1]:
                raise HttpError("an address with a user or password is not fetched", code="invalid-address")
            with self._client.get(url, deadline=Deadline(self._seconds, slowest=math.inf)) as response:
                if not 200 <= response.status < 300:
                    raise HttpError(f"the server responds {response.status} {response.reason}")
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise HttpError("the server sends compressed bytes, which were not requested")
                if response.size is not None and response.size > self._max_bytes:
                    raise TooLargeError(response.size, self._max_bytes)
                data = response.read_up_to(self._max_bytes + 1)
        except HttpError as error:
            is_private = error.code == "forbidden-address"
            hint = "Pass --allow-private to fetch from your own network." if is_private else None
            raise UsageError(error.what, where=public_address(url), hint=hint, code=error.code) from None
        if len(data) > self._max_bytes:
            raise TooLargeError(len(data), self._max_bytes)
        return data
