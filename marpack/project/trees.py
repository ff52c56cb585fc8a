"""Folders walked in a fixed order, symlinks followed once, without what tools leave behind."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

_LEFT_BEHIND = frozenset({"__pycache__", "__MACOSX"})


def tree(folder: Path, *, hidden_files: bool = False) -> Iterator[tuple[str, Path]]:
    """Yield every file below a folder as (name relative to it, with "/"; path), sorted by name.

    Hidden folders, `__pycache__` and `__MACOSX` are left out; hidden files are too, unless asked for. A symlink
    to a folder that is being walked already is left out as well.
    """
    yield from _walk(folder, "", hidden_files, (folder.resolve(),))


def _walk(folder: Path, prefix: str, hidden_files: bool, above: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path, hidden = folder / entry.name, entry.name.startswith(".")
        if not _is_folder(path):
            if hidden_files or not hidden:
                yield prefix + entry.name, path
            continue
        real = path.resolve()
        if not hidden and entry.name not in _LEFT_BEHIND and real not in above:
            yield from _walk(path, f"{prefix}{entry.name}/", hidden_files, (*above, real))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def is_pattern(text: str) -> bool:
    """Say whether a name stands for others: `*`, `?` and `[…]`."""
    return "*" in text or "?" in text or ("[" in text and "]" in text)


def matches(pattern: str, folder: Path) -> list[str]:
    """Return what a glob pattern matches, sorted; hidden names only where the pattern names the dot."""
    # Path.glob would match hidden names too, and the original archiver does not.
    return sorted(glob.glob(pattern, root_dir=folder))  # noqa: PTH207


def leads_out(path: Path, home: Path) -> bool:
    """Say whether a path, its symlinks followed, lies outside a folder."""
    return not Path(os.path.realpath(path)).is_relative_to(Path(os.path.realpath(home)))
