"""Files and folders that appear whole or not at all, and members written into a new folder."""

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import BinaryIO

from marpack.archive.protocol import MANIFEST_NAME, Progress, quoted
from marpack.errors import ExtractionError, OutputExistsError, describe_os_error, is_disk_full

if sys.platform == "win32":  # its locks are of another kind, and nothing here needs them
    LOCK_SH, LOCK_EX, LOCK_NB = 1, 2, 4

    def flock(_descriptor: int, _operation: int) -> None:
        """Raise the OSError of a file system without locks."""
        raise OSError(errno.ENOTSUP, "no locks on this system")

else:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock

__all__ = [
    "LOCK_EX",
    "LOCK_NB",
    "LOCK_SH",
    "TEMPORARY",
    "flock",
    "replace_file",
    "staged_file",
    "staged_folder",
    "temporary_folder",
]

TEMPORARY = ".marpack-tmp"  # the end of temporary names
_TEMPORARY_FOLDER = "marpack-"  # their beginning in the folder of the system's temporary files
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
    """Give an empty folder among the system's temporary files; it is deleted when the block ends.

    A killed process leaves it there, and the next process of this user that makes one deletes it: the lock of a folder
    in use is held. Without locks on the file system, it stays. Raises OSError if nothing can be written there.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY_FOLDER}*{TEMPORARY}"):
        with suppress(OSError), _locked_folder(folder, LOCK_EX | LOCK_NB):  # raised if it is in use
            shutil.rmtree(folder, ignore_errors=True)
    with ExitStack() as stack:
        while True:
            made = tempfile.TemporaryDirectory(prefix=_TEMPORARY_FOLDER, suffix=TEMPORARY, ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made)).resolve()
            with suppress(OSError):  # no locks on this file system
                stack.enter_context(_locked_folder(folder, LOCK_SH))
            if folder.exists():  # otherwise, another process deleted it before it was locked
                break
        yield folder


@contextmanager
def _locked_folder(folder: Path, operation: int) -> Iterator[None]:
    """Lock a folder of this user; raises OSError for other folders, links, and file systems without locks."""
    if _WINDOWS:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(folder))
    descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(folder))
        flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


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
    if _holds_other_files(target, marker):
        raise OutputExistsError(
            f"the output folder holds other files and no {marker}, so it is not replaced",
            where=str(target),
            hint="Choose another output, or remove the folder.",
            code="output-holds-other-files",
        )
    if not replace:
        raise OutputExistsError("the output folder already exists", where=str(target))


def _holds_other_files(folder: Path, marker: str) -> bool:
    """Return whether a folder has files without the file `marker`; another build may replace it at the same time."""
    with suppress(FileNotFoundError):  # moved away for the folder of the other build
        for _ in range(100):
            before = folder.stat().st_ino
            found = any(folder.iterdir()) and not (folder / marker).is_file()
            if not found or folder.stat().st_ino == before:
                return found
        return True
    return False


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
    with suppress(OSError):  # raised if there is a folder with something in it
        temporary.rename(target)
        return
    for folder, _, names in os.walk(temporary):
        for name in names:
            _sync(Path(folder, name))
        _sync_folder(Path(folder))
    moved: list[Path] = []
    try:
        for tries_left in reversed(range(100)):  # another build of the same target may put its folder there meanwhile
            moved.append(_temporary_path(target))
            with suppress(FileNotFoundError):
                target.rename(moved[-1])
            try:
                temporary.rename(target)
                break
            except OSError as error:
                if not tries_left or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    except BaseException:
        with suppress(OSError):
            moved[-1].rename(target)
        raise
    _sync_folder(target.parent)
    for old in moved:
        shutil.rmtree(old, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    with suppress(OSError):  # some file systems cannot; the rename is atomic anyway
        _sync(path)


def _sync(path: Path) -> None:
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
    return ExtractionError(
        f"{what} cannot be extracted: {describe_os_error(error)}",
        hint="Free some space, or extract to another disk." if is_disk_full(error) else None,
    )
