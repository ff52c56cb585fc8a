"""An output, folder or file, that appears whole or not at all."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from stat import S_IMODE
from typing import BinaryIO

from marpack.archive.locks import LOCK_EX, LOCK_NB, flock
from marpack.archive.protocol import MANIFEST_NAME
from marpack.errors import OutputExistsError

TEMPORARY = ".marpack-tmp"  # what temporary names end in
_STEM = 128  # bytes of the target's name that its temporary names keep: they must fit into a name too
_OWN_FDS = Path("/proc/self/fd")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_WINDOWS = sys.platform == "win32"


@contextmanager
def staged_file(target: Path, *, replace: bool, durable: bool = False, sweep: bool = True) -> Iterator[BinaryIO]:
    """Give an empty file that becomes `target` when the block ends, and is gone when the block fails.

    Where the system can (Linux, most file systems) the file has no name before it is complete, so that even a kill
    leaves nothing behind. Elsewhere it has a temporary name beside the target, and the next build of the same target
    removes what a killed one left; without `sweep` that is left to the caller, who writes many files into a folder that
    need not be listed for each of them. An existing file is replaced only once the new one has reached the disk; a
    `durable` one gets its name only then, whatever was there.

    Raises OutputExistsError if there is something that may not be replaced, OSError if nothing can be written there.
    """
    target = Path(os.path.realpath(target))  # the output may be a link: keep it, and replace what it points at
    _refuse_file(target, replace=replace)
    with _parents(target.parent):
        if sweep:
            _sweep(target)
        temporary = _beside(target)
        file, named = _open_temporary(temporary)
        try:
            yield file
            file.flush()
            if not named:
                _give_name(file, temporary)
            _refuse_file(target, replace=replace)  # it may have appeared meanwhile
            _move_file(file, temporary, target, durable=durable)
        finally:
            with suppress(OSError):  # a full disk is told of again by the buffer's last flush
                file.close()
            temporary.unlink(missing_ok=True)  # closed: Windows removes nothing that is open


@contextmanager
def staged_folder(target: Path, *, replace: bool, marker: str = MANIFEST_NAME) -> Iterator[Path]:
    """Give an empty folder that becomes `target` when the block ends, and is gone when the block fails.

    Only a folder that holds the file `marker` (or nothing) is ever replaced, a model folder unless another is named, so
    that a wrong path costs nobody their files.

    Raises OutputExistsError if there is something that may not be replaced, OSError if nothing can be written there.
    """
    target = Path(os.path.realpath(target))
    _refuse_folder(target, marker, replace=replace)
    with _parents(target.parent):
        _sweep(target)
        temporary = _beside(target)
        with _held(temporary):
            try:
                yield temporary
                _refuse_folder(target, marker, replace=replace)
                _move_folder(temporary, target)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)  # what cannot be removed now, the next build tries again


def _refuse_file(target: Path, *, replace: bool) -> None:
    if target.is_dir():
        raise OutputExistsError("a folder is in the output's place", where=str(target), hint="choose another output")
    if not target.exists():
        return
    if not target.is_file():
        raise OutputExistsError("the output is no regular file", where=str(target), hint="choose another output")
    if not replace:
        raise OutputExistsError("the output exists already", where=str(target), hint="pass --force to replace it")


def _refuse_folder(target: Path, marker: str, *, replace: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        what = "a file is in the output folder's place"
        raise OutputExistsError(what, where=str(target), hint="move it away", code="output-not-a-folder")
    if not replace:
        raise OutputExistsError(
            "the output folder exists already", where=str(target), hint="pass --force to replace it"
        )
    if any(target.iterdir()) and not (target / marker).is_file():
        raise OutputExistsError(
            f"the output folder holds other files and no {marker}, so it is not replaced",
            where=str(target),
            hint="choose another output, or remove that folder yourself",
            code="output-holds-other-files",
        )


@contextmanager
def _parents(folder: Path) -> Iterator[None]:
    """Make the folder and those above it; when the block fails, remove those that were made."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for each in made:
            with suppress(OSError):  # there is something in it, as the output if nothing failed
                each.rmdir()


def _prefix(target: Path) -> str:
    return f".{os.fsdecode(os.fsencode(target.name)[:_STEM])}."


def _beside(target: Path) -> Path:
    """Return a new name in the target's folder, which `_sweep` knows again."""
    return target.parent / f"{_prefix(target)}{os.urandom(4).hex()}{TEMPORARY}"


def _open_temporary(path: Path) -> tuple[BinaryIO, bool]:
    """Open a locked file for writing; the second value tells whether it has the name `path` yet."""
    if hasattr(os, "O_TMPFILE") and _OWN_FDS.is_dir():
        with suppress(OSError):  # this file system cannot: NFS, some FUSE
            fd = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o666)
            return os.fdopen(_lock(fd), "wb"), False
    fd = _claim(lambda: os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    return os.fdopen(fd, "wb"), True


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Make a folder, and hold its lock."""
    if _WINDOWS:  # which opens no folders
        folder.mkdir()
        yield
        return
    lock = _claim(partial(_make_folder, folder))
    try:
        yield
    finally:
        os.close(lock)


def _make_folder(path: Path) -> int:
    while True:
        path.mkdir()
        with suppress(FileNotFoundError):  # swept away by another build, before it could be locked
            return os.open(path, os.O_RDONLY)


def _claim(create: Callable[[], int]) -> int:
    """Create something named and lock it; again, if another build swept it away before it was locked."""
    while not os.fstat(fd := _lock(create())).st_nlink:
        os.close(fd)
    return fd


def _lock(fd: int) -> int:
    """Hold a lock for as long as this process lives, by which `_sweep` tells work in progress from leftovers."""
    with suppress(OSError):  # no locks on this file system: then nothing is swept there either
        flock(fd, LOCK_EX)
    return fd


def _sweep(target: Path) -> None:
    """Remove what killed builds of the same target have left."""
    with suppress(OSError):  # a folder one may write to, but not list
        for path in target.parent.iterdir():
            if path.name.startswith(_prefix(target)) and path.name.endswith(TEMPORARY):
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    with suppress(OSError), _opened(path) as fd:
        flock(fd, LOCK_EX | LOCK_NB)  # fails while it is being written
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _give_name(file: BinaryIO, path: Path) -> None:
    # A folder's descriptor, although the paths are absolute: only with one does os.link follow the link in /proc.
    with _opened(path.parent) as folder:
        os.link(_OWN_FDS / str(file.fileno()), path, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)


def _move_file(file: BinaryIO, temporary: Path, target: Path, *, durable: bool) -> None:
    """Rename a complete file; one that is replaced hands on its mode, and stays until the new bytes are on the disk."""
    replaced = target.exists()
    if replaced or durable:
        os.fsync(file.fileno())
    if replaced:
        temporary.chmod(S_IMODE(target.stat().st_mode))
    if _WINDOWS:  # moves nothing that is open; elsewhere the lock is held until it has its name
        file.close()
    temporary.replace(target)
    if replaced or durable:
        _sync_folder(target.parent)


def _move_folder(temporary: Path, target: Path) -> None:
    """Rename a complete folder; the one that was there takes its place."""
    with suppress(OSError):  # there is a folder with something in it
        temporary.rename(target)
        return
    for folder, _, names in os.walk(temporary):
        for name in names:
            _sync(Path(folder, name))
        _sync_folder(Path(folder))
    if not _exchange(temporary, target):
        _take_turns(temporary, target)
    _sync_folder(target.parent)


def _take_turns(temporary: Path, target: Path) -> None:
    """Swap two folders in three steps."""
    old = _beside(target)
    target.rename(old)
    try:
        temporary.rename(target)
    except OSError:
        old.rename(target)
        raise
    old.rename(temporary)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system has no such step."""
    if sys.platform != "linux":
        return False
    import ctypes  # noqa: PLC0415 - slow to import, and hardly ever needed

    with suppress(AttributeError):  # an old C library
        renameat2 = ctypes.CDLL(None).renameat2
        return bool(renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _RENAME_EXCHANGE) == 0)
    return False


def _sync_folder(path: Path) -> None:
    with suppress(OSError):  # some file systems cannot; the rename is atomic all the same
        _sync(path)


def _sync(path: Path) -> None:
    if _WINDOWS:  # which syncs nothing that is open for reading
        return
    with _opened(path) as fd:
        os.fsync(fd)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        yield fd
    finally:
        os.close(fd)


def replace_file(file: Path, data: bytes) -> None:
    """Write a file as `staged_file` does, whatever file is there: it keeps its mode, and a link to it stays one."""
    with staged_file(file, replace=True) as new:
        new.write(data)
