"""A .mar, opened: a zip behind the protocol of archives."""

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Self

from marpack.archive.bytesource import ByteSource
from marpack.archive.cache import Cache, Cached
from marpack.archive.extraction import extract_member, make_folders
from marpack.archive.manifest import Manifest
from marpack.archive.member import open_member
from marpack.archive.names import quoted
from marpack.archive.protocol import ArchiveForm, Entry, Limits, Method, Progress, is_in_registry, total_size
from marpack.archive.server_rules import common_root, read_manifest, refused
from marpack.archive.zip_directory import Directory, ZipMember, read_directory
from marpack.findings import Finding


class ZipArchive:
    """A zip whose directory was read and checked; see `marpack.archive.protocol.Archive`."""

    form = ArchiveForm.MAR

    def __init__(self, source: str, data: ByteSource, *, limits: Limits, cache: Cache) -> None:
        """Read the directory; raises ArchiveError naming the member at fault."""
        self.source = source
        self._data = data
        self._cache = cache
        directory = read_directory(data, limits)
        root = common_root(member.name for member in directory.members)
        self._members = {member.name.removeprefix(root): member for member in directory.members}
        self._folders = tuple(folder.removeprefix(root) for folder in directory.folders if f"{folder}/" != root)
        entries = {name: _entry(name, member) for name, member in self._members.items()}
        self.entries: Mapping[str, Entry] = MappingProxyType(entries)
        self.server_findings = _oddities(source, directory, root)

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest; see `Archive.manifest`."""
        return read_manifest(self)

    def open(self, name: str) -> BinaryIO:
        """Open one member; see `Archive.open`."""
        return open_member(self._data, self._members[name])

    def materialize(self) -> Path:
        """Return the extracted folder; see `Archive.materialize`."""
        if not self._extracted.is_whole:
            del self._extracted
        return self._extracted.folder

    @cached_property
    def _extracted(self) -> Cached:
        _ = self.manifest  # what is wrong with it is said before anything is written
        key = self._data.identity
        return self._cache.find(key) or self._cache.fill(key, self._fill, size=total_size(self))

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Write members into a folder; see `Archive.extract`."""
        make_folders(folder, self._folders if names is None else ())
        for name, member in self._members.items():
            if names is None or name in names:
                extract_member(self._data, member, folder, name, progress)

    def _fill(self, folder: Path, names: Collection[str] | None, progress: Progress | None) -> tuple[Finding, ...]:
        self.extract(folder, names, progress)
        return self.server_findings

    def close(self) -> None:
        """Let go of the file, and of the folder in the cache."""
        self._data.close()
        self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _entry(name: str, member: ZipMember) -> Entry:
    return Entry(
        name=name,
        size=member.size,
        compressed_size=member.compressed_size,
        method=Method.STORED if member.stored else Method.DEFLATED,
        crc=member.crc,
        data_offset=member.offset if member.stored else None,
    )


def _oddities(source: str, directory: Directory, root: str) -> tuple[Finding, ...]:
    found = []
    if root:
        found.append(refused("mar-root-folder", source, quoted(root)))
    named = is_in_registry(source) or source.removesuffix("?…").endswith(".mar")  # addresses are shown without a query
    if not named:
        found.append(refused("archive-suffix", source, "a zip"))
    if directory.streamed_zip64:
        names = ", ".join(map(quoted, directory.streamed_zip64[:3]))
        found.append(refused("zip64-streamed", source, names))
    return tuple(found)
