"""The members of an archive while they are collected: files, folders, patterns, the handler and its imports."""

import glob
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from marpack import finding_codes as codes
from marpack.archive.protocol import check_member_name, folded
from marpack.archive.staging import TEMPORARY
from marpack.errors import UnsafeArchiveError, describe_os_error, nearest
from marpack.findings import Code, Finding
from marpack.inspection.lint.source import Broken, Found, ModuleFinder, parse, read_imports
from marpack.project.plan import PlannedMember, Role
from marpack.project.schema import FILE_NAME, LOCK_NAME
from marpack.torchserve.server_modules import BUILT_INS, HandlerName
from marpack.weights.kind import SUFFIXES

LEFT_BEHIND = frozenset({"__pycache__", "__MACOSX"})  # folders that Python and macOS create
OFFERED = tuple(name for name, row in BUILT_INS.items() if row.offered)
_ARCHIVES = (".mar", ".gz")
_BYTECODE = (".pyc", ".pyo")
_LARGE = 1 << 20  # bytes: large members are written beside the weights, so that the archive's tail stays small


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
    """Return the built-in that a misspelt name probably means; none for the path of a file."""
    return None if re.search(r"[/:]|\.py$", text) else nearest(text, OFFERED)


def tree(
    folder: Path,
    *,
    hidden_files: bool = False,
    home: Path | None = None,
    prefix: str = "",
    above: tuple[Path, ...] = (),
) -> Iterator[tuple[str, Path]]:
    """Yield every file below a folder as (name relative to it, with "/"; path), sorted by name.

    Hidden folders, `__pycache__` and `__MACOSX` are left out, and hidden files by default. A symlink to a folder
    above it is left out as well. With `home`, a symlink to a folder outside of it is yielded like a file: files
    outside are not listed. `prefix` and `above` are for the folders inside.
    """
    above = (*above, folder.resolve())
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path, name, is_hidden = folder / entry.name, prefix + entry.name, entry.name.startswith(".")
        if not os.path.isdir(path):  # noqa: PTH112 - Path raises for names that are too long
            if hidden_files or not is_hidden:
                yield name, path
        elif not is_hidden and entry.name not in LEFT_BEHIND and path.resolve() not in above:
            if home is not None and leads_out(path, home):
                yield name, path
            else:
                yield from tree(path, hidden_files=hidden_files, home=home, prefix=f"{name}/", above=above)


def is_pattern(text: str) -> bool:
    """Return whether a name is a pattern with `*`, `?` or `[…]`."""
    return "*" in text or "?" in text or ("[" in text and "]" in text)


def matches(pattern: str, folder: Path) -> list[str]:
    """Return the names that a glob pattern matches, sorted; hidden names only where the pattern names the dot."""
    # Path.glob would match hidden names as well, and the original archiver does not.
    return sorted(glob.glob(pattern, root_dir=folder))  # noqa: PTH207


def leads_out(path: Path, home: Path) -> bool:
    """Return whether a path, its symlinks followed, is outside a folder."""
    return not Path(os.path.realpath(path)).is_relative_to(Path(os.path.realpath(home)))


class _FolderModules(ModuleFinder):
    """Finds modules in folders on disk."""

    def files_in(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return [entry.name for entry in entries if entry.is_file()]
        except OSError:
            return []

    def is_folder(self, folder: str) -> bool:
        return os.path.isdir(folder)  # noqa: PTH112 - a str, as ModuleFinder joins them


def local_modules(file: Path, roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the files that a Python file imports, directly or through other files, each behind its name in the archive.

    A package is yielded whole, with its data files; of a folder without `__init__.py` only the imported modules.
    `roots` are the folders in which Python looks, in this order. A file that does not parse imports nothing.
    """
    finder = _FolderModules(f"{root}/" for root in dict.fromkeys(roots))
    seen, waiting = {file}, [file]
    while waiting:
        try:
            source = parse(waiting.pop(0).read_bytes())
        except OSError:
            continue
        imports = [] if isinstance(source, Broken) else [each for each in read_imports(source) if not each.level]
        names = {each.module for each in imports}
        names |= {f"{each.module}.{each.name}" for each in imports if each.name}  # it may be a module
        for dotted in sorted(names):
            for name, path in _module_files(finder, dotted):
                if path not in seen:
                    seen.add(path)
                    yield name, path
                    waiting += [path] if path.suffix == ".py" else []


def _module_files(finder: ModuleFinder, dotted: str) -> Iterator[tuple[str, Path]]:
    """Yield the local files that a module consists of."""
    steps = dotted.split(".")
    for end in range(1, len(steps) + 1 if steps[0] not in sys.stdlib_module_names else 1):
        located = finder.locate(".".join(steps[:end]))
        if located is None:
            return
        if located.kind is Found.NAMESPACE:
            continue  # the module in it is one of the next steps
        path = Path(located.member)
        files = tree(path.parent) if located.package else [(path.name, path)]
        parents = steps[:end] if located.package else steps[: end - 1]
        yield from (("/".join([*parents, name]), each) for name, each in files if each.suffix not in _BYTECODE)
        return


class MemberCollector:
    """Members by name, each name once, and the findings about them."""

    def __init__(self, home: Path | None = None, output: Path | None = None) -> None:
        """Start with no members; folders and patterns do not include `output`, the archive to be written."""
        self.home = home  # every file must be in it, symlinks followed; None: files may be anywhere
        self._output = None if output is None else Path(os.path.realpath(output))
        self.findings: list[Finding] = []
        self.places: dict[str, str] = {}  # a member's name → its file, or the key that marpack makes it from
        self._outside: dict[str, list[Path]] = {}  # a place in marpack.yaml → its files outside `home`
        self._members: dict[str, PlannedMember] = {}  # by the name without case and Unicode form

    def report(self, code: Code, where: str | None, **values: Any) -> None:  # Any: see `Code.at`
        """Add a finding."""
        self.findings.append(code.at(where, **values))

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
            self.report(codes.MEMBER_NAME, where, reason=error.what)
            return
        key = folded(name)
        if role is not Role.META and key.partition("/")[0] == "mar-inf":
            self.report(codes.RESERVED_NAME, where, name=name)
            return
        if role is None:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
            role = Role.WEIGHTS if name.endswith(SUFFIXES) or size >= _LARGE else Role.FILE
        before = self._members.setdefault(key, PlannedMember(name, source, role))
        both = (before.source, source)
        is_same = (
            source.samefile(both[0]) if isinstance(source, Path) and isinstance(both[0], Path) else both[0] == source
        )
        if before.name == name and is_same:
            self.places.setdefault(name, str(source) if isinstance(source, Path) else where)
            return
        first, second = (str(each) if isinstance(each, Path) else "the one that marpack makes" for each in both)
        names = name if before.name == name else f"{before.name} and {name} (the same name without case)"
        self.report(codes.NAME_COLLISION, where, name=names, first=first, second=second)

    def add_tree(self, name: str, files: Iterable[tuple[str, Path]], *, folder: Path, home: Path, where: str) -> None:
        """Add the files of `tree(folder)`, below a name that may be empty.

        A symlink from `home` to a file outside of it gives a warning, unless it is an error.
        """
        try:
            found = list(files)
        except OSError as error:
            self.report(codes.UNREADABLE, where, file=error.filename, reason=describe_os_error(error))
            return
        if not found:
            self.report(codes.EMPTY_FOLDER, where, folder=folder)
        outward = [str(path) for _, path in found if leads_out(path, home)] if not leads_out(folder, home) else []
        if outward and self.home is None:
            names = ", ".join(outward[:3]) + (", …" if len(outward) > 3 else "")
            self.report(codes.SYMLINK_OUTSIDE, where, folder=home, names=names)
        for inner, path in found:
            self.add((PurePosixPath(name) / inner).as_posix(), path, where=where)

    def add_handler(self, text: str, file: Path | None, *, where: str) -> None:
        """Add the file of a handler; a built-in has none."""
        near = near_built_in(text)
        if HandlerName.parse(text).path.endswith(".ipynb"):
            self.report(codes.NOTEBOOK, where, file=text)
        elif file is not None and near and not file.exists():
            self.report(codes.MISSING_FILE_HANDLER, where, hint=f"Did you mean {near}?", file=text)
        elif file is not None:
            self.add(file.name, file, where=where, role=Role.FILE, anywhere=True)

    def add_entry(self, source: str, to: str | None, *, folder: Path, where: str) -> None:
        """Add a file, a folder or a pattern under the name `to`, or under its path in the project's folder."""
        path = folder / source
        if is_pattern(source) and not os.path.lexists(path):
            found = matches(source, folder)
            if not found:
                self.report(codes.GLOB_WITHOUT_MATCH, where, pattern=source)
            for match in found:
                if not self._is_excluded(folder / match, folder):
                    inner_to = None if to is None else PurePosixPath(to, Path(match).name).as_posix()
                    self.add_entry(match, inner_to, folder=folder, where=where)
            return
        if not self.check_inside(path, where=where):
            return
        name = PurePosixPath(source if to is None else to)
        if to is None and (".." in name.parts or name.is_absolute()):
            name = PurePosixPath(name.name)
        if path.is_dir():
            files = tree(path, home=self.home)
            kept = ((inner, file) for inner, file in files if not self._is_excluded(file, folder))
            self.add_tree(name.as_posix(), kept, folder=path, home=folder, where=where)
        else:
            is_folder = to is not None and (to.endswith("/") or to in {"", "."})
            self.add((name / path.name if is_folder else name).as_posix(), path, where=where)

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

    def source_of(self, name: str) -> Path | bytes | None:
        """Return the source of the member with a name, if there is one."""
        member = self._members.get(folded(name))
        return member.source if member else None

    def members(self) -> tuple[PlannedMember, ...]:
        """Return the members, sorted by name; report files outside `home`, and names of both a file and a folder."""
        for where, paths in self._outside.items():
            reals = [(path, os.path.realpath(path)) for path in paths[:3]]
            shown = [
                str(path) if real == os.path.normpath(path.absolute()) else f"{path} (a link to {real})"
                for path, real in reals
            ]
            more = f" and {len(paths) - 3} more" if paths[3:] else ""
            files, folder = f"{', '.join(shown)}{more}", os.path.realpath(str(self.home))
            self.report(codes.OUTSIDE_PROJECT, where, folder=folder, files=files)
        members = tuple(sorted(self._members.values(), key=lambda member: member.name))
        for member in members:
            for folder in map(Path.as_posix, Path(member.name).parents[:-1]):
                if self.source_of(folder) is not None:
                    self.report(codes.NAME_COLLISION_FOLDER, None, name=folder, member=member.name)
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
            # Only a file that would work: no archive, and Python code only in place of Python code.
            unlike = {*_ARCHIVES, ".py"} - {path.suffix}
            beside = path.parent.glob("*.py" if path.suffix == ".py" else "*")
            names = [each.name for each in beside if each.suffix not in unlike and os.path.isfile(each)]  # noqa: PTH113
            near = nearest(path.name, names)
            code = codes.MISSING_FILE_LINK if path.is_symlink() else codes.MISSING_FILE
            self.report(code, where, hint=f"Did you mean {path.parent / near}?" if near else None, file=path)
        except OSError as error:
            self.report(codes.UNREADABLE, where, file=path, reason=describe_os_error(error))
        else:
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "a special file"
                self.report(codes.NOT_A_FILE, where, file=path, kind=kind)
            elif not os.access(path, os.R_OK):
                hint = f"Allow reading: chmod u+r {path}"
                self.report(codes.UNREADABLE, where, hint=hint, file=path, reason="Permission denied")
            else:
                return True
        return False
