"""The protocol of archives, their limits, and what the server requires of their form (contract §1)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from msgspec import Struct

from marpack.archive.manifest import MAX_BYTES, Manifest
from marpack.archive.names import name_problem, quoted
from marpack.errors import ManifestError
from marpack.findings import Finding

Progress = Callable[[int], object]  # takes the number of bytes just read or written
# Takes a label ("packing") and the total of bytes; gives a function that reports bytes, or None.
Bar = Callable[[str, int], AbstractContextManager[Progress | None]]
MANIFEST_NAME = "MAR-INF/MANIFEST.json"
INDEX_NAME = "MAR-INF/marpack.json"
REGISTRY = "oci://"  # what the address of an archive in a registry begins with
_MIB = 1 << 20
_GIB = 1 << 30
_REBUILD = "build the archive again: marpack build"


def no_progress(_what: str, _total: int) -> AbstractContextManager[None]:
    """Show nothing: the bar without a terminal."""
    return nullcontext()


def is_in_registry(source: str) -> bool:
    """Return whether a SOURCE is the address of an archive in a registry."""
    return source[: len(REGISTRY)].lower() == REGISTRY


class ArchiveForm(StrEnum):
    """The form of an archive on disk."""

    MAR = "mar"
    TGZ = "tgz"
    FOLDER = "folder"


class Method(StrEnum):
    """A member's compression."""

    STORED = "stored"
    DEFLATED = "deflated"


class Entry(Struct, frozen=True, kw_only=True):
    """One file of an archive, as its directory describes it; folders have no entries."""

    name: str  # inside the archive, with "/", root folder of a .tar.gz already dropped
    size: int  # bytes, uncompressed
    compressed_size: int  # bytes in the archive
    method: Method
    crc: int | None = None  # CRC-32 of the uncompressed bytes, where the form records it
    data_offset: int | None = None  # bytes from the archive's start to the member's data, where it can be read by range


class Archive(Protocol):
    """One protocol, three bodies (zip, tar, folder); nothing above this layer knows which."""

    form: ArchiveForm
    source: str  # the path or address this archive was opened from, as the user wrote it
    entries: Mapping[str, Entry]  # every file by its name, in the archive's own order; names are safe and unique
    # What the server refuses in this archive's form, although it opens here: errors under target `torchserve`.
    server_findings: tuple[Finding, ...]

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest; raises ManifestError if it is missing, malformed, or points outside the archive."""
        where = f"{self.source}!{MANIFEST_NAME}"
        entry = self.entries.get(MANIFEST_NAME)
        if entry is None:
            raise ManifestError(f"the archive has no {MANIFEST_NAME}", where=self.source, hint=_REBUILD)
        if entry.size > MAX_BYTES:
            raise ManifestError(f"the manifest has {entry.size} bytes; {MAX_BYTES} is the most", where=where)
        with self.open(MANIFEST_NAME) as file:
            manifest = Manifest.from_json(file.read(MAX_BYTES + 1), where=where)
        for key, name in manifest.files.items():
            if name_problem(name):
                message = f"model.{key} points outside the archive: {quoted(name)}"
                raise ManifestError(message, where=f"{where}: model.{key}", hint=_REBUILD)
        return manifest

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading, seekable; its CRC is checked by the time it was read to its end.

        Raises KeyError if there is no such entry, DamagedArchiveError on wrong bytes.
        """

    def materialize(self) -> Path:
        """Return a folder with all members, extracted into the cache at the first call, and again if one is gone.

        At the first call it holds the archive's own bytes and nothing else, whatever was done to it before; from then
        on it keeps the handler's changes until `close`. A model folder is used as it is.

        Raises DamagedArchiveError, UnsafeArchiveError; nothing is left half-written.
        """

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Write members into a new, empty folder that no other process writes to.

        Args:
            folder: An existing folder; left half-filled when this raises.
            names: Of the members wanted; with None all, and folders that hold nothing.
            progress: Is called with the number of bytes as they are written.

        Raises DamagedArchiveError when a member's bytes are not those that were packed, ExtractionError.
        """

    def extract_all(self, folder: Path, progress: Progress | None) -> tuple[Finding, ...]:
        """Write all members into a new, empty folder, and return the server's findings."""
        self.extract(folder, progress=progress)
        return self.server_findings

    def close(self) -> None:
        """Release the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def require_files(archive: Archive) -> None:
    """Raise ManifestError if the manifest names a file that is not in the archive.

    The server loads such an archive if its handler never opens the file, so running one does not check this.
    """
    for key, name in archive.manifest.files.items():
        if name not in archive.entries:
            message = f"model.{key} points at {quoted(name)}, which is not in the archive"
            raise ManifestError(message, where=f"{archive.source}!{MANIFEST_NAME}: model.{key}", hint=_REBUILD)


def common_root(names: Iterable[str]) -> str:
    """Return the one folder, with its slash, that every name begins with, if the manifest is in it; otherwise ""."""
    all_names = list(names)
    root, slash, _ = min(all_names, default="").partition("/")
    found = root + slash
    if MANIFEST_NAME in all_names or not slash or found + MANIFEST_NAME not in all_names:
        return ""
    return found if all(name.startswith(found) for name in all_names) else ""


def total_size(archive: Archive) -> int:
    """Return how many bytes all members have, uncompressed."""
    return sum(entry.size for entry in archive.entries.values())


class Limits(Struct, frozen=True, kw_only=True):
    """The limits in force; every one can be raised by its user.

    Only what deflate and gzip expand is held to `ratio`: stored bytes cannot be a bomb.
    """

    members: int = 65_536  # files and folders together
    total: int = 256 * _GIB  # bytes, uncompressed, of all members
    ratio: int = 100  # uncompressed bytes per compressed one, of each member and of all together…
    allowance: int = 64 * _MIB  # …beyond this many uncompressed bytes

    @property
    def directory(self) -> int:
        """How many bytes a zip's central directory may have: a kilobyte for each member."""
        return self.members * 1024

    def expands_too_much(self, size: int, compressed: int) -> bool:
        """Return whether a compressed size may not expand to this size."""
        return size > self.allowance and size > self.ratio * compressed
