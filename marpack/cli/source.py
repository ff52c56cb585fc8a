"""SOURCE, as the commands that only look take it."""

from __future__ import annotations

from pathlib import Path


def archive_of(source: str | None) -> str | Path:
    """Return the archive that a SOURCE stands for; what is an archive already need not wait for the project's code."""
    if source is not None and ("://" in source or _is_no_folder(Path(source))):
        return source
    from marpack.project.source import resolve
    from marpack.render.progress import byte_bar

    return resolve(source, bar=byte_bar).path


def _is_no_folder(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except ValueError:  # a null byte
        return False
