"""Files put into a folder, all of them or none; what is there already stays, unless it may be replaced."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from marpack.archive.staging import staged_folder
from marpack.errors import ScaffoldError, UsageError, describe_os_error

_BLOCK = 1 << 20  # bytes
_CONVERTER = "marpack.worker.loaders.formats"  # started, never imported: it needs torch


class Conversion(Struct, frozen=True):
    """A state_dict that a child process makes of a safetensors file."""

    source: Path

    def write(self, path: Path) -> None:
        """Write the state_dict; raises ScaffoldError if that cannot be done."""
        command = [sys.executable, "-P", "-m", _CONVERTER, str(self.source), str(path)]
        done = subprocess.run(  # noqa: S603 - our own module, no shell
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
            hint = "mend the file, or leave it as it is for marpack's own runtime: --target marpack"
            message = f"it cannot be converted to a state_dict: {reason}"
            raise ScaffoldError(message, where=str(self.source), hint=hint, code="conversion-failed")


Source = bytes | Callable[[], BinaryIO] | Conversion  # a file's content, what opens it for reading, or what makes it


class WrittenFiles(Struct, frozen=True, kw_only=True):
    """What became of the files; every name is in one of the three."""

    written: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # there already, and not to be replaced


def new_folder(folder: Path, *, hint: str) -> Path:
    """Return where an archive's project goes, named as its model is; UsageError if something is there already."""
    if os.path.lexists(folder):
        raise UsageError(
            "there is something of the model's name already", where=str(folder), hint=hint, code="output-exists"
        )
    return folder


def place(folder: Path, files: Mapping[str, Source], *, replace: bool) -> WrittenFiles:
    """Write files, by their names with "/", into a folder that need not be there.

    Raises ScaffoldError if one cannot be written; then the folder is as it was.
    """
    try:
        return _place(folder, files, replace=replace)
    except OSError as error:
        where = str(error.filename or folder)
        raise ScaffoldError(f"the project cannot be written: {describe_os_error(error)}", where=where) from error


def _place(folder: Path, files: Mapping[str, Source], *, replace: bool) -> WrittenFiles:
    if not folder.exists():
        with staged_folder(folder, replace=False) as staging:
            _write_all(staging, files)
        return WrittenFiles(written=tuple(files))
    there = [name for name in files if _is_there(folder, name)]
    wanted = {name: source for name, source in files.items() if replace or name not in there}
    with tempfile.TemporaryDirectory(prefix=".marpack-init-", dir=folder) as staging:
        _write_all(Path(staging, "new"), wanted)
        _move_all(Path(staging), folder, list(wanted))
    return WrittenFiles(
        written=tuple(name for name in wanted if name not in there),
        replaced=tuple(name for name in wanted if name in there),
        skipped=tuple(name for name in there if name not in wanted),
    )


def _is_there(folder: Path, name: str) -> bool:
    """Say whether a file is there; raises ScaffoldError for what no file can be put in the place of."""
    path = folder / name
    for parent in (*reversed(path.relative_to(folder).parents[:-1]),):
        if os.path.lexists(folder / parent) and not (folder / parent).is_dir():
            raise ScaffoldError(
                f"{parent} is a file, and {name} needs a folder there", where=str(folder / parent), code="not-a-folder"
            )
    if path.is_dir():
        raise ScaffoldError(
            f"{name} is a folder, where a file is to be", where=str(path), hint="move it away", code="not-a-file"
        )
    return os.path.lexists(path)


def _write_all(folder: Path, files: Mapping[str, Source]) -> None:
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, bytes):
            path.write_bytes(source)
            continue
        if isinstance(source, Conversion):
            source.write(path)
            continue
        with source() as data, path.open("wb") as file:
            shutil.copyfileobj(data, file, _BLOCK)


def _move_all(staging: Path, folder: Path, names: list[str]) -> None:
    """Move the new files to their places, and put back everything if one cannot be moved."""
    with ExitStack() as undo:
        for name in names:
            target, old = folder / name, staging / "old" / name
            for parent in reversed([each for each in target.parents if not each.exists()]):
                parent.mkdir()
                undo.callback(parent.rmdir)
            if os.path.lexists(target):
                old.parent.mkdir(parents=True, exist_ok=True)
                target.rename(old)
                undo.callback(old.rename, target)
            (staging / "new" / name).rename(target)
            undo.callback(target.unlink)
        undo.pop_all()
