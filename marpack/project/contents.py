"""The `files` of a project: files, folders and globs, each with its names in the archive."""

from pathlib import Path, PurePosixPath

from marpack.project.gathering import Gathering
from marpack.project.schema import FILE_NAME, FileMapping, Project
from marpack.project.trees import is_pattern, matches, tree


def add_entries(project: Project, gathering: Gathering) -> None:
    """Take every entry under `files`; what lies in the project keeps its path there."""
    for index, entry in enumerate(project.files):
        where = project.place(f"files[{index}]")
        source = entry.source if isinstance(entry, FileMapping) else entry
        to = entry.to if isinstance(entry, FileMapping) else None
        _add_entry(source, to, project.folder, where, gathering)


def _add_entry(source: str, to: str | None, folder: Path, where: str, gathering: Gathering) -> None:
    path = folder / source
    if is_pattern(source) and not path.exists():
        found = matches(source, folder)
        if not found:
            gathering.warning("glob-without-match", f"{source} matches no file", where)
        for match in found:
            _add_one(match, None if to is None else _joined(to, Path(match).name), folder, where, gathering)
        return
    is_into = to is not None and (to.endswith("/") or to in {"", "."})
    inner = _joined(to, path.name) if to is not None and is_into and not path.is_dir() else to
    _add_one(source, inner, folder, where, gathering)


def _add_one(source: str, to: str | None, folder: Path, where: str, gathering: Gathering) -> None:
    """Take one file or folder under the name `to`, or under the path that it has in the project."""
    path = folder / source
    name = _joined(to) if to is not None else _kept(source)
    if path.is_dir():
        files = ((inner, file) for inner, file in tree(path) if not _is_ours(file, folder))
        gathering.add_tree(name, files, folder=path, home=folder, where=where)
    else:
        gathering.add(name, path, where=where)


def _kept(source: str) -> str:
    """Return the name of what lies in the project, or the base name of what does not."""
    steps = [step for step in PurePosixPath(source).parts if step != "."]
    if ".." in steps or PurePosixPath(source).is_absolute():
        return PurePosixPath(source).name
    return "/".join(steps)


def _joined(*names: str) -> str:
    """Join names inside the archive; `.` and final slashes add nothing."""
    return PurePosixPath(*names).as_posix()


def _is_ours(file: Path, folder: Path) -> bool:
    """Say whether a file is the project's own, or an archive built from it: these go into no archive."""
    return file.parent == folder and (file.name == FILE_NAME or file.suffix == ".mar")
