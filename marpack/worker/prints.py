"""What the child prints: the author's streams, marked after each batch in as few writes as can be."""

import io
import os
import sys
from typing import TextIO


class Prints:
    """The way to the parent's log pipe, whatever the author does to stdout."""

    def __init__(self, marker: bytes) -> None:
        """Take what tells the parent that a batch's output ends here."""
        self._marker = marker
        self._text = marker.decode("ascii")
        self._descriptor = os.dup(1)  # the author may close theirs
        sys.stdout = _by_lines(sys.stdout)
        self._stdout: TextIO | None = sys.stdout
        self._place = _place(1)

    def end_batch(self) -> None:
        """Write out whatever waits, and the marker after it."""
        _flush(sys.stderr)
        if self._is_untouched():
            try:
                sys.stdout.write(self._text)
                sys.stdout.flush()
            except (OSError, ValueError):
                self._stdout = None
            else:
                return
        flush()
        os.write(self._descriptor, self._marker)

    def _is_untouched(self) -> bool:
        """Say whether stdout still is what it was, and leads to the parent."""
        return sys.stdout is self._stdout and _place(1) == self._place


def _by_lines(stdout: TextIO) -> TextIO:
    """Return a stdout that writes line by line, PYTHONUNBUFFERED or not: nothing printed before a crash is lost."""
    _flush(stdout)
    file = io.FileIO(1, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file), encoding=stdout.encoding, errors=stdout.errors, line_buffering=True
    )


def _place(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def flush() -> None:
    """Write out what the standard streams hold."""
    _flush(sys.stdout)
    _flush(sys.stderr)


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except (OSError, ValueError):
        return  # the author closed it
