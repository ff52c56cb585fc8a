"""A model folder, opened in place; the original archiver calls it `no-archive`."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from marpack.archive.extraction import BLOCK, extract_blocks
from marpack.archive.names import MAX_DEPTH, check_member_name, quoted
from marpack.archive.protocol import MANIFEST_NAME, Archive, ArchiveForm, Entry, Limits, Method, Progress
from marpack.errors import DamagedArchiveError, LimitExceededError, NotAnArchiveError, UnsafeArchiveError, located
from marpack.findings import Finding


class FolderArchive(Archive):
    """A folder that holds MAR-INF/; see `marpack.archive.protocol.Archive`.

    It is the user's own, so links in it are followed, as the server does, and nothing is copied. Files that a handler
    writes into it stay from run to run, as they do when a server serves the folder.
    """

    form = ArchiveForm.FOLDER

    def __init__(self, source: str, path: Path, *, limits: Limits) -> None:
        """List the files; raises ArchiveError naming the one that no archive may hold."""
        self.source = source
        with located(source):
            self._path = _find_root(path.absolute())
            entries: dict[str, Entry] = {}
            for file, status in _list_files(self._path):
                name = file.relative_to(self._path).as_posix()
                check_member_name(name)
                if not stat.S_ISREG(status.st_mode):
                    raise UnsafeArchiveError(f"the member {quoted(name)} is neither a file nor a folder")
                size = status.st_size
                entries[name] = Entry(name=name, size=size, compressed_size=size, method=Method.STORED)
                if len(entries) > limits.members:
                    raise LimitExceededError(
                        f"the folder holds more than {limits.members} files",
                        hint="is it a model folder? raise the limit: --max-members",
                    )
        self.entries: Mapping[str, Entry] = MappingProxyType(entries)
        self.server_findings: tuple[Finding, ...] = ()

    def open(self, name: str) -> BinaryIO:
        """Open one file; see `Archive.open`. There is no CRC to check."""
        _ = self.entries[name]
        try:
            return (self._path / name).open("rb")
        except OSError as error:
            raise DamagedArchiveError(
                f"the file {quoted(name)} cannot be read: {error.strerror}", where=self.source
            ) from None

    def materialize(self) -> Path:
        """Return the folder itself."""
        _ = self.manifest
        return self._path

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Copy files into a folder; see `Archive.extract`."""
        for name in self.entries:
            if names is None or name in names:
                with self.open(name) as file:
                    extract_blocks(iter(partial(file.read, BLOCK), b""), folder, name, progress)

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""


def _find_root(path: Path) -> Path:
    """Return the folder that the server uses: if there is only one folder inside, that one.

    Raises NotAnArchiveError when that has no manifest, before anything else in it is read.
    """
    inside = _list_folder(path)
    found = inside[0] if len(inside) == 1 and inside[0].is_dir() else path
    if not (found / MANIFEST_NAME).exists():
        raise NotAnArchiveError(
            f"this folder is not a model archive: it has no {MANIFEST_NAME}",
            hint="to build one from a project: marpack build",
        )
    return found


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DamagedArchiveError(f"the folder {quoted(folder.name)} cannot be read: {error.strerror}") from None


def _list_files(folder: Path, above: tuple[tuple[int, int], ...] = ()) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield files in the order of their names; links are followed, but never in a circle."""
    here = folder.stat()
    if (here.st_dev, here.st_ino) in above or len(above) > MAX_DEPTH:
        raise UnsafeArchiveError(f"the folder {quoted(folder.name)} is a link to a folder above it, or nested too deep")
    for path in _list_folder(folder):
        try:
            status = path.stat()
        except OSError as error:
            raise DamagedArchiveError(f"the member {quoted(path.name)} cannot be read: {error.strerror}") from None
        if stat.S_ISDIR(status.st_mode):
            yield from _list_files(path, (*above, (here.st_dev, here.st_ino)))
        else:
            yield path, status
