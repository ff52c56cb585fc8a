"""An archive's members as rules read them, and where `import` finds a module among them."""

import ast
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import BinaryIO, Protocol

from msgspec import Struct

from marpack.errors import MarpackError
from marpack.findings import Finding, Severity
from marpack.inspection.lint.bindings import Scope, scope_of
from marpack.inspection.lint.codes import Code
from marpack.inspection.syntax import MAX_SOURCE, Broken, parse

_INIT = "__init__"
MAX_SOURCES = 4 << 20  # bytes of Python looked into, all modules together

UNREADABLE = Code(
    "Members",
    "member-unreadable",
    "A file that the server needs cannot be read.",
    "Check the file's permissions, or build the archive again.",
)
TOO_MUCH = Code(
    "Members",
    "sources-too-large",
    "The packed Python files that the handler imports are larger together than the checks go into.",
    "Pack only the modules that the handler needs; the rest was not looked into.",
)
SYNTAX = Code(
    "Members",
    "source-syntax",
    "A Python file that the server imports cannot be parsed; the worker dies.",
    "Mend the line; `python -m py_compile FILE` shows the same error.",
)
NOT_LOOKED_INTO = Code(
    "Members",
    "source-unchecked",
    "A Python file is too large, too deeply nested or too oddly encoded to be looked into.",
    "Check it by running it: marpack run.",
)


class Found(StrEnum):
    """What an import finds, in the order in which Python looks for it in a folder."""

    EXTENSION = "extension"  # compiled: .so
    SOURCE = "source"  # .py
    BYTECODE = "bytecode"  # .pyc
    NAMESPACE = "namespace"  # a folder without __init__.py


class Located(Struct, frozen=True):
    """A module's place among the members."""

    dotted: str
    kind: Found
    member: str  # the folder's name with "/", for a namespace
    package: bool = False


class ModuleIndex:
    """The names of an archive's members as folders and files."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self._folders: dict[str, set[str]] = {}
        self._compiled: dict[str, str] = {}  # name without suffix → member
        for name in sorted(self.names):
            self._add(name)

    def files_in(self, folder: str) -> set[str]:
        """Return the base names of the files in a folder ("" or ending in "/")."""
        return self._folders.get(folder, set())

    def is_folder(self, folder: str) -> bool:
        """Say whether members lie under this name, which ends in "/"."""
        return folder in self._folders

    def locate(self, dotted: str, roots: Iterable[str] = ("",)) -> Located | None:
        """Find a module by its dotted name in the first root that has it.

        Args:
            dotted: As in an import statement.
            roots: Folders, "" or ending in "/", in the order of the search path.
        """
        namespace = None
        for root in roots:
            found = self._locate(dotted, root)
            if found and found.kind is not Found.NAMESPACE:
                return found
            namespace = namespace or found
        return namespace

    def _locate(self, dotted: str, root: str) -> Located | None:
        folder = root
        found: Located | None = None
        walked = ""
        for part in dotted.split("."):
            if found and not (found.package or found.kind is Found.NAMESPACE):
                return None  # a plain module has no modules inside
            walked = f"{walked}.{part}" if walked else part
            found = self._in_folder(folder, part, walked)
            if found is None:
                return None
            folder = f"{folder}{part}/"
        return found

    def _in_folder(self, folder: str, name: str, dotted: str) -> Located | None:
        inner = f"{folder}{name}/"
        for place, stem, package in ((inner, _INIT, True), (folder, name, False)):
            found = self._file(place, stem)
            if found:
                return Located(dotted, *found, package)
        return Located(dotted, Found.NAMESPACE, inner) if self.is_folder(inner) else None

    def _file(self, folder: str, stem: str) -> tuple[Found, str] | None:
        stem = folder + stem
        if stem in self._compiled:
            return Found.EXTENSION, self._compiled[stem]
        if f"{stem}.py" in self.names:
            return Found.SOURCE, f"{stem}.py"
        return (Found.BYTECODE, f"{stem}.pyc") if f"{stem}.pyc" in self.names else None

    def _add(self, name: str) -> None:
        folder, slash, base = name.rpartition("/")
        self._folders.setdefault(folder + slash, set()).add(base)
        stem, _, tag = base.partition(".")
        if tag in {"so", "abi3.so"} or (tag.endswith(".so") and tag.startswith("cpython-")):
            self._compiled.setdefault(folder + slash + stem, name)
        while folder:
            folder = folder.rpartition("/")[0]
            self._folders.setdefault(f"{folder}/" if folder else "", set())


class MemberView(Protocol):
    """Members by name, whether they lie in an archive already or only in a plan."""

    def names(self) -> Iterable[str]:
        """Return every member's name, with "/", the manifest's folder included or not."""

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading, seekable; the caller closes it.

        Raises KeyError for a name that is no member, OSError or ArchiveError for one that cannot be read.
        """


class Module(Struct, frozen=True):
    """A packed Python file, parsed."""

    dotted: str  # the name it is imported by
    member: str
    tree: ast.Module
    scope: Scope
    package: bool = False

    def at(self, node: ast.AST | int) -> str:
        """Return where a node stands: member:line."""
        line = node if isinstance(node, int) else getattr(node, "lineno", 0)
        return f"{self.member}:{line}" if line else self.member


class Files:
    """The members of one archive."""

    def __init__(self, names: Iterable[str], read: Callable[[str], BinaryIO], roots: tuple[str, ...] = ("",)) -> None:
        self.members = ModuleIndex(names)
        self.roots = roots  # the server's search path inside the archive
        self.findings: list[Finding] = []
        self._open = read
        self._modules: dict[str, Module | Broken | None] = {}
        self._room = MAX_SOURCES

    def __contains__(self, name: str) -> bool:
        return name in self.members.names

    def open(self, name: str) -> BinaryIO | None:
        """Open a member; None, and a finding, if it cannot be read."""
        try:
            return self._open(name)
        except (OSError, KeyError, MarpackError) as error:
            self._unreadable(name, error)
            return None

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a member's first bytes, one more than `limit` where it is larger; None if it cannot be read."""
        file = self.open(name)
        if file is None:
            return None
        try:
            with file:
                return file.read(limit + 1)
        except (OSError, MarpackError) as error:
            self._unreadable(name, error)
            return None

    def module(self, dotted: str, member: str, *, package: bool = False) -> Module | Broken | None:
        """Return a packed Python file's tree and names; None if it cannot be read, or there is no room left for it."""
        if member not in self._modules:
            self._modules[member] = self._parse(dotted, member, package)
        return self._modules[member]

    def _parse(self, dotted: str, member: str, package: bool) -> Module | Broken | None:
        data = self.read(member, MAX_SOURCE) if self._room > 0 else None
        if data is None:
            return None
        self._room -= len(data)
        if self._room <= 0:
            self.findings.append(TOO_MUCH.note("not every packed module was looked into", member))
        tree = parse(data)
        if isinstance(tree, Broken):
            return tree
        try:
            return Module(dotted, member, tree, scope_of(tree), package)
        except RecursionError:
            return Broken("it is nested too deeply, and was not looked into", certain=False)

    def _unreadable(self, name: str, error: Exception) -> None:
        reason = error.what if isinstance(error, MarpackError) else type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        self.findings.append(UNREADABLE.error(f"it cannot be read: {reason}", name))


def broken(member: str, trouble: Broken, severity: Severity = Severity.ERROR) -> Finding:
    """Return the finding for a Python file without a syntax tree."""
    where = f"{member}:{trouble.line}" if trouble.line else member
    if not trouble.certain:
        return NOT_LOOKED_INTO.note(trouble.reason, where)
    return SYNTAX.weigh(severity, f"it is no valid Python: {trouble.reason}", where)
