"""What the child prints: the author's streams and its own lines, marked after each batch in as few writes as can be."""

import io
import os
import select
import sys
from collections.abc import Callable
from typing import TextIO


class Prints:
    """The way to the parent's log pipe, whatever the author does to stdout."""

    def __init__(self, marker: bytes) -> None:
        """Take what tells the parent that a batch's output ends here."""
        self._marker = marker
        self._descriptor = os.dup(1)  # the author may close theirs
        self._waiting: list[str] = []
        sys.stdout = _Stdout(sys.stdout, before=self.write_out)
        os.register_at_fork(after_in_child=self._waiting.clear)  # or a child's print would say it once more

    def put(self, line: str) -> None:
        """Leave a line to be written with what comes after it: the author's next print, or the end of the batch."""
        self._waiting.append(line)

    def end_batch(self) -> None:
        """Write out whatever waits, and the marker after it."""
        flush()
        self._write(self._taken() + self._marker)

    def write_out(self) -> None:
        """Write what waits."""
        if self._waiting:
            self._write(self._taken())

    def _taken(self) -> bytes:
        if not self._waiting:
            return b""
        self._waiting.append("")  # which ends the last line, too
        text = "\n".join(self._waiting)
        self._waiting.clear()
        return text.encode("utf-8", "backslashreplace")

    def _write(self, text: bytes) -> None:
        while text:
            try:
                text = text[os.write(self._descriptor, text) :]
            except BlockingIOError:  # the author made stdout non-blocking, and with it our end
                select.select((), (self._descriptor,), ())


class _Stdout(io.TextIOWrapper):
    """A stdout that writes line by line, PYTHONUNBUFFERED or not: nothing printed before a crash is lost."""

    def __init__(self, stdout: TextIO, *, before: Callable[[], None]) -> None:
        """Take the place of a stdout, and what is to be done before anything is printed to it."""
        _flush(stdout)
        file = io.BufferedWriter(io.FileIO(1, "w", closefd=False))
        super().__init__(file, encoding=stdout.encoding, errors=stdout.errors, line_buffering=True)
        self._before = before

    def write(self, text: str, /) -> int:
        self._before()
        return super().write(text)


def flush() -> None:
    """Write out what the standard streams hold."""
    _flush(sys.stdout)
    _flush(sys.stderr)


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except Exception:  # noqa: BLE001 - the author closed it, or put something of their own in its place
        return
