"""An archive's members as rules read them: bounded, each once, and with every trouble turned into a finding."""

import ast
from typing import BinaryIO

from msgspec import Struct

from marpack.errors import LimitExceededError, MarpackError
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.scope import Scope, scope_of
from marpack.inspection.lint.search import Members
from marpack.inspection.lint.source import MAX_SOURCE, Broken, parse
from marpack.inspection.lint.view import MemberView

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

    def __init__(self, view: MemberView, roots: tuple[str, ...] = ("",)) -> None:
        self.members = Members(view.names())
        self.roots = roots  # the server's search path inside the archive
        self.findings: list[Finding] = []
        self._view = view
        self._modules: dict[str, Module | Broken | None] = {}
        self._room = MAX_SOURCES

    def __contains__(self, name: str) -> bool:
        return name in self.members.names

    def open(self, name: str) -> BinaryIO | None:
        """Open a member; None, and a finding, if it cannot be read."""
        try:
            return self._view.open(name)
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
        except (RecursionError, LimitExceededError):
            return Broken("it is nested too deeply, and was not looked into", certain=False)

    def _unreadable(self, name: str, error: Exception) -> None:
        reason = error.what if isinstance(error, MarpackError) else type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        self.findings.append(UNREADABLE.error(f"it cannot be read: {reason}", name))
