"""What every form of an archive offers, its limits, and how far a pass is."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from msgspec import Struct

from marpack.archive.manifest import Manifest
from marpack.findings import Finding

Progress = Callable[[int], object]  # takes the number of bytes just read or written
# Takes what goes on ("packing") and how many bytes are to come; shows those that it is told of, or gives None.
Bar = Callable[[str, int], AbstractContextManager[Progress | None]]
MANIFEST_NAME = "MAR-INF/MANIFEST.json"
INDEX_NAME = "MAR-INF/marpack.json"
REGISTRY = "oci://"  # what the address of an archive in a registry begins with
_MIB = 1 << 20
_GIB = 1 << 30


def no_progress(_what: str, _total: int) -> AbstractContextManager[None]:
    """Show nothing: the bar of those who watch no terminal."""
    return nullcontext()


def is_in_registry(source: str) -> bool:
    """Say whether a SOURCE is the address of an archive in a registry."""
    return source[: len(REGISTRY)].lower() == REGISTRY


class ArchiveForm(StrEnum):
    """How an archive lies on disk."""

    MAR = "mar"
    TGZ = "tgz"
    FOLDER = "folder"


class Method(StrEnum):
    """How a member's bytes are kept."""

    STORED = "stored"
    DEFLATED = "deflated"


class Entry(Struct, frozen=True, kw_only=True):
    """One file of an archive, as its directory describes it; folders are no entries."""

    name: str  # inside the archive, with "/", root folder of a .tar.gz already dropped
    size: int  # bytes, uncompressed
    compressed_size: int  # bytes in the archive
    method: Method
    crc: int | None = None  # CRC-32 of the uncompressed bytes, where the form records it
    data_offset: int | None = None  # bytes from the archive's start to the member's data, where it can be read by range


class Archive(Protocol):
    """One protocol, three bodies (zip, tar, folder); nothing above this layer knows which."""

    @property
    def source(self) -> str:
        """The path or address this archive was opened from, as the user wrote it."""

    @property
    def form(self) -> ArchiveForm:
        """How the archive lies on disk."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every file by its name, in the archive's own order; names are safe and unique."""

    @property
    def manifest(self) -> Manifest:
        """The manifest; raises ManifestError if it is missing or malformed."""

    @property
    def server_findings(self) -> tuple[Finding, ...]:
        """What the server refuses in this archive's form, although it opens here: errors under target `torchserve`."""

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading, seekable; its CRC is checked by the time it was read to its end.

        Raises KeyError for a name that is no entry, DamagedArchiveError on wrong bytes.
        """

    def materialize(self) -> Path:
        """Return a folder that holds every member, extracted into the cache at the first call, and if one is gone.

        At the first call it holds the archive's own bytes and nothing else, whatever was done to it before; from then
        on it stays as whoever runs there leaves it, until `close`. A model folder is used as it lies.

        Raises DamagedArchiveError, UnsafeArchiveError; nothing is left half-written.
        """

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Write members into a new, empty folder that nobody else writes to.

        Args:
            folder: Is there already; left half-filled when this raises.
            names: Of the members wanted; with None all, and folders that hold nothing.
            progress: Is told of bytes as they are written.

        Raises DamagedArchiveError when a member's bytes are not those that were packed, ExtractionError.
        """

    def close(self) -> None:
        """Let go of the file."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


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
        """Say whether so many bytes may not come out of so few."""
        return size > self.allowance and size > self.ratio * compressed
