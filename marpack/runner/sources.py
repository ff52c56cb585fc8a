"""The files that `--input` names: folders, globs and lists walked as they are needed, in order, in flat memory."""

import glob
import heapq
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from marpack.errors import UsageError

NameFilter = Callable[[str], bool]  # says of a file in a folder whether it is an input

_GLOB = set("*?[")
_AT_ONCE = 1 << 16  # names sorted in memory; what is more waits in temporary files
_END = b"\0"  # after a name in such a file: the one byte that no name holds


def paths_of(sources: Iterable[str], *, name_filter: NameFilter | None = None, strict: bool = True) -> Iterator[str]:
    """Yield the files that sources name: files, folders (recursively), globs, `@list`, `-` and addresses.

    Args:
        sources: As given to `--input`.
        name_filter: Which of a folder's files count; None: all.
        strict: Raise UsageError for what is not there; else it is yielded like a file, whose reading will fail.
    """
    for source in sources:
        if source == "-" or "://" in source:
            yield source
            continue
        if source.startswith("@"):
            yield from paths_of(_listed(source[1:]), name_filter=name_filter, strict=False)
            continue
        mode = _mode_of(source)
        if mode is not None and stat.S_ISDIR(mode):
            yield from _some(_below(source, name_filter), "the folder holds no such files", source, strict=strict)
        elif mode is not None:
            yield source
        elif set(source) & _GLOB:
            yield from _some(_matching(source), "the pattern matches no file", source, strict=strict)
        elif strict:
            hint = "name a file, a folder or a glob in quotes"
            raise UsageError("there is no such input", where=source, hint=hint, code="input-not-found")
        else:
            yield source


def _mode_of(path: str) -> int | None:
    """Return the mode of a path; None if it does not exist."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116 - a Path for each of a million is slow
    except (OSError, ValueError):  # ValueError: no path holds a zero byte
        return None


def check_sources(sources: Iterable[str], *, name_filter: NameFilter | None = None) -> None:
    """Raise UsageError for the first source that names nothing; no more is read than that takes."""
    for source in sources:
        if "://" in source:
            from marpack.archive.remote import check_address  # noqa: PLC0415 - few inputs need it

            check_address(source)
        next(paths_of((source,), name_filter=name_filter), None)


def count_of(sources: Iterable[str], *, name_filter: NameFilter | None = None) -> int | None:
    """Return how many inputs sources name, or None where only reading them would tell."""
    count = 0
    for source in sources:
        if source.startswith("@") or (set(source) & _GLOB and not os.path.exists(source)):  # noqa: PTH110
            return None
        count += sum(1 for _ in _below(source, name_filter)) if os.path.isdir(source) else 1  # noqa: PTH112
    return count


def _some(paths: Iterator[str], what: str, source: str, *, strict: bool) -> Iterator[str]:
    first = next(paths, None)
    if first is not None:
        yield first
        yield from paths
    elif strict:
        raise UsageError(what, where=source, hint=f"look what is there: ls {source}", code="no-matching-input")
    else:
        yield source


def _listed(path: str) -> Iterator[str]:
    try:
        with Path(path).open(encoding="utf-8") as file:
            for line in file:
                if (name := line.strip()) and not name.startswith("#"):
                    yield name
    except (OSError, UnicodeDecodeError) as error:
        what = f"the list of inputs cannot be read: {error}"
        raise UsageError(what, where=path, code="unreadable-input-list") from error


def _matching(pattern: str) -> Iterator[str]:
    matches = glob.iglob(pattern, recursive=True)  # noqa: PTH207 - patterns may be absolute
    return in_order(path for path in matches if os.path.isfile(path))  # noqa: PTH113


def _below(folder: str, name_filter: NameFilter | None) -> Iterator[str]:
    """Yield a folder's files in order, then those of each of its folders; hidden ones are left out."""
    try:
        for name in in_order(entry.name for entry in _entries(folder) if _is_input(entry, name_filter)):
            yield os.path.join(folder, name)  # noqa: PTH118
        folders = in_order(entry.name for entry in _entries(folder) if entry.is_dir(follow_symlinks=False))
    except PermissionError:
        yield folder  # and whoever reads it is told why
        return
    for name in folders:
        yield from _below(os.path.join(folder, name), name_filter)  # noqa: PTH118


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from (entry for entry in entries if not entry.name.startswith("."))


def _is_input(entry: os.DirEntry[str], name_filter: NameFilter | None) -> bool:
    """Say whether an entry is a file to read; a link to nothing is, so that it is told."""
    if not (entry.is_file() or (entry.is_symlink() and not entry.is_dir())):
        return False
    return name_filter is None or name_filter(entry.name)


def in_order(names: Iterable[str]) -> Iterator[str]:
    """Yield names sorted, holding only so many at once: the others wait in temporary files."""
    source = iter(names)
    chunk = sorted(islice(source, _AT_ONCE))
    if len(chunk) < _AT_ONCE:
        yield from chunk
        return
    with ExitStack() as stack:
        runs = []
        while chunk:
            run = stack.enter_context(tempfile.TemporaryFile())
            run.writelines(os.fsencode(name) + _END for name in chunk)
            run.seek(0)
            runs.append(_names(run))
            chunk = sorted(islice(source, _AT_ONCE))
        yield from heapq.merge(*runs)


def _names(run: BinaryIO) -> Iterator[str]:
    rest = b""
    while block := run.read(1 << 14):
        *names, rest = (rest + block).split(_END)
        yield from map(os.fsdecode, names)
