"""An archive's members as rules read them, and where `import` finds a module among them."""

import ast
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import BinaryIO, Protocol

from msgspec import Struct

from marpack.errors import MarpackError, describe_os_error
from marpack.findings import Finding, Severity
from marpack.inspection.lint.bindings import Scope, scope_of
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.source import MAX_SOURCE, Broken, parse

MAX_SOURCES = 4 << 20  # bytes of Python looked into, all modules together

UNREADABLE = Code(
    "member-unreadable",
    "A file that the server needs cannot be read.",
    "Check the file's permissions, or build the archive again.",
)
TOO_MUCH = Code(
    "sources-too-large",
    "The packed Python files that the handler imports are larger together than the checks go into.",
    "Pack only the modules that the handler needs; the rest was not looked into.",
)
SYNTAX = Code(
    "source-syntax",
    "A Python file that the server imports cannot be parsed; the worker dies.",
    "Mend the line; `python -m py_compile FILE` shows the same error.",
)
NOT_LOOKED_INTO = Code(
    "source-unchecked",
    "A Python file is too large, too deeply nested or too oddly encoded to be looked into.",
    "Check it by running it: marpack run.",
)


GAVE_UP = Code(
    "check-gave-up",
    "A file is nested so deeply, or branches so often, that a check could not be finished.",
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


class MemberView(Protocol):
    """Members by name: an archive is one, and so is what shows those that lie only in a plan."""

    @property
    def entries(self) -> Iterable[str]:
        """Every member's name, with "/", the manifest's folder included or not."""

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
    """The members of one archive: their bytes, and the modules that `import` finds among them."""

    def __init__(self, names: Iterable[str], read: Callable[[str], BinaryIO], roots: tuple[str, ...] = ("",)) -> None:
        self.names = frozenset(names)
        self.findings: list[Finding] = []
        self.open = read
        self._roots = roots  # the server's search path inside the archive: folders, "" or ending in "/"
        self._modules: dict[str, Module | Broken | None] = {}
        self._room = MAX_SOURCES
        self._folders: dict[str, set[str]] = {}
        self._compiled: dict[str, str] = {}  # name without suffix → member
        for name in sorted(self.names):
            self._add(name)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def _add(self, name: str) -> None:
        folder, slash, base = name.rpartition("/")
        self._folders.setdefault(folder + slash, set()).add(base)
        stem, _, tag = base.partition(".")
        if tag in {"so", "abi3.so"} or (tag.endswith(".so") and tag.startswith("cpython-")):
            self._compiled.setdefault(folder + slash + stem, name)
        while folder:
            folder = folder.rpartition("/")[0]
            self._folders.setdefault(f"{folder}/" if folder else "", set())

    def files_in(self, folder: str) -> set[str]:
        """Return the base names of the files in a folder ("" or ending in "/")."""
        return self._folders.get(folder, set())

    def is_folder(self, folder: str) -> bool:
        """Say whether members lie under this name, which ends in "/"."""
        return folder in self._folders

    def locate(self, dotted: str, roots: Iterable[str] | None = None) -> Located | None:
        """Find a module by its dotted name in the first folder of the search path, or of `roots`, that has it."""
        namespace = None
        for root in self._roots if roots is None else roots:
            found = self._locate(dotted, root)
            if found and found.kind is not Found.NAMESPACE:
                return found
            namespace = namespace or found
        return namespace

    def _locate(self, dotted: str, folder: str) -> Located | None:
        *packages, last = dotted.split(".")
        for name in packages:
            found = self._in_folder(folder, name, name)
            if found is None or not (found.package or found.kind is Found.NAMESPACE):
                return None  # a plain module has no modules inside
            folder = f"{folder}{name}/"
        return self._in_folder(folder, last, dotted)

    def _in_folder(self, folder: str, name: str, dotted: str) -> Located | None:
        inner = f"{folder}{name}/"
        for stem, package in ((f"{inner}__init__", True), (f"{folder}{name}", False)):
            for kind, member in (
                (Found.EXTENSION, self._compiled.get(stem, "")),
                (Found.SOURCE, f"{stem}.py"),
                (Found.BYTECODE, f"{stem}.pyc"),
            ):
                if member in self.names:
                    return Located(dotted, kind, member, package)
        return Located(dotted, Found.NAMESPACE, inner) if self.is_folder(inner) else None

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a member's first bytes, one more than `limit` where it is larger; None, and a finding, if it fails."""
        try:
            with self.open(name) as file:
                return file.read(limit + 1)
        except (OSError, KeyError, MarpackError) as error:
            self.unreadable(name, error)
            return None

    def unreadable(self, name: str, error: Exception) -> None:
        """Note why a member cannot be read."""
        reason = error.what if isinstance(error, MarpackError) else describe_os_error(error)
        self.findings.append(UNREADABLE.error(f"it cannot be read: {reason}", name))

    def module(self, place: Located) -> Module | Broken | None:
        """Return a packed Python file's tree and names; None if it cannot be read, or there is no room left for it."""
        if place.member not in self._modules:
            self._modules[place.member] = self._parse(place)
        return self._modules[place.member]

    def _parse(self, place: Located) -> Module | Broken | None:
        data = self.read(place.member, MAX_SOURCE) if self._room > 0 else None
        if data is None:
            return None
        self._room -= len(data)
        if self._room <= 0:
            self.findings.append(TOO_MUCH.note("not every packed module was looked into", place.member))
        tree = parse(data)
        if isinstance(tree, Broken):
            return tree
        try:
            return Module(place.dotted, place.member, tree, scope_of(tree), place.package)
        except RecursionError:
            return Broken("it is nested too deeply, and was not looked into", certain=False)


def broken(member: str, trouble: Broken, severity: Severity = Severity.ERROR) -> Finding:
    """Return the finding for a Python file without a syntax tree."""
    where = f"{member}:{trouble.line}" if trouble.line else member
    if not trouble.certain:
        return NOT_LOOKED_INTO.note(trouble.reason, where)
    return SYNTAX.weigh(severity, f"it is no valid Python: {trouble.reason}", where)
