"""A plan's members while they come together: files, folders, globs, the handler's entry point."""

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from marpack.archive.names import MODEL_NAME, check_member_name, folded
from marpack.archive.staging import TEMPORARY
from marpack.errors import UnsafeArchiveError, nearest
from marpack.findings import Finding, Severity
from marpack.project.plan import PlannedMember, Role
from marpack.project.schema import FILE_NAME, LOCK_NAME, FileMapping, Project
from marpack.torchserve.server_modules import BUILT_INS, HandlerName
from marpack.weights.kind import SUFFIXES

LEFT_BEHIND = frozenset({"__pycache__", "__MACOSX"})  # by whoever packs a folder
_MADE = (".mar", ".gz")
_LARGE = 1 << 20  # bytes: members of this size lie beside the weights, so that the archive's tail stays small
NAME_HINT = "it begins with a letter or digit and goes on with those, '_', '-' and '.'"
OFFERED = tuple(name for name, row in BUILT_INS.items() if row.offered)


def tree(folder: Path, *, hidden_files: bool = False, home: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Yield every file below a folder as (name relative to it, with "/"; path), sorted by name.

    Hidden folders, `__pycache__` and `__MACOSX` are left out; hidden files are too, unless asked for. A symlink
    to a folder that is being walked already is left out as well. With `home`, a symlink to a folder outside of it is
    yielded itself, as if it were a file: nothing outside is listed.
    """
    yield from _walk(folder, "", hidden_files, (folder.resolve(),), home and home.resolve())


def _walk(
    folder: Path, prefix: str, hidden_files: bool, above: tuple[Path, ...], home: Path | None
) -> Iterator[tuple[str, Path]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path, hidden = folder / entry.name, entry.name.startswith(".")
        if not _is_folder(path):
            if hidden_files or not hidden:
                yield prefix + entry.name, path
            continue
        real = path.resolve()
        if hidden or entry.name in LEFT_BEHIND or real in above:
            continue
        if home is not None and not real.is_relative_to(home):
            yield prefix + entry.name, path
        else:
            yield from _walk(path, f"{prefix}{entry.name}/", hidden_files, (*above, real), home)


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


def as_script(notebook: str) -> str:
    """Return how a notebook becomes what can be imported."""
    return f"jupyter nbconvert --to script {notebook.partition(':')[0]}, keep the handler in it, and name the .py file"


def leads_out(path: Path, home: Path) -> bool:
    """Say whether a path, its symlinks followed, lies outside a folder."""
    return not Path(os.path.realpath(path)).is_relative_to(Path(os.path.realpath(home)))


class MemberCollector:
    """Members by name, each name once, and the findings made on the way."""

    def __init__(self, home: Path | None = None, output: Path | None = None) -> None:
        """Start with no members.

        Args:
            home: The folder that every file must be in, symlinks followed; None: files may be anywhere.
            output: The archive to be written, which is not a member where a folder or a pattern stands for it.
        """
        self.home = home
        self._output = None if output is None else Path(os.path.realpath(output))
        self.findings: list[Finding] = []
        self._outside: dict[str, list[Path]] = {}  # what asks for files outside `home` → these
        self.places: dict[str, str] = {}  # a member's name → the file that it is, or what made marpack make it
        self._members: dict[str, PlannedMember] = {}  # by the name that file systems would take for the same

    def add(
        self, name: str, source: Path | bytes, *, where: str, role: Role | None = None, anywhere: bool = False
    ) -> None:
        """Take one member, or report why it cannot be taken; `anywhere`: it may be outside the folder `home`.

        The same file may come twice under one name; two files may not.
        """
        if isinstance(source, Path) and not (anywhere or self.check_inside(source, where=where)):
            return
        if isinstance(source, Path) and not self.check_file(source, where=where):
            return
        try:
            check_member_name(name)
        except UnsafeArchiveError as error:
            self.error("member-name", error.what, where, "rename the file")
            return
        key = folded(name)
        if role is not Role.META and key.partition("/")[0] == "mar-inf":
            self.error("reserved-name", f"{name} lies in MAR-INF/, which the archive keeps for itself", where)
            return
        before = self._members.setdefault(key, PlannedMember(name, source, role or _role_of(name, source)))
        if before.name == name and _is_same(before.source, source):
            self.places.setdefault(name, str(source) if isinstance(source, Path) else where)
        else:
            self._report_collision(name, source, before, where)

    def add_tree(self, name: str, files: Iterable[tuple[str, Path]], *, folder: Path, home: Path, where: str) -> None:
        """Take a folder's files, below a name that may be empty.

        Args:
            name: The folder's name in the archive.
            files: From `tree(folder)`.
            folder: Where they lie, for messages.
            home: A symlink from inside this folder to what is outside of it is warned of, unless it is refused.
            where: What asks for it.
        """
        try:
            found = list(files)
        except OSError as error:
            self.error("unreadable", f"{error.filename} cannot be read: {error.strerror}", where)
            return
        if not found:
            self.warning("empty-folder", f"{folder} holds no files", where)
        outward = [str(path) for _, path in found if leads_out(path, home)] if not leads_out(folder, home) else []
        if outward and self.home is None:
            names = ", ".join(outward[:3]) + (", …" if len(outward) > 3 else "")
            self.warning("symlink-outside", f"what lies outside of {home} is packed through symlinks: {names}", where)
        for inner, path in found:
            self.add((PurePosixPath(name) / inner).as_posix(), path, where=where)

    def check_name(self, name: str, *, where: str) -> None:
        """Report what is no model name."""
        if not MODEL_NAME.fullmatch(name):
            self.error("model-name", f"'{name}' is no model name", where, NAME_HINT)

    def add_handler(self, text: str, file: Path | None, *, where: str) -> None:
        """Take the file that a handler's name stands for; a built-in has none."""
        near = near_built_in(text)
        if HandlerName.parse(text).path.endswith(".ipynb"):
            self.error("notebook", f"{text} is a notebook, and the server imports Python files", where, as_script(text))
        elif file is not None and near and not file.exists():
            message = f"{text} is neither a built-in handler nor a file"
            self.error("missing-file", message, where, f"did you mean {near}?")
        elif file is not None:
            self.add(file.name, file, where=where, role=Role.FILE, anywhere=True)

    def holds(self, name: str) -> bool:
        """Say whether a name is taken."""
        return folded(name) in self._members

    def source_of(self, name: str) -> Path | bytes | None:
        """Return what a name is taken by, if it is."""
        return self._members[folded(name)].source if self.holds(name) else None

    def members(self) -> tuple[PlannedMember, ...]:
        """Return the members, sorted by name; report files outside `home`, and names of both a file and a folder."""
        for where, paths in self._outside.items():
            self._report_outside(paths, where)
        members = tuple(sorted(self._members.values(), key=lambda member: member.name))
        for member in members:
            for folder in Path(member.name).parents[:-1]:
                if self.holds(folder.as_posix()):
                    self.error("name-collision", f"{folder} would be both a file and the folder of {member.name}", None)
        return members

    def is_excluded(self, file: Path, folder: Path) -> bool:
        """Return whether folders and patterns leave a file out: marpack's own files, and archives built from it."""
        named = file.name in {FILE_NAME, LOCK_NAME} or file.suffix == ".mar"
        if (named and file.parent == folder) or file.name.endswith(TEMPORARY):
            return True
        if self._output is None:
            return False
        real = Path(os.path.realpath(file))
        beside = real.parent == self._output.parent and real.name.startswith(f"{self._output.name}.")  # .sig, .cdx.json
        return beside or real.is_relative_to(self._output)

    def check_inside(self, path: Path, *, where: str) -> bool:
        """Say whether a path, its symlinks followed, is in the folder `home`; `members` reports it if not."""
        if self.home is None or not leads_out(path, self.home):
            return True
        self._outside.setdefault(where, []).append(path)
        return False

    def check_file(self, path: Path, *, where: str) -> bool:
        """Say whether a path is a regular file that can be read; report it if not."""
        try:
            mode = path.stat().st_mode
        except OSError as error:
            self._report_missing(path, where, error)
            return False
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            self.error("not-a-file", f"{path} is {kind}", where, "name a regular file")
            return False
        if not os.access(path, os.R_OK):
            self.error("unreadable", f"{path} may not be read", where, f"chmod u+r {path}")
            return False
        return True

    def error(self, code: str, message: str, where: str | None, hint: str | None = None) -> None:
        """Report what stops the build."""
        self._report(Severity.ERROR, code, message, where, hint)

    def warning(self, code: str, message: str, where: str | None) -> None:
        """Report what is probably not meant."""
        self._report(Severity.WARNING, code, message, where, None)

    def _report(self, severity: Severity, code: str, message: str, where: str | None, hint: str | None) -> None:
        self.findings.append(Finding(code=code, severity=severity, message=message, where=where, hint=hint))

    def _report_outside(self, paths: list[Path], where: str) -> None:
        named = ", ".join(map(_real, paths[:3])) + (", …" if len(paths) > 3 else "")
        what = f"{named} is" if len(paths) == 1 else f"{len(paths)} files are"
        message = f"{what} outside the project folder {os.path.realpath(str(self.home))}"
        message += f": {named}" if len(paths) > 1 else ""
        things = "it" if len(paths) == 1 else "them"
        self.error("outside-project", message, where, f"copy {things} into the project folder, or pass --allow-outside")

    def _report_missing(self, path: Path, where: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self.error("unreadable", f"{path} cannot be read: {error.strerror}", where)
            return
        if path.is_symlink():
            self.error("missing-file", f"{path} is a symlink that leads nowhere", where)
            return
        near = nearest(path.name, _siblings(path))
        hint = f"did you mean {path.parent / near}?" if near else "put the file there, or correct the path"
        self.error("missing-file", f"{path} is not there", where, hint)

    def _report_collision(self, name: str, source: Path | bytes, before: PlannedMember, where: str) -> None:
        first, second = _origin(before.source), _origin(source)
        names = name if before.name == name else f"{before.name} and {name} (one name where case does not count)"
        self.error(
            "name-collision",
            f"two files would be {names} in the archive: {first} and {second}",
            where,
            "rename one of them: in an archive each name is there once",
        )


def _real(path: Path) -> str:
    """Return a path, and where it leads if its symlinks lead elsewhere."""
    real = os.path.realpath(path)
    return str(path) if real == os.path.normpath(path.absolute()) else f"{path} (a link to {real})"


def _is_same(one: Path | bytes, other: Path | bytes) -> bool:
    if isinstance(one, Path) and isinstance(other, Path):
        return one.samefile(other)
    return one == other


def _role_of(name: str, source: Path | bytes) -> Role:
    if name.endswith(SUFFIXES):
        return Role.WEIGHTS
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    return Role.WEIGHTS if size >= _LARGE else Role.FILE


def _origin(source: Path | bytes) -> str:
    return str(source) if isinstance(source, Path) else "the one that marpack makes"


def _siblings(path: Path) -> list[str]:
    """Return the files beside a path that a misspelt name can mean; an archive made from them is none."""
    try:
        return [sibling.name for sibling in path.parent.iterdir() if sibling.suffix not in _MADE]
    except OSError:
        return []


def add_entries(project: Project, gathering: MemberCollector) -> None:
    """Take every entry under `files`; what lies in the project keeps its path there."""
    for index, entry in enumerate(project.files):
        where = project.place(f"files[{index}]")
        source = entry.source if isinstance(entry, FileMapping) else entry
        to = entry.to if isinstance(entry, FileMapping) else None
        _add_entry(source, to, project.folder, where, gathering)


def _add_entry(source: str, to: str | None, folder: Path, where: str, gathering: MemberCollector) -> None:
    path = folder / source
    if is_pattern(source) and not path.exists():
        found = matches(source, folder)
        if not found:
            gathering.warning("glob-without-match", f"{source} matches no file", where)
        for match in found:
            if gathering.is_excluded(folder / match, folder):
                continue
            _add_one(match, None if to is None else _joined(to, Path(match).name), folder, where, gathering)
        return
    is_into = to is not None and (to.endswith("/") or to in {"", "."})
    inner = _joined(to, path.name) if to is not None and is_into and not path.is_dir() else to
    _add_one(source, inner, folder, where, gathering)


def _add_one(source: str, to: str | None, folder: Path, where: str, gathering: MemberCollector) -> None:
    """Take one file or folder under the name `to`, or under the path that it has in the project."""
    path = folder / source
    name = _joined(to) if to is not None else _kept(source)
    if not gathering.check_inside(path, where=where):
        return
    if path.is_dir():
        found = tree(path, home=gathering.home)
        files = ((inner, file) for inner, file in found if not gathering.is_excluded(file, folder))
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


class EntryPoint(Struct, frozen=True):
    """A handler as the author names it."""

    file: Path | None  # None: a built-in
    manifest: str  # as the manifest names it

    @classmethod
    def parse(cls, text: str, folder: Path) -> "EntryPoint":
        """Parse `built_in`, `path/file.py`, `path/file.py:function`, or a file without its `.py` (contract §1)."""
        if text in OFFERED:
            return cls(None, text)
        name = HandlerName.parse(text)
        file = Path(f"{name.path.removesuffix('.py')}.py")
        return cls(folder / file, file.name if name.function is None else f"{file.name}:{name.function}")


def near_built_in(text: str) -> str | None:
    """Return the built-in that a misspelt name probably means."""
    return nearest(text, OFFERED)
