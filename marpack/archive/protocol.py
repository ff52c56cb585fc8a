"""The protocol of archives, their limits, and what the server requires of their form (contract §1)."""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from msgspec import Struct

from marpack.archive.manifest import MAX_BYTES, Manifest
from marpack.errors import ManifestError, UnsafeArchiveError
from marpack.findings import Finding

Progress = Callable[[int], object]  # takes the number of bytes just read or written
# Takes a label ("packing") and the total of bytes; gives a function that reports bytes, or None.
Bar = Callable[[str, int], AbstractContextManager[Progress | None]]
MANIFEST_NAME = "MAR-INF/MANIFEST.json"
INDEX_NAME = "MAR-INF/marpack.json"
_MIB = 1 << 20
_GIB = 1 << 30
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]*")  # contract §1; match it whole
MAX_NAME = 1024  # bytes of UTF-8; PATH_MAX is 4096 and the cache's own path needs room
MAX_COMPONENT = 255  # bytes of UTF-8; what ext4, XFS, APFS and NTFS can hold
MAX_DEPTH = 64
_DRIVE = re.compile(r"[A-Za-z]:")
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, bidi and invisible marks, half surrogates
_DOTS = frozenset(". ")


def quoted(name: str) -> str:
    """Return a member's name as messages quote it: escaped, and not longer than a line."""
    text = repr(name if len(name) <= 80 else name[:77] + "…")
    return text if _printable(text) else ascii(name[:80])


def check_member_name(name: str) -> None:
    """Refuse a file's name that could land outside its folder, or that some file system would change.

    Raises UnsafeArchiveError naming the member (contract §11).
    """
    problem = name_problem(name)
    if problem:
        raise UnsafeArchiveError(f"the member {quoted(name)} {problem}", hint="Rename the file, and pack it again.")


def check_member_names(names: Iterable[str], folders: Iterable[str] = ()) -> None:
    """Refuse names of files and folders that are unsafe, or that would be one file on some file system.

    Only folders with entries of their own are given, without the final slash. Raises UnsafeArchiveError naming members.
    """
    met: dict[str, tuple[str, bool]] = {}  # by the key under which names collide: a name, and whether it is a folder

    def add(name: str, *, is_folder: bool) -> None:
        parent = name.rpartition("/")[0]
        if parent and met.get(folded(parent)) != (parent, True):
            add(parent, is_folder=True)
        key = folded(name)
        before, was_folder = met.get(key, ("", is_folder))
        problem = None
        if was_folder != is_folder:
            name, problem = before if is_folder else name, "is a file where another member needs a folder"
        elif before == name and not is_folder:
            problem = "is repeated"
        elif before not in ("", name):
            problem = f"differs from {quoted(before)} only in case or Unicode form"
        if problem:
            hint = "Rename or remove one of them, and pack the files again."
            raise UnsafeArchiveError(f"the member {quoted(name)} {problem}", hint=hint)
        met[key] = name, is_folder

    for folder in folders:
        check_member_name(folder)
        add(folder, is_folder=True)
    for name in names:
        check_member_name(name)
        add(name, is_folder=False)


def name_problem(name: str) -> str | None:
    """Return why a name is unsafe, as the end of a sentence, or None."""
    if not name:
        return "has no name"
    if not _printable(name):
        return "has a control or invisible character in its name"
    if "\\" in name:
        return "has a backslash in its name, which is a folder separator on Windows"
    if name.startswith("/"):
        return "has an absolute path"
    if _DRIVE.match(name):
        return "begins with a drive letter"
    size = len(name) if name.isascii() else len(name.encode())
    if size > MAX_NAME:
        return f"has a name of {size} bytes; the maximum is {MAX_NAME}"
    if name.count("/") >= MAX_DEPTH:
        return f"is more than {MAX_DEPTH} folders deep"
    return next(filter(None, map(_step_problem, name.split("/"))), None)


def _step_problem(step: str) -> str | None:
    if not step:
        return "has an empty step in its path"
    plain = step if step.isascii() else unicodedata.normalize("NFKC", step)
    # Windows drops dots and spaces at the end of a name, and some tools decode %2e: every spelling of "..".
    if _DOTS.issuperset(plain.lower().replace("%2e", ".")):
        return "contains '.' or '..'"
    if "/" in plain or "\\" in plain:
        return "has a look-alike of a slash in its name"
    if len(step) > MAX_COMPONENT // 4 and len(step.encode()) > MAX_COMPONENT:
        return f"has a step of more than {MAX_COMPONENT} bytes in its path"
    return None


def _printable(name: str) -> bool:
    return name.isprintable() or not any(unicodedata.category(char) in _UNPRINTABLE for char in name)


def folded(name: str) -> str:
    """Return what a file system that folds case and Unicode forms (and Python's import) makes of a name."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def no_progress(_what: str, _total: int) -> AbstractContextManager[None]:
    """Show nothing: the bar without a terminal."""
    return nullcontext()


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
    data_offset: int = 0  # bytes from the start of a zip to the data


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
            scripts = [name for name in self.entries if re.fullmatch(r"(code/[^/]*|(.*/)?inference)\.py", name)]
            script = quoted(scripts[0]) if len(scripts) == 1 else "the script with predict_fn or transform_fn"
            is_other = scripts and "code/inference.py" not in scripts
            hint = f"To run SageMaker's layout, move {script} to code/inference.py." if is_other else None
            if self.form is ArchiveForm.TGZ and not any(name.endswith(".py") for name in self.entries):
                hint = "To run SageMaker's layout, add the script that loads the model: code/inference.py."
                hint = "Extract the archive, and run marpack init there." if "config.json" in self.entries else hint
            raise ManifestError(f"the archive has no {MANIFEST_NAME}", where=self.source, hint=hint)
        if entry.size > MAX_BYTES:
            raise ManifestError(f"the manifest has {entry.size} bytes; the maximum is {MAX_BYTES}", where=where)
        with self.open(MANIFEST_NAME) as file:
            manifest = Manifest.from_json(file.read(MAX_BYTES + 1), where=where)
        for key, name in manifest.files.items():
            if name_problem(name):
                message = f"model.{key} points outside the archive: {quoted(name)}"
                raise ManifestError(message, where=f"{where}: model.{key}")
        return manifest

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading, seekable; its CRC is checked by the time it was read to its end.

        Raises KeyError for an unknown name, DamagedArchiveError on wrong bytes.
        """

    def materialize(self) -> Path:
        """Return a folder with all members, extracted into the cache at the first call, and again if one is gone.

        At the first call it holds the archive's own bytes and nothing else; later it keeps the handler's changes until
        `close`. A model folder is used unchanged.

        Raises DamagedArchiveError, UnsafeArchiveError; nothing is left half-written.
        """

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        """Write members into a new, empty folder that no other process writes to; it is left half-filled on an error.

        Without `names`, write all of them, and folders that hold nothing. `progress` is called with numbers of bytes.

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
            raise ManifestError(message, where=f"{archive.source}!{MANIFEST_NAME}: model.{key}")


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

    `ratio` applies to deflate and gzip only: stored bytes cannot be a bomb.
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
