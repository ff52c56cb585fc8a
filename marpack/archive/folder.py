"""A model folder, opened as it lies; the original archiver calls it `no-archive`."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Self

from marpack.archive.extraction import extract_blocks
from marpack.archive.manifest import Manifest
from marpack.archive.member import BLOCK
from marpack.archive.names import MAX_DEPTH, check_member_name, quoted
from marpack.archive.protocol import MANIFEST_NAME, ArchiveForm, Entry, Limits, Method, Progress
from marpack.archive.server_rules import read_manifest
from marpack.errors import DamagedArchiveError, LimitExceededError, NotAnArchiveError, UnsafeArchiveError, located
from marpack.findings import Finding


class FolderArchive:
    """A folder that holds MAR-INF/; see `marpack.archive.protocol.Archive`.

    It is its user's own, so links in it are followed, as the server does; nothing is copied. So what a handler writes
    into it stays, from run to run, as it does when a server serves the folder.
    """

    form = ArchiveForm.FOLDER

    def __init__(self, source: str, path: Path, *, limits: Limits) -> None:
        """List the files; raises ArchiveError naming the one that no archive may hold."""
        self.source = source
        with located(source):
            self._path = _inner(path.absolute())
            self.entries: Mapping[str, Entry] = MappingProxyType(_entries(self._path, limits))
        self.server_findings: tuple[Finding, ...] = ()

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest; see `Archive.manifest`."""
        return read_manifest(self)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _inner(path: Path) -> Path:
    """Return the folder that the server takes: if there is nothing but one folder inside, that one.

    Raises NotAnArchiveError when that has no manifest, before anything else in it is looked at.
    """
    inside = _children(path)
    found = inside[0] if len(inside) == 1 and inside[0].is_dir() else path
    if not (found / MANIFEST_NAME).exists():
        raise NotAnArchiveError(
            f"this folder is no model archive: it has no {MANIFEST_NAME}",
            hint="to make one of a project: marpack build",
        )
    return found


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DamagedArchiveError(f"the folder {quoted(folder.name)} cannot be read: {error.strerror}") from None


def _entries(root: Path, limits: Limits) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for path, status in _files(root, ()):
        name = path.relative_to(root).as_posix()
        check_member_name(name)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeArchiveError(f"the member {quoted(name)} is neither a file nor a folder")
        entries[name] = Entry(name=name, size=status.st_size, compressed_size=status.st_size, method=Method.STORED)
        if len(entries) > limits.members:
            raise LimitExceededError(
                f"the folder holds more than {limits.members} files",
                hint="is it a model folder? raise the limit: --max-members",
            )
    return entries


def _files(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield files in the order of their names, links followed, but never round in a circle."""
    here = folder.stat()
    if (here.st_dev, here.st_ino) in above or len(above) > MAX_DEPTH:
        raise UnsafeArchiveError(f"the folder {quoted(folder.name)} is a link to one that it lies in, or lies too deep")
    for path in _children(folder):
        try:
            status = path.stat()
        except OSError as error:
            raise DamagedArchiveError(f"the member {quoted(path.name)} cannot be read: {error.strerror}") from None
        if stat.S_ISDIR(status.st_mode):
            yield from _files(path, (*above, (here.st_dev, here.st_ino)))
        else:
            yield path, status
