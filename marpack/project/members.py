"""A plan's members while they are collected: files, folders, globs, the handler's entry point."""

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from marpack import finding_codes as codes
from marpack.archive.protocol import MODEL_NAME, check_member_name, folded
from marpack.archive.staging import TEMPORARY
from marpack.errors import UnsafeArchiveError, describe_os_error, nearest
from marpack.findings import Code, Finding, Severity
from marpack.project.plan import PlannedMember, Role
from marpack.project.schema import FILE_NAME, LOCK_NAME, FileMapping, Project
from marpack.torchserve.server_modules import BUILT_INS, HandlerName
from marpack.weights.kind import SUFFIXES

LEFT_BEHIND = frozenset({"__pycache__", "__MACOSX"})  # folders that Python and macOS create
_ARCHIVES = (".mar", ".gz")
_LARGE = 1 << 20  # bytes: large members are written beside the weights, so that the archive's tail stays small
NAME_HINT = "start it with a letter or digit, and use only those, '_', '-' and '.'"
OFFERED = tuple(name for name, row in BUILT_INS.items() if row.offered)


def tree(folder: Path, *, hidden_files: bool = False, home: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Yield every file below a folder as (name relative to it, with "/"; path), sorted by name.

    Hidden folders, `__pycache__` and `__MACOSX` are left out, and hidden files by default. A symlink to a folder
    above it is left out as well. With `home`, a symlink to a folder outside of it is yielded like a file: files
    outside are not listed.
    """
    yield from _walk(folder, "", hidden_files, (folder.resolve(),), home and home.resolve())


def _walk(
    folder: Path, prefix: str, hidden_files: bool, above: tuple[Path, ...], home: Path | None
) -> Iterator[tuple[str, Path]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path, is_hidden = folder / entry.name, entry.name.startswith(".")
        try:
            is_folder = path.is_dir()
        except OSError:
            is_folder = False
        if not is_folder:
            if hidden_files or not is_hidden:
                yield prefix + entry.name, path
            continue
        real = path.resolve()
        if is_hidden or entry.name in LEFT_BEHIND or real in above:
            continue
        if home is not None and not real.is_relative_to(home):
            yield prefix + entry.name, path
        else:
            yield from _walk(path, f"{prefix}{entry.name}/", hidden_files, (*above, real), home)


def is_pattern(text: str) -> bool:
    """Return whether a name is a pattern with `*`, `?` or `[…]`."""
    return "*" in text or "?" in text or ("[" in text and "]" in text)


def matches(pattern: str, folder: Path) -> list[str]:
    """Return the names that a glob pattern matches, sorted; hidden names only where the pattern names the dot."""
    # Path.glob would match hidden names too, and the original archiver does not.
    return sorted(glob.glob(pattern, root_dir=folder))  # noqa: PTH207


def leads_out(path: Path, home: Path) -> bool:
    """Return whether a path, its symlinks followed, is outside a folder."""
    return not Path(os.path.realpath(path)).is_relative_to(Path(os.path.realpath(home)))


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


class MemberCollector:
    """Members by name, each name once, and the findings about them."""

    def __init__(self, home: Path | None = None, output: Path | None = None) -> None:
        """Start with no members.

        Args:
            home: The folder that every file must be in, symlinks followed; None: files may be anywhere.
            output: The archive to be written, which folders and patterns do not include.
        """
        self.home = home
        self._output = None if output is None else Path(os.path.realpath(output))
        self.findings: list[Finding] = []
        self._outside: dict[str, list[Path]] = {}  # a place in marpack.yaml → its files outside `home`
        self.places: dict[str, str] = {}  # a member's name → its file, or the key that marpack makes it from
        self._members: dict[str, PlannedMember] = {}  # by the name without case and Unicode form

    def add(
        self, name: str, source: Path | bytes, *, where: str, role: Role | None = None, anywhere: bool = False
    ) -> None:
        """Add one member, or report why it cannot be added; `anywhere`: it may be outside the folder `home`.

        The same file may come twice under one name; two files may not.
        """
        if isinstance(source, Path) and not (anywhere or self.check_inside(source, where=where)):
            return
        if isinstance(source, Path) and not self.check_file(source, where=where):
            return
        try:
            check_member_name(name)
        except UnsafeArchiveError as error:
            self.error(codes.MEMBER_NAME, error.what, where, "rename the file")
            return
        key = folded(name)
        if role is not Role.META and key.partition("/")[0] == "mar-inf":
            self.error(codes.RESERVED_NAME, f"{name} is in MAR-INF/, which is reserved for marpack", where)
            return
        if role is None:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
            role = Role.WEIGHTS if name.endswith(SUFFIXES) or size >= _LARGE else Role.FILE
        before = self._members.setdefault(key, PlannedMember(name, source, role))
        is_same = before.source == source
        if isinstance(source, Path) and isinstance(before.source, Path):
            is_same = source.samefile(before.source)
        if before.name == name and is_same:
            self.places.setdefault(name, str(source) if isinstance(source, Path) else where)
            return
        first, second = (
            str(s) if isinstance(s, Path) else "the one that marpack makes" for s in (before.source, source)
        )
        names = name if before.name == name else f"{before.name} and {name} (the same name without case)"
        message = f"two files would be {names} in the archive: {first} and {second}"
        self.error(codes.NAME_COLLISION, message, where, "rename one of them")

    def add_tree(self, name: str, files: Iterable[tuple[str, Path]], *, folder: Path, home: Path, where: str) -> None:
        """Add a folder's files, below a name that may be empty.

        Args:
            name: The folder's name in the archive.
            files: From `tree(folder)`.
            folder: The folder, for messages.
            home: A symlink from this folder to a file outside of it gives a warning, unless it is an error.
            where: The key or option that names the folder.
        """
        try:
            found = list(files)
        except OSError as error:
            self.error(codes.UNREADABLE, f"{error.filename} cannot be read: {describe_os_error(error)}", where)
            return
        if not found:
            self.warning(codes.EMPTY_FOLDER, f"{folder} has no files", where)
        outward = [str(path) for _, path in found if leads_out(path, home)] if not leads_out(folder, home) else []
        if outward and self.home is None:
            names = ", ".join(outward[:3]) + (", …" if len(outward) > 3 else "")
            self.warning(codes.SYMLINK_OUTSIDE, f"symlinks add files from outside {home}: {names}", where)
        for inner, path in found:
            self.add((PurePosixPath(name) / inner).as_posix(), path, where=where)

    def add_handler(self, text: str, file: Path | None, *, where: str) -> None:
        """Add the file of a handler; a built-in has none."""
        near = near_built_in(text)
        if HandlerName.parse(text).path.endswith(".ipynb"):
            script = f"jupyter nbconvert --to script {text.partition(':')[0]}"
            hint = f"{script}, keep the handler in it, and name the .py file"
            self.error(codes.NOTEBOOK, f"{text} is a notebook, and the server imports Python files", where, hint)
        elif file is not None and near and not file.exists():
            message = f"{text} is neither a built-in handler nor a file"
            self.error(codes.MISSING_FILE, message, where, f"did you mean {near}?")
        elif file is not None:
            self.add(file.name, file, where=where, role=Role.FILE, anywhere=True)

    def add_entries(self, project: Project) -> None:
        """Add every entry under `files`; a file of the project keeps its path there."""
        for index, entry in enumerate(project.files):
            where, folder = project.place(f"files[{index}]"), project.folder
            source, to = (entry.source, entry.to) if isinstance(entry, FileMapping) else (entry, None)
            path = folder / source
            if is_pattern(source) and not path.exists():
                found = matches(source, folder)
                if not found:
                    self.warning(codes.GLOB_WITHOUT_MATCH, f"{source} matches no file", where)
                for match in found:
                    if not self._is_excluded(folder / match, folder):
                        name = None if to is None else PurePosixPath(to, Path(match).name).as_posix()
                        self._add_entry(match, name, folder, where)
                continue
            if to is not None and (to.endswith("/") or to in {"", "."}) and not path.is_dir():
                to = PurePosixPath(to, path.name).as_posix()
            self._add_entry(source, to, folder, where)

    def _add_entry(self, source: str, to: str | None, folder: Path, where: str) -> None:
        """Add one file or folder under the name `to`, or under its path in the project."""
        path, name = folder / source, PurePosixPath(source)
        if to is not None:
            name = PurePosixPath(to)
        elif ".." in name.parts or name.is_absolute():
            name = PurePosixPath(name.name)
        if not self.check_inside(path, where=where):
            return
        if path.is_dir():
            found = ((inner, file) for inner, file in tree(path, home=self.home) if not self._is_excluded(file, folder))
            self.add_tree(name.as_posix(), found, folder=path, home=folder, where=where)
        else:
            self.add(name.as_posix(), path, where=where)

    def _is_excluded(self, file: Path, folder: Path) -> bool:
        """Return whether folders and patterns leave a file out: marpack's own files, and archives built from it."""
        is_ours = file.name in {FILE_NAME, LOCK_NAME} or file.suffix == ".mar"
        if (is_ours and file.parent == folder) or file.name.endswith(TEMPORARY):
            return True
        if self._output is None:
            return False
        real = Path(os.path.realpath(file))
        beside = real.parent == self._output.parent and real.name.startswith(f"{self._output.name}.")  # .sig, .cdx.json
        return beside or real.is_relative_to(self._output)

    def check_name(self, name: str, *, where: str) -> None:
        """Report an invalid model name."""
        if not MODEL_NAME.fullmatch(name):
            self.error(codes.MODEL_NAME, f"'{name}' is not a model name", where, NAME_HINT)

    def holds(self, name: str) -> bool:
        """Return whether a name is taken."""
        return folded(name) in self._members

    def source_of(self, name: str) -> Path | bytes | None:
        """Return the source of the member with a name, if there is one."""
        return self._members[folded(name)].source if self.holds(name) else None

    def members(self) -> tuple[PlannedMember, ...]:
        """Return the members, sorted by name; report files outside `home`, and names of both a file and a folder."""
        for where, paths in self._outside.items():
            shown = []
            for path in paths[:3]:
                real = os.path.realpath(path)
                is_link = real != os.path.normpath(path.absolute())
                shown.append(f"{path} (a link to {real})" if is_link else str(path))
            names = ", ".join(shown) + (", …" if len(paths) > 3 else "")
            place = f"outside the project folder {os.path.realpath(str(self.home))}"
            message = f"{names} is {place}" if len(paths) == 1 else f"{len(paths)} files are {place}: {names}"
            hint = f"copy {'it' if len(paths) == 1 else 'them'} into the project folder, or pass --allow-outside"
            self.error(codes.OUTSIDE_PROJECT, message, where, hint)
        members = tuple(sorted(self._members.values(), key=lambda member: member.name))
        for member in members:
            for folder in Path(member.name).parents[:-1]:
                if self.holds(folder.as_posix()):
                    self.error(
                        codes.NAME_COLLISION, f"{folder} would be both a file and the folder of {member.name}", None
                    )
        return members

    def check_inside(self, path: Path, *, where: str) -> bool:
        """Return whether a path, its symlinks followed, is in the folder `home`; `members` reports it if not."""
        if self.home is None or not leads_out(path, self.home):
            return True
        self._outside.setdefault(where, []).append(path)
        return False

    def check_file(self, path: Path, *, where: str) -> bool:
        """Return whether a path is a readable regular file; report it if not."""
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            self._report_missing(path, where)
            return False
        except OSError as error:
            self.error(codes.UNREADABLE, f"{path} cannot be read: {describe_os_error(error)}", where)
            return False
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            self.error(codes.NOT_A_FILE, f"{path} is {kind}", where, "name a regular file")
            return False
        if not os.access(path, os.R_OK):
            self.error(codes.UNREADABLE, f"{path} may not be read", where, f"chmod u+r {path}")
            return False
        return True

    def _report_missing(self, path: Path, where: str) -> None:
        if path.is_symlink():
            self.error(codes.MISSING_FILE, f"{path} is a broken symlink", where)
            return
        try:
            beside = [sibling.name for sibling in path.parent.iterdir() if sibling.suffix not in _ARCHIVES]
        except OSError:
            beside = []
        near = nearest(path.name, beside)
        hint = f"did you mean {path.parent / near}?" if near else "create the file, or correct the path"
        self.error(codes.MISSING_FILE, f"{path} does not exist", where, hint)

    def error(self, code: Code, message: str, where: str | None, hint: str | None = None) -> None:
        """Report a problem that stops the build."""
        hint = hint or code.hint or None
        self.findings.append(Finding(code=code.name, severity=Severity.ERROR, message=message, where=where, hint=hint))

    def warning(self, code: Code, message: str, where: str | None) -> None:
        """Report a probable mistake."""
        hint = code.hint or None
        self.findings.append(
            Finding(code=code.name, severity=Severity.WARNING, message=message, where=where, hint=hint)
        )
