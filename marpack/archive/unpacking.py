"""An archive's members as files of a new folder, which appears whole or not at all."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from marpack.archive.extraction import cannot_extract
from marpack.archive.pointers import require_files
from marpack.archive.progress import Bar, unseen
from marpack.archive.protocol import Archive
from marpack.archive.staging import staged_folder
from marpack.errors import UsageError, located
from marpack.findings import Finding


class Unpacked(Struct, frozen=True, kw_only=True):
    """What was written."""

    source: str
    folder: str
    files: tuple[str, ...]  # members' names, in the archive's order
    bytes: int  # of all of them
    findings: tuple[Finding, ...] = ()  # what the server refuses in the archive's form


def unpack(
    archive: Archive,
    folder: Path,
    *,
    only: Iterable[str] = (),
    replace: bool = False,
    bar: Bar = unseen,
) -> Unpacked:
    """Write an archive's members into a new folder, their CRCs checked.

    Args:
        archive: What to unpack.
        folder: Is made; what is there already stays untouched, unless it is empty.
        only: Patterns (`*.py`, `data/*`) or folders' names: members that match none of them are left out.
        replace: Replace the folder if it holds an archive unpacked before.
        bar: Shows how far it is.

    Raises UsageError when a pattern matches nothing, OutputExistsError, ExtractionError, and ArchiveError for what is
    wrong with the archive: then there is no folder.
    """
    require_files(archive, archive.manifest)  # what is wrong with it is said before anything is written
    patterns = tuple(only)
    names = _chosen(archive, patterns)
    size = sum(archive.entries[name].size for name in names)
    empty = folder.is_dir() and not any(folder.iterdir())
    try:
        with (
            located(archive.source),
            staged_folder(folder, replace=replace or empty) as staged,
            bar("extracting", size) as progress,
        ):
            archive.extract(staged, names if patterns else None, progress)
    except OSError as error:
        raise cannot_extract(f"the folder {folder.name}", error) from None
    return Unpacked(
        source=archive.source,
        folder=str(folder),
        files=names,
        bytes=size,
        findings=archive.oddities,
    )


def _chosen(archive: Archive, patterns: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(archive.entries)
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            raise UsageError(
                f"no member matches {pattern!r}",
                where=archive.source,
                hint=f"see what there is: marpack inspect {archive.source}",
            )
    if not patterns:
        return names
    return tuple(name for name in names if any(_matches(name, pattern) for pattern in patterns))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")
