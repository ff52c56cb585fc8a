"""The child's stdin and stdout: prints marked per batch, a closed stdin, and the lines of `--show-data`."""

import io
import os
import re
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, TextIO

from marpack.protocol.messages import DATA
from marpack.torchserve.context import Handle
from marpack.torchserve.response import WorkerDeath

_HIDDEN_NAME = re.compile(r"(?:^|[-_])(?:authorization|cookie|token)(?:$|[-_])", re.IGNORECASE)  # a whole word
_HIDDEN = "•••"
_MAX_LENGTH = 300  # characters of a line
_MAX_VALUE = 80  # characters of a value
_ITEMS = 8  # of a list or dict
_BYTES = 16
_DEPTH = 5
_OURS = {"url_path", "explain"}  # headers that the server's frontend adds


class StdoutWriter:
    """Writes to the parent's log pipe, also if the author closes or replaces stdout."""

    def __init__(self, marker: bytes) -> None:
        """Take the marker of the end of a batch's output."""
        self._marker = marker
        self._descriptor = os.dup(1)  # the author may close theirs
        self._waiting: list[str] = []
        self.put = self._waiting.append  # a line, to be written with the author's next print or at the batch's end
        sys.stdout = _Stdout(sys.stdout, before=self.write_waiting)
        os.register_at_fork(after_in_child=self._waiting.clear)  # or a child's print would write them once more

    def take_lines(self) -> tuple[str, ...]:
        """Return the waiting lines, which are then not written; nothing, if not all of them are one line each."""
        if not all(map(str.isprintable, self._waiting)):
            return ()
        lines = tuple(self._waiting)
        del self._waiting[: len(lines)]  # a thread of the handler's may have put one more
        return lines

    def end_batch(self) -> None:
        """Write the waiting lines, and the marker after them."""
        flush()
        self.write_waiting(self._marker)

    def write_waiting(self, end: bytes = b"") -> None:
        """Write the waiting lines, and `end` after them."""
        text = end
        if self._waiting:
            self._waiting.append("")  # ends the last line
            text = "\n".join(self._waiting).encode("utf-8", "backslashreplace") + end
            self._waiting.clear()
        while text:
            try:
                text = text[os.write(self._descriptor, text) :]
            except BlockingIOError:  # the author made stdout non-blocking, and with it our end
                select.select((), (self._descriptor,), ())


class _Stdout(io.TextIOWrapper):
    """A stdout that writes line by line, PYTHONUNBUFFERED or not: nothing printed before a crash is lost."""

    def __init__(self, stdout: TextIO, *, before: Callable[[], None]) -> None:
        stdout.flush()
        file = io.BufferedWriter(io.FileIO(1, "w", closefd=False))
        super().__init__(file, encoding=stdout.encoding, errors=stdout.errors, line_buffering=True)
        self._before = before

    def write(self, text: str, /) -> int:
        self._before()
        return super().write(text)


def flush() -> None:
    """Write out what the standard streams hold."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - twice per batch, and `suppress` costs as much as the flush
            stream.flush()
        except Exception:  # noqa: BLE001, S110 - the author closed it, or replaced it
            pass


class StdinError(WorkerDeath):
    """The author's code reads stdin, as `input()` and `breakpoint()` do."""

    kind = "stdin"
    hint = "Remove the call. To debug, pass --pdb or --in-process to marpack run."


class _ClosedStdin(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise StdinError("the handler reads stdin, where the server's worker waits until it times out and is killed")

    def fileno(self) -> int:
        return 0


def close_stdin() -> None:
    """Fail reads of stdin at once, as they would in the end; stdin stays open for children of the handler."""
    read, _ = os.pipe()  # the other end is this process's as long as it lives
    os.dup2(read, 0)
    os.close(read)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedStdin()), encoding="utf-8")


def show_data(handle: Handle, show: Callable[[str], None]) -> Handle:
    """Return an entry point that prints its data, line by line, before it is called."""

    def handle_shown(data: Any, context: Any) -> Any:  # Any: the author's
        for line in lines_of(data, context):
            show(DATA + line)
        return handle(data, context)

    return handle_shown


def print_line(line: str) -> None:
    """Print a line at once, as the handler may kill its process next."""
    with suppress(OSError, ValueError):  # the author closed it
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def lines_of(data: Any, context: Any) -> Iterator[str]:
    """Yield one line per row's field, and one for its headers."""
    rows = data if isinstance(data, list | tuple) else [data]
    for index, row in enumerate(rows):
        fields = row.items() if isinstance(row, dict) else (("row", row),)
        for name, value in fields:
            kind = "" if isinstance(value, dict | list) else f"{type(value).__name__} "
            yield _cut(f"{index} {name}: {kind}{_HIDDEN if _is_hidden(name) else describe(value)}")
        headers: Mapping[str, Any] = {}
        with suppress(TypeError, IndexError, AttributeError):  # there are none while loading
            headers = context.get_all_request_header(index)
        sent = {name: value for name, value in headers.items() if name not in _OURS}
        kept = {name: value for name, value in sent.items() if not isinstance(value, dict) or value.get("content-type")}
        if kept:
            yield _cut(f"{index} headers: {describe(kept)}")


def describe(value: Any, depth: int = 0) -> str:
    """Return a value in short: sizes instead of bytes, the first characters or items."""
    if isinstance(value, bytes | bytearray):
        start = bytes(value[:_MAX_LENGTH])
        try:
            shown = _short(start.decode("utf-8"))
        except UnicodeDecodeError:
            shown = f"{start[:_BYTES].hex(' ')}{' …' if len(start) > _BYTES else ''}"
        return f"of {len(value):,} bytes{', ' if value else ''}{shown if value else ''}"
    if isinstance(value, dict | list | tuple):
        first, last, what = ("{", "}", "keys") if isinstance(value, dict) else ("[", "]", "items")
        if depth == _DEPTH:
            return f"{first}…{last}"
        if isinstance(value, dict):
            pairs = islice(value.items(), _ITEMS)
            items = [f"{key}: {_HIDDEN if _is_hidden(key) else describe(item, depth + 1)}" for key, item in pairs]
        else:
            items = [describe(item, depth + 1) for item in value[:_ITEMS]]
        more = [f"… {len(value)} {what}"] if len(value) > _ITEMS else []
        return first + ", ".join(items + more) + last
    if isinstance(value, str):
        return _short(value)
    if (shape := getattr(value, "shape", None)) is not None:
        return f"{list(shape)} {getattr(value, 'dtype', '')}".rstrip()
    return repr(value) if isinstance(value, int | float | bool | None) else "…"


def _short(text: str) -> str:
    return repr(text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…")


def _is_hidden(name: object) -> bool:
    return isinstance(name, str) and _HIDDEN_NAME.search(name) is not None


def _cut(line: str) -> str:
    text = line.replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"
