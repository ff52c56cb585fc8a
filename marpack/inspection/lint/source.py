"""Packed Python sources: syntax trees, the names of a top level, imports, and the modules that `import` finds."""

import ast
import codecs
import io
import re
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cache
from typing import BinaryIO, Protocol

from msgspec import Struct

from marpack.errors import MarpackError, describe_os_error, first_line
from marpack.finding_codes import MEMBER_UNREADABLE, SOURCE_SYNTAX, SOURCE_UNCHECKED, SOURCES_TOO_LARGE
from marpack.findings import Finding, Severity

MAX_SOURCE = 256 << 10  # bytes; parsing these takes up to half a second and 150 MB
_MAX_SOURCES = 4 << 20  # bytes of all modules together
_MAX_PATH = 256  # characters
# The parser joins dotted names piece by piece, so that a long one costs memory by its square.
_LONG_NAME = re.compile(rb"(?<![\w\x80-\xff])(?:[\w\x80-\xff]++(?:\s|\\\r?\n)*+\.(?:\s|\\\r?\n)*+){300}")
# Codecs that are slow by design, or that no editor writes.
_ODD_CODECS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf-7", "undefined", "mbcs"})
# Fields that contain names, numbers, contexts and operators, but no nodes to walk.
_LEAVES = frozenset({"arg", "attr", "ctx", "id", "level", "module", "op", "ops", "type_comment"})
_IMPORT_ERRORS = frozenset(
    {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError", "RuntimeError"}
)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


# Syntax trees


class Broken(Struct, frozen=True):
    """Why a file has no syntax tree."""

    reason: str
    line: int | None = None
    certain: bool = True  # the server cannot import it either


def parse(data: bytes) -> ast.Module | Broken:
    """Parse a file as Python imports it: with its byte-order mark and its coding line (PEP 263)."""
    if len(data) > MAX_SOURCE:
        return Broken(f"it is larger than {MAX_SOURCE >> 10} KiB", certain=False)
    if _LONG_NAME.search(data):
        return Broken("it contains a dotted name of hundreds of parts", certain=False)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, ValueError) as error:
        return Broken(f"its encoding is unknown or contradicts its bytes: {first_line(error)}", 1)
    if codecs.lookup(encoding).name in _ODD_CODECS:
        return Broken(f"it is written in the encoding {encoding}", certain=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except SyntaxError as error:
        return Broken(error.msg, error.lineno)
    except (RecursionError, MemoryError):
        return Broken("it is nested too deeply", certain=False)
    except ValueError as error:  # null bytes, bytes that are not of its encoding
        return Broken(first_line(error))


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a tree's nodes in no particular order, without contexts (Load, Store) and operators."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)


def children(node: ast.AST) -> list[ast.AST]:
    """Return a node's direct children, as `walk` yields them."""
    found: list[ast.AST] = []
    for name in _branching_fields(node._fields):
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


@cache
def _branching_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in fields if name not in _LEAVES)


def own_nodes(node: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body without those of functions and classes inside it."""
    waiting: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]
    while waiting:
        item = waiting.pop()
        yield item
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(children(item))


def texts_in(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the string constants that may be paths, those of f-strings included."""
    for node in walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _MAX_PATH:
            yield node


def dotted_name(node: ast.expr) -> str | None:
    """Return `a.b.c` for a name or a chain of attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else None


def last_name(node: ast.expr) -> str | None:
    """Return `c` for `a.b.c` and for `a.b.c(…)`."""
    dotted = dotted_name(node.func if isinstance(node, ast.Call) else node)
    return dotted.rpartition(".")[2] if dotted else None


# The names of a top level


class Imported(Struct, frozen=True):
    """An import of a module, or of a name from a module."""

    module: str
    name: str | None = None
    level: int = 0
    line: int = 0
    sure: bool = True  # the statement runs when its module is imported
    caught: bool = False  # the module continues without it


class Binding(Struct):
    """The values that a name may have, and whether it certainly has one of them."""

    values: list[ast.AST | Imported | None]  # a definition, an import or an expression; None: unknown
    sure: bool
    line: int

    @property
    def only(self) -> ast.AST | Imported | None:
        """Return the name's one certain value."""
        return self.values[0] if self.sure and len(self.values) == 1 else None


class Scope(Struct, frozen=True, kw_only=True):
    """The names that the body of a module or a class binds."""

    names: dict[str, Binding]
    stars: tuple[Imported, ...] = ()  # `from x import *`
    dynamic: bool = False  # the code may bind further names, with globals() or __getattr__


def evaluate_condition(test: ast.expr) -> bool | None:
    """Return a condition's value when a server imports the module; None if the source does not show it."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return False
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            inside = evaluate_condition(inner)
            return None if inside is None else not inside
    return None


def _branches(statement: ast.stmt) -> Iterator[tuple[list[ast.stmt], bool]]:
    """Yield the bodies inside a statement that may run, each with whether it certainly does."""
    outcome = evaluate_condition(statement.test) if isinstance(statement, ast.If) else None
    if isinstance(statement, ast.If) and outcome is not None:
        yield (statement.body if outcome else statement.orelse), True
        return
    for part in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield from ((getattr(part, field, []), False) for field in ("body", "orelse", "finalbody"))


def _statements(body: list[ast.stmt], *, sure: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield the statements that run when a module is imported, with whether they certainly run."""
    for statement in body:
        yield statement, sure
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for inner, certain in _branches(statement):
                yield from _statements(inner, sure=sure and certain)
        match statement:
            case ast.Raise() | ast.Expr(value=ast.Call(func=ast.Attribute(attr="exit") | ast.Name(id="exit" | "quit"))):
                return  # nothing after it runs


def read_scope(tree: ast.Module | ast.ClassDef) -> Scope:
    """Return the names that a body binds. Raises RecursionError for a body that is nested too deeply."""
    names: dict[str, Binding] = {}
    stars: list[Imported] = []
    for statement, sure in _statements(tree.body):
        for name, value, line in _bindings(statement):
            if name == "*" and isinstance(value, Imported):
                stars.append(value)
                continue
            if isinstance(value, ast.Name) and value.id in names and names[value.id].only is not None:
                value = names[value.id].only  # noqa: PLW2901 - another name of the same object
            if name not in names or (sure and not isinstance(statement, ast.For | ast.AsyncFor)):
                names[name] = Binding([value], sure, line)
            else:
                names[name].values.append(value)
                names[name].sure = False
        for target in statement.targets if isinstance(statement, ast.Delete) else ():
            if isinstance(target, ast.Name) and target.id in names:
                names[target.id].sure = False
                names.pop(target.id if sure else "", None)
    dynamic = isinstance(tree, ast.Module) and _binds_unseen(tree, names)
    return Scope(names=names, stars=tuple(stars), dynamic=dynamic or "__getattr__" in names)


def _binds_unseen(tree: ast.Module, names: dict[str, Binding]) -> bool:
    """Add the names that functions bind, and return whether some code may bind others."""
    dynamic = False
    for node in walk(tree):
        match node:
            case ast.Global():
                for name in node.names:
                    binding = names.setdefault(name, Binding([], sure=False, line=0))
                    binding.values.append(None)
                    binding.sure = False
            case ast.Call(func=ast.Name(id="globals" | "exec")):
                dynamic = True
            case ast.Call(func=ast.Name(id="setattr" | "vars")):  # of the module, not of an object
                dynamic |= any(isinstance(inner, ast.Name) and inner.id == "sys" for inner in walk(node))
    return dynamic


def _bindings(statement: ast.stmt) -> Iterator[tuple[str, ast.AST | Imported | None, int]]:
    """Yield the names that one statement binds, each with its value and its line."""
    match statement:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield statement.name, statement, statement.lineno
        case ast.Import():
            for alias in statement.names:
                top = alias.name.partition(".")[0]
                imported = Imported(alias.name if alias.asname else top, line=statement.lineno)
                yield alias.asname or top, imported, statement.lineno
        case ast.ImportFrom():
            for alias in statement.names:
                imported = Imported(statement.module or "", alias.name, statement.level, statement.lineno)
                yield alias.asname or alias.name, imported, statement.lineno
        case _:
            plain: dict[str, ast.expr] = {}  # `name = value`
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                plain = {target.id: statement.value for target in targets if isinstance(target, ast.Name)}
            for part in children(statement):
                for node in walk(part) if isinstance(part, ast.expr | ast.withitem) else ():
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        yield node.id, plain.get(node.id), node.lineno


def read_imports(tree: ast.Module) -> list[Imported]:
    """Return a module's imports in the order of their lines, without those that never run."""
    found: list[Imported] = []
    waiting: list[tuple[ast.stmt, bool, bool]] = [(node, True, False) for node in tree.body]
    while waiting:
        node, sure, caught = waiting.pop()
        match node:
            case ast.Import():
                found += [Imported(alias.name, None, 0, node.lineno, sure, caught) for alias in node.names]
            case ast.ImportFrom():
                module, level = node.module or "", node.level
                found += [Imported(module, alias.name, level, node.lineno, sure, caught) for alias in node.names]
            case ast.ClassDef():
                waiting += [(item, sure, caught) for item in node.body]
            case ast.Try() | ast.TryStar():
                guarded = caught or any(_catches_import_error(handler) for handler in node.handlers)
                waiting += [(item, sure, guarded) for item in node.body]
                waiting += [(item, sure, caught) for item in node.finalbody]
                unsure = (*(item for handler in node.handlers for item in handler.body), *node.orelse)
                waiting += [(item, False, caught) for item in unsure]
            case _:
                waiting += [(item, sure and certain, caught) for body, certain in _branches(node) for item in body]
    return sorted(found, key=lambda imported: imported.line)


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    """Return whether the module continues after a failed import."""
    if any(isinstance(item, ast.Raise) for item in handler.body):
        return False
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(item is None or last_name(item) in _IMPORT_ERRORS for item in types)


# Modules


class Found(StrEnum):
    """The kind of file that an import finds, in the order in which Python looks for them in a folder."""

    EXTENSION = "extension"  # compiled: .so
    SOURCE = "source"  # .py
    BYTECODE = "bytecode"  # .pyc
    NAMESPACE = "namespace"  # a folder without __init__.py


_ORDER = list(Found)
_KINDS = {"py": Found.SOURCE, "pyc": Found.BYTECODE, "so": Found.EXTENSION, "abi3.so": Found.EXTENSION}


class Located(Struct, frozen=True):
    """The file of a module."""

    dotted: str
    kind: Found
    member: str  # for a namespace, the folder's name with "/"
    package: bool = False


class ModuleFinder:
    """Finds modules in folders as Python's `import` does; a folder is "" or ends in "/"."""

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots = tuple(roots)  # the search path
        self._stems: dict[str, dict[str, tuple[Found, str]]] = {}

    def files_in(self, folder: str) -> Iterable[str]:
        """Return the base names of the files in a folder."""
        raise NotImplementedError

    def is_folder(self, folder: str) -> bool:
        """Return whether a folder exists."""
        raise NotImplementedError

    def locate(self, dotted: str, roots: Iterable[str] | None = None) -> Located | None:
        """Find a module in the first folder of the search path, or of `roots`, that has it."""
        namespace = None
        *packages, last = dotted.split(".")
        for root in self._roots if roots is None else roots:
            folder, found = root, None
            for name in packages:
                found = self._locate(folder, name, name)
                if found is None or not (found.package or found.kind is Found.NAMESPACE):
                    break  # a plain module has no modules inside
                folder = f"{folder}{name}/"
            else:
                found = self._locate(folder, last, dotted)
                if found and found.kind is not Found.NAMESPACE:
                    return found
                namespace = namespace or found
        return namespace

    def _locate(self, folder: str, name: str, dotted: str) -> Located | None:
        inner = f"{folder}{name}/"
        for place, stem, package in ((inner, "__init__", True), (folder, name, False)):
            if stem in (modules := self._modules_in(place)):
                kind, base = modules[stem]
                return Located(dotted, kind, place + base, package)
        return Located(dotted, Found.NAMESPACE, inner) if self.is_folder(inner) else None

    def _modules_in(self, folder: str) -> dict[str, tuple[Found, str]]:
        """Return the modules in a folder by name, each with the file that Python imports."""
        if folder not in self._stems:
            found = self._stems[folder] = {}
            for base in sorted(self.files_in(folder)):
                stem, _, tag = base.partition(".")
                kind = {
                    "py": Found.SOURCE,
                    "pyc": Found.BYTECODE,
                    "so": Found.EXTENSION,
                    "abi3.so": Found.EXTENSION,
                }.get(tag)
                if kind is None and tag.startswith("cpython-") and tag.endswith(".so"):
                    kind = Found.EXTENSION
                if kind and (stem not in found or _ORDER.index(kind) < _ORDER.index(found[stem][0])):
                    found[stem] = (kind, base)
        return self._stems[folder]


class MemberView(Protocol):
    """Members by name: an archive, or the members of a plan."""

    @property
    def entries(self) -> Iterable[str]:
        """The name of every member, with "/"."""

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading, seekable; the caller closes it.

        Raises KeyError for an unknown name, OSError or ArchiveError for a member that cannot be read.
        """


class Module(Struct, frozen=True):
    """A packed Python file, parsed."""

    dotted: str  # the name it is imported by
    member: str
    tree: ast.Module
    scope: Scope
    package: bool = False

    def at(self, node: ast.AST | int) -> str:
        """Return a node's place as member:line."""
        line = node if isinstance(node, int) else getattr(node, "lineno", 0)
        return f"{self.member}:{line}" if line else self.member

    def absolute(self, imported: Imported) -> str | None:
        """Return the absolute name of an imported module; None if it is above the top package."""
        if not imported.level:
            return imported.module
        parts = self.dotted.split(".")
        keep = len(parts) - imported.level + (1 if self.package else 0)
        return ".".join([*parts[:keep], *filter(None, [imported.module])]) if keep > 0 else None


class Files(ModuleFinder):
    """The members of one archive, and the modules among them."""

    def __init__(self, names: Iterable[str], read: Callable[[str], BinaryIO], roots: tuple[str, ...] = ("",)) -> None:
        """Take the members' names, a function that opens one, and the server's search path in the archive."""
        super().__init__(roots)
        self.names = frozenset(names)
        self.open = read
        self.findings: list[Finding] = []
        self._modules: dict[str, Module | Broken | None] = {}
        self._bytes_left = _MAX_SOURCES
        self._folders: dict[str, set[str]] = {"": set()}
        for name in self.names:
            folder, slash, base = name.rpartition("/")
            self._folders.setdefault(folder + slash, set()).add(base)
            while folder:
                folder = folder.rpartition("/")[0]
                self._folders.setdefault(f"{folder}/" if folder else "", set())

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def files_in(self, folder: str) -> set[str]:
        """Return the base names of the files in a folder."""
        return self._folders.get(folder, set())

    def is_folder(self, folder: str) -> bool:
        """Return whether the archive has members in a folder."""
        return folder in self._folders

    def read(self, name: str, limit: int) -> bytes | None:
        """Return up to `limit` + 1 bytes of a member; None, and a finding, if it cannot be read."""
        try:
            with self.open(name) as file:
                return file.read(limit + 1)
        except (OSError, KeyError, MarpackError) as error:
            self.report_unreadable(name, error)
            return None

    def report_unreadable(self, name: str, error: Exception) -> None:
        """Add a finding for a member that cannot be read."""
        reason = error.what if isinstance(error, MarpackError) else describe_os_error(error)
        self.findings.append(MEMBER_UNREADABLE.at(name, reason=reason))

    def module(self, place: Located) -> Module | Broken | None:
        """Return a packed Python file, parsed; None if it cannot be read, or if too many were read before it."""
        if place.member not in self._modules:
            self._modules[place.member] = self._parse(place)
        return self._modules[place.member]

    def _parse(self, place: Located) -> Module | Broken | None:
        data = self.read(place.member, MAX_SOURCE) if self._bytes_left > 0 else None
        if data is None:
            return None
        self._bytes_left -= len(data)
        if self._bytes_left <= 0:
            self.findings.append(SOURCES_TOO_LARGE.at(place.member))
        tree = parse(data)
        if isinstance(tree, Broken):
            return tree
        try:
            return Module(place.dotted, place.member, tree, read_scope(tree), place.package)
        except RecursionError:
            return Broken("it is nested too deeply", certain=False)

    def packed(self, dotted: str) -> Module | None:
        """Return a packed module by its dotted name, parsed."""
        located = self.locate(dotted)
        if located is None or located.kind is not Found.SOURCE:
            return None
        module = self.module(located)
        return module if isinstance(module, Module) else None


def broken_source(member: str, broken: Broken, severity: Severity = Severity.ERROR) -> Finding:
    """Return the finding for a Python file without a syntax tree."""
    where = f"{member}:{broken.line}" if broken.line else member
    if not broken.certain:
        return SOURCE_UNCHECKED.at(where, reason=broken.reason)
    return SOURCE_SYNTAX.at(where, severity=severity, reason=broken.reason)
