"""Where an archive is written, and in which form; and what a file system refuses, as a sentence."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from marpack.archive.protocol import MANIFEST_NAME
from marpack.errors import OutputExistsError, ProjectError, UsageError
from marpack.project.plan import Format, PlannedMember

SUFFIXES = {Format.DEFAULT: ".mar", Format.ZIP_STORE: ".mar", Format.TGZ: ".tar.gz", Format.NO_ARCHIVE: ""}


def choose_output(output: str | Path | None, chosen: Format | None, *, name: str, folder: Path) -> tuple[Path, Format]:
    """Return the archive's path and format, each from the other where only one is given.

    Args:
        output: A path for the archive, or a folder (there already, or written with a final slash) to put it in.
        chosen: The format asked for.
        name: The model's name; the archive's is made from it.
        folder: Where the archive goes when no output is given.

    Raises UsageError when the two contradict each other.
    """
    if output is None:
        return folder / f"{name}{SUFFIXES[chosen or Format.DEFAULT]}", chosen or Format.DEFAULT
    path, text = Path(output), str(output)
    if text.endswith(("/", os.sep)) or (path.is_dir() and not path.name.endswith((".mar", ".tar.gz"))):
        if chosen is not Format.NO_ARCHIVE:
            return path / f"{name}{SUFFIXES[chosen or Format.DEFAULT]}", chosen or Format.DEFAULT
        return path, chosen
    fitting = Format.TGZ if path.name.endswith(".tar.gz") else Format.DEFAULT
    actual = chosen or fitting
    suffix = SUFFIXES[actual]
    if not path.name.endswith(suffix) or (not suffix and path.suffix == ".mar"):
        wanted = suffix or "no suffix"
        raise UsageError(
            f"the output of format {actual} ends in {wanted}, not {path.name}",
            where=f"--output {text}",
            hint="name a .mar, a .tar.gz or a folder",
            code="wrong-suffix",
        )
    return path, actual


def check_output(output: Path, form: Format, members: Iterable[PlannedMember], *, replace: bool) -> None:
    """Refuse an output that would overwrite what it must not.

    Raises OutputExistsError if it is there and may not be replaced, ProjectError if it is no archive's place.
    """
    where = str(output)
    blocker = next((parent for parent in output.parents if parent.exists()), None)
    if blocker is not None and not blocker.is_dir():
        raise ProjectError(f"{blocker} is a file, so nothing can be written below it", where=where)
    if not os.path.lexists(output):
        return
    if not replace:
        raise OutputExistsError("the output is there already", where=where, hint="--force replaces it")
    sources = [member.source for member in members if isinstance(member.source, Path)]
    if form is Format.NO_ARCHIVE:
        _check_folder(output, sources)
    elif output.is_dir():
        raise ProjectError("the output is a folder; an archive is a file", where=where, hint=f"rmdir {output}")
    elif not output.is_file():
        raise ProjectError("the output is not a regular file", where=where)
    elif any(source.samefile(output) for source in sources):
        raise ProjectError("the output would overwrite a file that goes into it", where=where)


def _check_folder(output: Path, sources: list[Path]) -> None:
    """Refuse to replace a folder that is no model folder, or that holds what goes into the new one."""
    if not output.is_dir():
        raise ProjectError("the output is a file; this format needs a folder", where=str(output))
    inside = next((source for source in sources if source.resolve().is_relative_to(output.resolve())), None)
    if inside is not None:
        raise ProjectError(
            f"the output folder holds {inside}, which goes into it", where=str(output), hint="choose another output"
        )
    if any(output.iterdir()) and not (output / MANIFEST_NAME).is_file():
        raise ProjectError(
            f"this folder is no model folder (it has no {MANIFEST_NAME}), so it is not replaced",
            where=str(output),
            hint="choose another output, or remove the folder",
        )


@contextmanager
def plain_refusals() -> Iterator[None]:
    """Turn an OSError (too long a name, a folder that may not be entered, a file gone meanwhile) into a ProjectError.

    Also a decorator.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ProjectError(
            f"a path cannot be used: {reason}", where=_shortened(str(error.filename)), code="unusable-path"
        ) from error


def _shortened(path: str) -> str:
    return path if len(path) <= 120 else f"{path[:60]}…{path[-40:]}"
