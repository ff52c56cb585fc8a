"""Results as JSON on stdout, or as files that appear whole."""

import os
import sys
from pathlib import Path

from marpack.archive.staging import replace_file
from marpack.errors import UsageError
from marpack.json_text import to_json


def show(result: object) -> None:
    """Write one result as indented JSON and a newline to stdout, and nothing else."""
    sys.stdout.buffer.write(to_json(result, indent=True) + b"\n")
    sys.stdout.flush()


def show_line(result: object) -> None:
    """Write one result as a line of JSON to stdout, at once."""
    put_line(result)
    sys.stdout.flush()


def put_line(result: object) -> None:
    """Write one result as a line of JSON to stdout, to be flushed with others."""
    sys.stdout.buffer.write(to_json(result) + b"\n")


def close_stdout() -> None:
    """Let nothing more be written, so that Python's own last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def expect_writable(path: str | None, *, option: str) -> None:
    """Raise UsageError for a path that cannot be written; None is no path, and fine."""
    if path is None:
        return
    file = Path(path)
    why = None
    try:
        if not path:
            why = "it has no name"
        elif file.is_dir():
            why = "it is a folder"
        elif not file.parent.is_dir():
            why = f"there is no folder {file.parent}"
        elif not os.access(file if file.exists() else file.parent, os.W_OK):
            why = "it may not be written"
    except (OSError, ValueError) as error:
        why = str(error)
    if why is not None:
        raise UsageError(f"the result cannot be written: {why}", where=f"{option} {path}".strip(), code="output")


def write_whole(path: str, data: bytes, *, option: str) -> None:
    """Write a file by way of another beside it, so that no half of it is ever seen.

    Raises UsageError if it cannot be written.
    """
    file = Path(path)
    try:
        if file.exists() and not file.is_file():  # a pipe or a device
            file.write_bytes(data)
        else:
            replace_file(file, data)
    except OSError as error:
        what = f"the result cannot be written: {error.strerror}"
        raise UsageError(what, where=f"{option} {path}", code="output") from error
