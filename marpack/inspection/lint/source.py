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
from msgspec.structs import replace

from marpack.errors import MarpackError, describe_os_error, first_line
from marpack.finding_codes import MEMBER_UNREADABLE, SOURCE_SYNTAX, SOURCE_UNCHECKED, SOURCES_TOO_LARGE
from marpack.findings import Finding, Severity

MAX_SOURCE = 256 << 10  # bytes; parsing these takes up to half a second and 150 MB
_MAX_SOURCES = 4 << 20  # bytes of all modules together
_MAX_PATH = 256  # characters
_MAX_STEPS = 30  # imports of imports of a name
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


def walk(tree: ast.AST, *, inner: bool = True) -> list[ast.AST]:
    """Return a tree's nodes in no particular order, without contexts (Load, Store) and operators.

    Without `inner`, the nodes of functions and classes inside the tree are left out.
    """
    found, waiting = [tree], _children(tree)
    while waiting:
        node = waiting.pop()
        found.append(node)
        if inner or not isinstance(node, Function | ast.ClassDef):
            waiting += _children(node)
    return found


def _children(node: ast.AST) -> list[ast.AST]:
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
    """The statements that bind a name."""

    line: int  # of the first
    values: list[ast.AST | Imported | None]  # a definition, an import or an expression; None: unknown
    sure: bool  # they all run when the module is imported

    @property
    def only(self) -> ast.AST | Imported | None:
        """Return the name's value; None unless the source shows it plainly."""
        return self.values[0] if self.sure and len(self.values) == 1 else None


class Scope(Struct, frozen=True, kw_only=True):
    """The names that the body of a module or a class binds."""

    names: dict[str, Binding]
    dynamic: bool = False  # there may be others, by `import *`, globals() or __getattr__


def evaluate_condition(test: ast.expr) -> bool | None:
    """Return a condition's value when a server imports the module; None if the source does not show it."""
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, negated = test.operand, not negated
    match test:
        case ast.Constant(value=value):
            return bool(value) is not negated
        case (
            ast.Name(id="TYPE_CHECKING")
            | ast.Attribute(attr="TYPE_CHECKING")
            | ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")])
        ):
            return negated
    return None


class _Statement(Struct, frozen=True):
    """A statement that may run when its module is imported."""

    node: ast.stmt
    sure: bool = True  # it runs
    handlers: tuple[ast.ExceptHandler, ...] = ()  # of the errors that it raises

    def inner(self) -> Iterator["_Statement"]:
        """Yield the statements inside it."""
        node = self.node
        if isinstance(node, ast.If) and (outcome := evaluate_condition(node.test)) is not None:
            yield from (replace(self, node=item) for item in (node.body if outcome else node.orelse))
            return
        handlers = getattr(node, "handlers", ())
        for part in (node, *handlers, *getattr(node, "cases", ())):
            for field in ("body", "orelse", "finalbody"):
                is_tried = isinstance(part, ast.Try | ast.TryStar) and field == "body"
                sure = self.sure and (is_tried or field == "finalbody" or isinstance(node, ast.ClassDef))
                around = (*self.handlers, *handlers) if is_tried else self.handlers
                yield from (_Statement(item, sure, around) for item in getattr(part, field, ()))


def _statements(body: list[ast.stmt], *, inside: bool) -> Iterator[_Statement]:
    """Yield the statements that may run, in their order; with `inside`, also those of functions and classes."""
    waiting = [_Statement(node) for node in reversed(body)]
    while waiting:
        statement = waiting.pop()
        yield statement
        if inside or not isinstance(statement.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += reversed(list(statement.inner()))


def read_imports(tree: ast.Module) -> list[Imported]:
    """Return a module's imports in the order of their lines, without those that never run."""
    found: list[Imported] = []
    for statement in _statements(tree.body, inside=True):
        node, sure, caught = statement.node, statement.sure, any(map(_catches_import_error, statement.handlers))
        if isinstance(node, ast.Import):
            found += [Imported(alias.name, None, 0, node.lineno, sure, caught) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module, level = node.module or "", node.level
            found += [Imported(module, alias.name, level, node.lineno, sure, caught) for alias in node.names]
    return sorted(found, key=lambda imported: imported.line)


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    """Return whether the module continues after a failed import."""
    if any(isinstance(item, ast.Raise) for item in handler.body):
        return False
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(item is None or last_name(item) in _IMPORT_ERRORS for item in types)


def read_scope(tree: ast.Module | ast.ClassDef) -> Scope:
    """Return the names that a body binds."""
    names: dict[str, Binding] = {}
    for statement in _statements(tree.body, inside=False):
        is_plain = statement.sure and not statement.handlers and not isinstance(statement.node, ast.For | ast.AsyncFor)
        for name, value in _bindings(statement.node):
            binding = names.setdefault(name, Binding(statement.node.lineno, [], sure=True))
            binding.values.append(value)
            binding.sure &= is_plain
    is_dynamic = not names.keys().isdisjoint(("*", "__getattr__"))
    for node in walk(tree) if isinstance(tree, ast.Module) else ():
        match node:
            case ast.Global():  # a function may bind them
                for name in node.names:
                    names.setdefault(name, Binding(node.lineno, [], sure=False)).values.append(None)
            case ast.Name(id="globals" | "exec") | ast.Attribute(attr="modules", value=ast.Name(id="sys")):
                is_dynamic = True
    return Scope(names=names, dynamic=is_dynamic)


def _bindings(statement: ast.stmt) -> Iterator[tuple[str, ast.AST | Imported | None]]:
    """Yield the names that one statement binds or deletes, each with its value."""
    match statement:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield statement.name, statement
        case ast.Import():
            for alias in statement.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, Imported(alias.name if alias.asname else top, line=statement.lineno)
        case ast.ImportFrom():
            for alias in statement.names:
                imported = Imported(statement.module or "", alias.name, statement.level, statement.lineno)
                yield alias.asname or alias.name, imported
        case _:
            targets = set(map(id, getattr(statement, "targets", [getattr(statement, "target", None)])))
            value = getattr(statement, "value", None)  # of `name = value`
            for part in _children(statement):
                for node in walk(part) if isinstance(part, ast.expr | ast.withitem) else ():
                    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                        yield node.id, value if id(node) in targets else None


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
                is_tagged = tag.startswith("cpython-") and tag.endswith(".so")
                kind = Found.EXTENSION if is_tagged else _KINDS.get(tag)
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

    def lacks(self, name: str) -> bool:
        """Return whether the module certainly does not have a name."""
        return name not in self.scope.names and not self.scope.dynamic


class Definition(Struct, frozen=True):
    """The place where a name is defined, and its value there: an import if no packed module defines it."""

    module: Module
    value: ast.AST | Imported | None  # None: the source does not show it plainly
    dotted: str = ""  # of an import: the absolute name


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
        name = place.member
        if name not in self._modules:
            self._modules[name] = None
            data = self.read(name, MAX_SOURCE) if self._bytes_left > 0 else None
            if data is not None:
                self._bytes_left -= len(data)
                self.findings += [SOURCES_TOO_LARGE.at(name)] if self._bytes_left <= 0 else []
                tree = parse(data)
                if isinstance(tree, ast.Module):
                    self._modules[name] = Module(place.dotted, name, tree, read_scope(tree), place.package)
                else:
                    self._modules[name] = tree
        return self._modules[name]

    def packed(self, dotted: str | None) -> Module | None:
        """Return a packed module by its dotted name, parsed."""
        located = self.locate(dotted) if dotted else None
        module = self.module(located) if located and located.kind is Found.SOURCE else None
        return module if isinstance(module, Module) else None

    def definition(self, module: Module, dotted: str) -> Definition:
        """Follow the assignments and imports of a name, or of `module.name`, to its definition."""
        for _ in range(_MAX_STEPS):
            name, _, rest = dotted.partition(".")
            binding = module.scope.names.get(name)
            value = binding.only if binding else None
            if isinstance(value, ast.Name):
                dotted = f"{value.id}.{rest}" if rest else value.id
                continue
            if not isinstance(value, Imported):
                return Definition(module, None if rest else value)
            dotted = ".".join(filter(None, (module.absolute(value), value.name, rest)))
            source, _, inner = dotted.rpartition(".")
            packed = self.packed(source)
            if packed is None:
                return Definition(module, value, dotted)
            module, dotted = packed, inner
        return Definition(module, None)


def broken_source(member: str, broken: Broken, severity: Severity = Severity.ERROR) -> Finding:
    """Return the finding for a Python file without a syntax tree."""
    where = f"{member}:{broken.line}" if broken.line else member
    if not broken.certain:
        return SOURCE_UNCHECKED.at(where, reason=broken.reason)
    return SOURCE_SYNTAX.at(where, severity=severity, reason=broken.reason)
