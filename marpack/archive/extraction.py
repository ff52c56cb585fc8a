"""Members written into a new folder, all or none."""

import errno
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path

from msgspec import Struct

from marpack.archive.bytesource import ByteSource, LocalFile
from marpack.archive.member import member_blocks
from marpack.archive.names import quoted
from marpack.archive.protocol import Archive, Bar, Progress, no_progress
from marpack.archive.server_rules import require_files
from marpack.archive.zip_directory import ZipMember
from marpack.errors import ExtractionError, UsageError, describe_os_error, is_disk_full, located
from marpack.findings import Finding

_FICLONERANGE = 0x4020940D  # linux/fs.h: share a range of blocks between two files
_CLONE_RANGE = struct.Struct("=qQQQ")
_PAGE = 4096
_LARGE = 1 << 20  # bytes


def extract_member(
    data: ByteSource, member: ZipMember, folder: Path, name: str, progress: Progress | None = None
) -> None:
    """Write one member of a zip under a name.

    Raises DamagedArchiveError when its bytes are not those that were packed, ExtractionError.
    """
    with _new_file(folder, name) as file:
        if isinstance(data, LocalFile) and _clone(data, member, file.fileno()):
            for block in member_blocks(data, member):  # reads all of it, which checks the CRC
                if progress is not None:
                    progress(len(block))
        else:
            _reserve(file.fileno(), member.size)
            _write(file, member_blocks(data, member), progress)


def extract_blocks(
    blocks: Iterable[memoryview | bytes], folder: Path, name: str, progress: Progress | None = None
) -> None:
    """Write one member whose bytes come in order; raises what `blocks` raises, and ExtractionError."""
    with _new_file(folder, name) as file:
        _write(file, blocks, progress)


def make_folders(folder: Path, names: Iterable[str]) -> None:
    """Make folders that stand in the archive by themselves; raises ExtractionError."""
    for name in names:
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(name, error) from None


@contextmanager
def _new_file(folder: Path, name: str) -> Iterator[FileIO]:
    """Create a member's file, and its folders, in a folder that only we write to.

    The name has passed `check_member_names` together with all others.
    Raises ExtractionError, for what is written into it, too.
    """
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb", buffering=0) as file:  # follows no link
            yield file
    except OSError as error:
        raise _cannot_write(name, error) from None


def _write(file: FileIO, blocks: Iterable[memoryview | bytes], progress: Progress | None) -> None:
    for block in blocks:
        left = memoryview(block)
        while left:
            left = left[file.write(left) :]
        if progress is not None:
            progress(len(block))


def _reserve(fd: int, size: int) -> None:
    """Take a large member's room on the disk at once: a full disk is known before a byte, and writing is faster."""
    if size < _LARGE or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):  # what file systems say that cannot
            raise


def _clone(data: LocalFile, member: ZipMember, fd: int) -> bool:
    """Share the member's blocks with the archive, if it is stored on a block's boundary and the file system can."""
    if not member.stored or member.offset % _PAGE or member.size < _PAGE:
        return False
    whole = -(-member.size // _PAGE) * _PAGE
    length = 0 if member.offset + whole > data.size else whole  # 0: up to the archive's end
    try:
        from fcntl import ioctl  # noqa: PLC0415 - Windows has none

        ioctl(fd, _FICLONERANGE, _CLONE_RANGE.pack(data.fd, member.offset, length, 0))
    except (OSError, ImportError):  # another file system, or one that cannot: the bytes are copied instead
        return False
    os.ftruncate(fd, member.size)
    return True


def _cannot_write(name: str, error: OSError) -> ExtractionError:
    return cannot_extract(f"the member {quoted(name)}", error)


def cannot_extract(what: str, error: OSError) -> ExtractionError:
    """Say why something could not be written."""
    return ExtractionError(
        f"{what} cannot be extracted: {describe_os_error(error)}",
        hint="free some space, or extract to another disk" if is_disk_full(error) else None,
    )


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
    bar: Bar = no_progress,
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
    from marpack.archive.staging import staged_folder  # noqa: PLC0415 - what only looks into an archive writes nothing

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
        findings=archive.server_findings,
    )


def _chosen(archive: Archive, patterns: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(archive.entries)
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            raise UsageError(
                f"no member matches {pattern!r}",
                where=archive.source,
                hint=f"see what there is: marpack inspect {archive.source}",
                code="no-matching-member",
            )
    if not patterns:
        return names
    return tuple(name for name in names if any(_matches(name, pattern) for pattern in patterns))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")
