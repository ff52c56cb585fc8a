"""The `files` of a project: files, folders and globs, each with its names in the archive."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from marpack.project.gathering import Gathering
from marpack.project.schema import FileMapping, Project
from marpack.project.trees import is_pattern, leads_out, matches, tree


def add_entries(project: Project, gathering: Gathering) -> None:
    """Take every entry under `files`; what lies in the project keeps its path there."""
    for index, entry in enumerate(project.files):
        where = project.place(f"files[{index}]")
        source = entry.source if isinstance(entry, FileMapping) else entry
        to = entry.to if isinstance(entry, FileMapping) else None
        for name, path in _named(source, to, project.folder, where, gathering):
            gathering.add(name, path, where=where)


def _named(source: str, to: str | None, folder: Path, where: str, gathering: Gathering) -> Iterator[tuple[str, Path]]:
    """Yield the names that one entry's files get in the archive."""
    path = folder / source
    if is_pattern(source) and not path.exists():
        found = matches(source, folder)
        if not found:
            gathering.warning("glob-without-match", f"{source} matches no file", where)
        for match in found:
            inner = None if to is None else _joined(to, Path(match).name)
            yield from _one(match, inner, folder, where, gathering)
        return
    is_into = to is not None and (to.endswith("/") or to in {"", "."})
    inner = _joined(to, path.name) if to is not None and is_into and not path.is_dir() else to
    yield from _one(source, inner, folder, where, gathering)


def _one(source: str, to: str | None, folder: Path, where: str, gathering: Gathering) -> Iterator[tuple[str, Path]]:
    """Yield one file, or a folder's files, under the name `to`, or under the path that it has in the project."""
    path = folder / source
    name = _joined(to) if to is not None else _kept(source)
    if not path.is_dir():
        yield name, path
        return
    try:
        inside = [(inner, file) for inner, file in tree(path) if not _is_project_file(file, folder)]
    except OSError as error:
        gathering.error("unreadable", f"{error.filename} cannot be read: {error.strerror}", where)
        return
    if not inside:
        gathering.warning("empty-folder", f"{path} holds no files", where)
    for inner, file in inside:
        if leads_out(file, folder) and not leads_out(path, folder):
            hint = "to pack it all the same, name it under files by itself: {from: …, to: …}"
            gathering.error("symlink-outside", f"{file} is a symlink that leads out of the project", where, hint)
        else:
            yield _joined(name, inner), file


def _kept(source: str) -> str:
    """Return the name of what lies in the project, or the base name of what does not."""
    steps = [step for step in PurePosixPath(source).parts if step != "."]
    if ".." in steps or PurePosixPath(source).is_absolute():
        return PurePosixPath(source).name
    return "/".join(steps)


def _joined(*names: str) -> str:
    """Join names inside the archive; `.` and final slashes add nothing."""
    return PurePosixPath(*names).as_posix()


def _is_project_file(file: Path, folder: Path) -> bool:
    """Say whether a file is the project's own, or an archive built from it."""
    return file.parent == folder and (file.name == "marpack.yaml" or file.suffix == ".mar")
