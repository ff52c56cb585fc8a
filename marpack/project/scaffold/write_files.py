"""Files written into a folder, all of them or none; existing files stay, unless they may be replaced."""

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from marpack.archive.staging import staged_folder
from marpack.errors import ScaffoldError, UsageError, describe_os_error

Source = bytes | Callable[[Path], object]  # a file's content, or what writes it to a path


class WrittenFiles(Struct, frozen=True, kw_only=True):
    """The files by their outcome; every name is in one of the three."""

    written: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # existed, and may not be replaced


def new_folder(folder: Path, *, hint: str) -> Path:
    """Return the folder for an archive's project, named as its model; raises UsageError if it exists."""
    if os.path.lexists(folder):
        what = "a file or folder with the model's name exists"
        raise UsageError(what, where=str(folder), hint=hint, code="output-exists")
    return folder


def write_files(folder: Path, files: Mapping[str, Source], *, replace: bool) -> WrittenFiles:
    """Write files, by their names with "/", into a folder that may be new.

    Raises ScaffoldError if one cannot be written; then the folder is unchanged.
    """
    try:
        if not folder.exists():
            with staged_folder(folder, replace=False) as new:
                _write_all(new, files)
            return WrittenFiles(written=tuple(files))
        existing = [name for name in files if _exists(folder, name)]
        wanted = {name: source for name, source in files.items() if replace or name not in existing}
        with tempfile.TemporaryDirectory(prefix=".marpack-init-", dir=folder) as staging, ExitStack() as undo:
            _write_all(Path(staging, "new"), wanted)
            for name in wanted:
                target, old = folder / name, Path(staging, "old", name)
                for parent in reversed([each for each in target.parents if not each.exists()]):
                    parent.mkdir()
                    undo.callback(parent.rmdir)
                if name in existing:
                    old.parent.mkdir(parents=True, exist_ok=True)
                    target.rename(old)
                    undo.callback(old.rename, target)
                Path(staging, "new", name).rename(target)
                undo.callback(target.unlink)
            undo.pop_all()
    except OSError as error:
        what, where = f"the project cannot be written: {describe_os_error(error)}", str(error.filename or folder)
        raise ScaffoldError(what, where=where) from error
    return WrittenFiles(
        written=tuple(name for name in wanted if name not in existing),
        replaced=tuple(name for name in wanted if name in existing),
        skipped=tuple(name for name in existing if name not in wanted),
    )


def _exists(folder: Path, name: str) -> bool:
    """Return whether a file exists; raises ScaffoldError where a folder or a file is in the way."""
    path = folder / name
    for place in path.parents[: name.count("/")]:
        if os.path.lexists(place) and not place.is_dir():
            what = f"{place.name} is a file, and {name} needs a folder there"
            raise ScaffoldError(what, where=str(place), hint="Move it away.", code="not-a-folder")
    if path.is_dir():
        what = f"{name} is a folder, and init writes a file of that name"
        raise ScaffoldError(what, where=str(path), hint="Move it away.", code="not-a-file")
    return os.path.lexists(path)


def _write_all(folder: Path, files: Mapping[str, Source]) -> None:
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, bytes):
            path.write_bytes(source)
        else:
            source(path)
