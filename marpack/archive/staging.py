"""Files and folders that appear whole or not at all, and members written into a new folder."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import BinaryIO

from marpack.archive.protocol import MANIFEST_NAME, Progress, quoted
from marpack.errors import ExtractionError, OutputExistsError, describe_os_error, is_disk_full

TEMPORARY = ".marpack-tmp"  # the end of temporary names
_STEM = 128  # bytes of the target's name that its temporary names keep: they must fit into a name too
_LEFT = 3600  # seconds without a write after which a temporary file is one that a killed process left
_WINDOWS = sys.platform == "win32"


@contextmanager
def staged_file(target: Path, *, replace: bool, durable: bool = False, sweep: bool = True) -> Iterator[BinaryIO]:
    """Give an empty file that becomes `target` when the block ends, and is deleted when the block fails.

    It has a temporary name beside the target. A killed process leaves it there, and a build of the same target an hour
    later removes it; with `sweep=False` the caller does, if it writes many files into one folder. An existing file is
    replaced only when the new one is on the disk; a `durable` one is written to the disk before it gets its name.

    Raises OutputExistsError if there is something that may not be replaced, OSError if nothing can be written there.
    """
    target = Path(os.path.realpath(target))  # the output may be a link: keep it, and replace its target
    _refuse_file(target, replace=replace)
    with _parents(target.parent):
        if sweep:
            _sweep(target)
        temporary = _temporary_path(target)
        file = os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666), "wb")
        try:
            yield file
            file.flush()
            _refuse_file(target, replace=replace)  # it may have appeared meanwhile
            replaced = target.exists()
            if replaced or durable:
                os.fsync(file.fileno())
            if replaced:
                temporary.chmod(S_IMODE(target.stat().st_mode))
            file.close()
            temporary.replace(target)
            if replaced or durable:
                _sync_folder(target.parent)
        finally:
            with suppress(OSError):  # the last flush of the buffer fails again on a full disk
                file.close()
            temporary.unlink(missing_ok=True)  # only when closed: Windows removes no open file


@contextmanager
def staged_folder(target: Path, *, replace: bool, marker: str = MANIFEST_NAME) -> Iterator[Path]:
    """Give an empty folder that becomes `target` when the block ends, and is deleted when the block fails.

    Only a folder that holds the file `marker` (or nothing) is ever replaced, by default a model folder, so that a wrong
    path destroys no files.

    Raises OutputExistsError if there is something that may not be replaced, OSError if nothing can be written there.
    """
    target = Path(os.path.realpath(target))
    refuse_folder(target, marker, replace=replace)
    with _parents(target.parent):
        temporary = _temporary_path(target)
        temporary.mkdir()
        try:
            yield temporary
            refuse_folder(target, marker, replace=replace)
            _move_folder(temporary, target)
            _sweep(target)  # only now: after a kill between two renames, the old folder has a temporary name
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # a later build removes the rest


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give an empty folder among the system's temporary files; it is deleted when the block ends."""
    with tempfile.TemporaryDirectory(prefix="marpack-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def replace_file(file: Path, data: bytes) -> None:
    """Write a file as `staged_file` does, over any existing file: it keeps its mode, and a link to it stays one."""
    with staged_file(file, replace=True) as new:
        new.write(data)


def _mode(target: Path) -> int:
    """Return the mode of a file or folder, 0 if it is missing. A second look may find that another build moved it."""
    try:
        return target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _refuse_file(target: Path, *, replace: bool) -> None:
    if not (mode := _mode(target)):
        return
    if S_ISDIR(mode):
        raise OutputExistsError("the output is a folder", where=str(target), hint="Choose another output.")
    if not S_ISREG(mode):
        raise OutputExistsError("the output is not a regular file", where=str(target), hint="Choose another output.")
    if not replace:
        raise OutputExistsError("the output already exists", where=str(target))


def refuse_folder(target: Path, marker: str, *, replace: bool) -> None:
    """Raise OutputExistsError for a folder that `staged_folder` would not replace."""
    if not (mode := _mode(target)):
        return
    if not S_ISDIR(mode):
        what = "the output is a file, not a folder"
        raise OutputExistsError(
            what, where=str(target), hint="Move the file away, or choose another output.", code="output-not-a-folder"
        )
    if not (target / marker).is_file() and any(target.iterdir()):
        raise OutputExistsError(
            f"the output folder holds other files and no {marker}, so it is not replaced",
            where=str(target),
            hint="Choose another output, or remove the folder.",
            code="output-holds-other-files",
        )
    if not replace:
        raise OutputExistsError("the output folder already exists", where=str(target))


@contextmanager
def _parents(folder: Path) -> Iterator[None]:
    """Make the folder and those above it; when the block fails, remove those that were made."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for each in made:
            with suppress(OSError):  # it is not empty: it holds the output
                each.rmdir()


def _temporary_path(target: Path) -> Path:
    return target.parent / f"{_prefix(target)}{os.urandom(4).hex()}{TEMPORARY}"


def _prefix(target: Path) -> str:
    return f".{os.fsdecode(os.fsencode(target.name)[:_STEM])}."


def _sweep(target: Path) -> None:
    with suppress(OSError):  # the folder cannot be listed
        for path in target.parent.iterdir():
            if path.name.startswith(_prefix(target)) and path.name.endswith(TEMPORARY):
                with suppress(OSError):  # another build removes it at the same time
                    written = max(each.lstat().st_mtime for each in (path, *path.rglob("*")))
                    if time.time() - written < _LEFT:
                        continue
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                    else:
                        path.unlink()


def _move_folder(temporary: Path, target: Path) -> None:
    """Give a complete folder its name; the folder that it replaces is never lost."""
    try:
        temporary.rename(target)
    except OSError:
        if not target.exists():
            raise
    else:
        return
    sync_tree(temporary)
    old = _temporary_path(target)
    target.rename(old)
    try:
        temporary.rename(target)
    except BaseException:
        with suppress(OSError):  # another build has put its folder there
            old.rename(target)
        raise
    _sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_tree(folder: Path) -> None:
    """Write all files and folders in a folder to the disk."""
    for inside, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(inside, name))
        _sync_folder(Path(inside))


def _sync_folder(path: Path) -> None:
    with suppress(OSError):  # some file systems cannot; the rename is atomic anyway
        sync_file(path)


def sync_file(path: Path) -> None:
    """Write a file's or a folder's content to the disk."""
    if not _WINDOWS:  # it syncs no file that is open for reading
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
            raise extraction_error(f"the member {quoted(name)}", error) from None


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
        raise extraction_error(f"the member {quoted(name)}", error) from None


def write_blocks(file: FileIO, blocks: Iterable[memoryview | bytes], progress: Progress | None) -> None:
    """Write blocks to an unbuffered file, and report their sizes; raises what `blocks` raises, and OSError."""
    for block in blocks:
        left = memoryview(block)
        while left:
            left = left[file.write(left) :]
        if progress is not None:
            progress(len(block))


def extraction_error(what: str, error: OSError) -> ExtractionError:
    """Return the error of a file or folder that cannot be written."""
    return ExtractionError(
        f"{what} cannot be extracted: {describe_os_error(error)}",
        hint="Free some space, or extract to another disk." if is_disk_full(error) else None,
    )
