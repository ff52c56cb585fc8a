"""Members written into a new folder, all or none."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path

from msgspec import Struct

from marpack.archive.names import quoted
from marpack.archive.protocol import Archive, Bar, Progress, no_progress, require_files
from marpack.errors import ExtractionError, UsageError, describe_os_error, is_disk_full, located
from marpack.findings import Finding

BLOCK = 1 << 16  # bytes; larger writes need larger runs of free memory for the page cache, and wait for them


def extract_blocks(
    blocks: Iterable[memoryview | bytes], folder: Path, name: str, progress: Progress | None = None
) -> None:
    """Write one member from its bytes in order; raises what `blocks` raises, and ExtractionError."""
    with new_file(folder, name) as file:
        write_blocks(file, blocks, progress)


def make_folders(folder: Path, names: Iterable[str]) -> None:
    """Make folders that have entries of their own in the archive; raises ExtractionError."""
    for name in names:
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _extraction_error(f"the member {quoted(name)}", error) from None


@contextmanager
def new_file(folder: Path, name: str) -> Iterator[FileIO]:
    """Create a member's file, and its folders, in a folder that only we write to.

    The name has passed `check_member_names` together with all others.
    Raises ExtractionError, also for errors of writing into it.
    """
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb", buffering=0) as file:  # follows no link
            yield file
    except OSError as error:
        raise _extraction_error(f"the member {quoted(name)}", error) from None


def write_blocks(file: FileIO, blocks: Iterable[memoryview | bytes], progress: Progress | None) -> None:
    """Write blocks to an unbuffered file, and report their sizes; raises what `blocks` raises, and OSError."""
    for block in blocks:
        left = memoryview(block)
        while left:
            left = left[file.write(left) :]
        if progress is not None:
            progress(len(block))


def _extraction_error(what: str, error: OSError) -> ExtractionError:
    return ExtractionError(
        f"{what} cannot be extracted: {describe_os_error(error)}",
        hint="free some space, or extract to another disk" if is_disk_full(error) else None,
    )


class Unpacked(Struct, frozen=True, kw_only=True):
    """The files that `unpack` wrote."""

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
    bar: Bar = no_progress,
) -> Unpacked:
    """Write an archive's members into a new folder, their CRCs checked.

    Args:
        archive: The archive to unpack.
        folder: The folder to create; an existing one stays untouched, unless it is empty.
        only: Patterns (`*.py`, `data/*`) or folders' names: members that match none of them are left out.
        replace: Replace the folder if it holds an unpacked archive.
        bar: Shows the progress.

    Raises UsageError when a pattern matches nothing, OutputExistsError, ExtractionError, and ArchiveError for problems
    of the archive; no folder is left then.
    """
    from marpack.archive.staging import staged_folder  # noqa: PLC0415 - inspecting writes nothing

    require_files(archive)  # report its problems before anything is written
    patterns = tuple(only)
    names = tuple(archive.entries)
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            hint = f"list the members: marpack inspect {archive.source}"
            what = f"no member matches {pattern!r}"
            raise UsageError(what, where=archive.source, hint=hint, code="no-matching-member")
    if patterns:
        names = tuple(name for name in names if any(_matches(name, pattern) for pattern in patterns))
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
        raise _extraction_error(f"the folder {folder.name}", error) from None
    return Unpacked(
        source=archive.source,
        folder=str(folder),
        files=names,
        bytes=size,
        findings=archive.server_findings,
    )


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")
