"""The bytes of a planned member: opened, counted, and watched for changes while they are read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, FileIO
from pathlib import Path
from stat import S_ISREG

from marpack.archive.protocol import Progress
from marpack.errors import BuildError


class Opened:
    """A member's bytes, to be read once from the start."""

    def __init__(self, raw: FileIO | BytesIO, size: int, where: str, progress: Progress | None) -> None:
        self._raw = raw
        self.size = size  # bytes
        self._where = where
        self._progress = progress

    def readinto(self, block: memoryview, /) -> int:
        """Fill the block from its start and return how many bytes came; raises BuildError if none can."""
        try:
            count = self._raw.readinto(block)
        except OSError as error:
            raise _unreadable(error, self._where) from error
        if not count:
            raise _changed(self._where)
        if self._progress:
            self._progress(count)
        return count


def size_of(source: Path | bytes) -> int:
    """Return a source's size in bytes; raises BuildError if there is no such file."""
    return len(source) if isinstance(source, bytes) else _stat(source).st_size


@contextmanager
def opened(source: Path | bytes, progress: Progress | None = None) -> Iterator[Opened]:
    """Open a source for one reading.

    Raises BuildError for what is no readable file, and at the end for a file that was changed meanwhile.
    """
    if isinstance(source, bytes):
        yield Opened(BytesIO(source), len(source), "", progress)
        return
    _stat(source)  # before it is opened: opening a FIFO would wait for somebody to write into it
    try:
        file = FileIO(source)
    except OSError as error:
        raise _unreadable(error, str(source)) from error
    with file:
        before = os.fstat(file.fileno())
        yield Opened(file, before.st_size, str(source), progress)
        if _version(os.fstat(file.fileno())) != _version(before):
            raise _changed(str(source))


def _stat(path: Path) -> os.stat_result:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(error, str(path)) from error
    if not S_ISREG(status.st_mode):
        raise BuildError("it is no regular file", where=str(path), hint="pack files only")
    return status


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _unreadable(error: OSError, where: str) -> BuildError:
    return BuildError(
        f"the file cannot be read: {error.strerror}", where=where, hint="check the path and its permissions"
    )


def _changed(where: str) -> BuildError:
    return BuildError(
        "the file was changed while it was being packed", where=where, hint="build again once nothing writes to it"
    )
