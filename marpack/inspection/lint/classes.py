"""Classes as the server will see them: their bases, their order, and where an attribute comes from."""

import ast
import builtins
from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from marpack.findings import Finding
from marpack.inspection.lint.bindings import Binding, Expression, Imported, Own, Scope, Value, scope_of
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files, Module
from marpack.inspection.lint.source import dotted_name, refusal
from marpack.torchserve import server_modules as ts

ARGUMENTS = Code(
    "class-needs-arguments",
    "The server constructs the handler's class, and the model's, without arguments; this one cannot do without.",
    "Give every parameter of `__init__` a default, or read it from the model config in `initialize`.",
)

# Modules whose classes have none of a handler's methods.
_PLAIN_MODULES = ("abc", "typing", "typing_extensions", "enum", "torch.nn", "dataclasses")
# Classes that are constructed without arguments.
_BARE = frozenset({"object", "abc.ABC", "typing.Generic", "typing.Protocol", "torch.nn.Module"})
_DEPTH = 30  # imports of imports of a name
_MAX_CLASSES = 500  # in one resolution order; beyond, merging takes longer than anyone waits


class PlainClass(Struct, frozen=True):
    """A class of Python's or torch's that has none of a handler's methods."""

    dotted: str

    @property
    def bare(self) -> bool:
        """Whether it is constructed without arguments."""
        return self.dotted.replace("torch.nn.modules.module", "torch.nn") in _BARE


class ServerClass(Struct, frozen=True):
    """One of the server's own handler classes."""

    dotted: str


class UnknownClass(Struct, frozen=True):
    """A class that is not packed, and whose attributes nobody here knows."""

    text: str


class LocalClass:
    """A class that a packed module defines."""

    def __init__(self, module: Module, node: ast.ClassDef) -> None:
        self.module = module
        self.node = node

    @cached_property
    def scope(self) -> Scope:
        """The names that the class's body binds."""
        return scope_of(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalClass) and other.node is self.node

    def __hash__(self) -> int:
        return id(self.node)


Class = LocalClass | ServerClass | PlainClass | UnknownClass


class Attribute(Struct, frozen=True):
    """Where a class gets an attribute from."""

    owner: Class
    binding: Binding | None = None  # the owner's own, if it is packed

    @property
    def function(self) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the definition, if the attribute is one function for certain."""
        only = self.binding.only if self.binding else None
        node = only.node if isinstance(only, Own) else None
        return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


class Library:
    """Resolves names across packed modules and the server's."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._orders: dict[Class, list[Class]] = {}

    def order(self, start: Class) -> list[Class]:
        """Return the method resolution order as far as it is known; unknown bases stand in it as themselves."""
        if start not in self._orders:
            self._orders[start] = [UnknownClass("itself")]  # what a class that inherits from itself meets
            self._orders[start] = [start, *self._ancestors(start)]
        return self._orders[start]

    def _ancestors(self, start: Class) -> list[Class]:
        if isinstance(start, ServerClass):
            bases: list[Class] = [ServerClass(base) for base in ts.bases_of(start.dotted)]
        elif isinstance(start, LocalClass) and len(start.node.bases) <= _MAX_CLASSES:
            bases = [self.class_of(start.module, base) for base in start.node.bases] or [PlainClass("object")]
        else:
            bases = []
        rows = [self.order(base) for base in bases]
        if sum(map(len, rows)) > _MAX_CLASSES:
            return [UnknownClass("too many bases")]
        return _merge([*rows, bases])

    def find(self, start: Class, name: str) -> Attribute | None:
        """Return where a class gets an attribute from; the owner is Unknown where nobody can tell; None if nowhere."""
        return next(self.definitions(start, name), None)

    def definitions(self, start: Class, name: str) -> Iterator[Attribute]:
        """Yield every class in resolution order that defines an attribute, or may define it."""
        for owner in self.order(start):
            if isinstance(owner, UnknownClass) or (
                isinstance(owner, ServerClass) and name in ts.methods_of(owner.dotted)
            ):
                yield Attribute(owner)
            elif isinstance(owner, LocalClass):
                if owner.scope.dynamic:
                    yield Attribute(UnknownClass(owner.node.name))
                if name in owner.scope.names:
                    yield Attribute(owner, owner.scope.names[name])

    def class_of(self, module: Module, expression: ast.expr) -> Class:
        """Return the class that an expression in a module stands for."""
        node = expression.value if isinstance(expression, ast.Subscript) else expression  # Generic[T]
        dotted = dotted_name(node)
        if dotted is None:
            return UnknownClass(ast.unparse(expression)[:60])
        name, _, rest = dotted.partition(".")
        binding = module.scope.names.get(name)
        if binding is None:
            return self._unbound(module, name, rest)
        only = binding.only
        if rest and isinstance(only, Imported):
            return self._attribute(module, only, rest)
        return self._class(module, only, dotted) if not rest else UnknownClass(dotted)

    def _class(self, module: Module, value: Value | None, text: str, depth: int = 0) -> Class:
        if isinstance(value, Own) and isinstance(value.node, ast.ClassDef):
            return LocalClass(module, value.node)
        if isinstance(value, Imported) and value.name and depth < _DEPTH:
            return self._imported(module, value, depth)
        if isinstance(value, Expression) and isinstance(value.node, ast.Attribute):
            return self.class_of(module, value.node)
        return UnknownClass(text)

    def _imported(self, module: Module, value: Imported, depth: int) -> Class:
        source = absolute(module, value)
        if source is None or value.name is None:
            return UnknownClass(value.name or value.module)
        packed = self.packed(source)
        if packed is None:
            return _outside(source, value.name)
        binding = packed.scope.names.get(value.name)
        if binding is None:
            return self._from_stars(packed, value.name, depth + 1)
        return self._class(packed, binding.only, value.name, depth + 1)

    def _from_stars(self, module: Module, name: str, depth: int) -> Class:
        for star in module.scope.stars:
            source = absolute(module, star)
            packed = self.packed(source) if source and depth < _DEPTH else None
            if packed and name in packed.scope.names:
                return self._class(packed, packed.scope.names[name].only, name, depth + 1)
            if source and packed is None and ts.has_module(source) and name in ts.names_of(source):
                return _outside(source, name)
        return UnknownClass(name)

    def _unbound(self, module: Module, name: str, rest: str) -> Class:
        if module.scope.stars:
            return self._from_stars(module, name, 0) if not rest else UnknownClass(f"{name}.{rest}")
        if not rest and isinstance(getattr(builtins, name, None), type):
            return PlainClass(name)
        return UnknownClass(name)

    def _attribute(self, module: Module, value: Imported, rest: str) -> Class:
        source = absolute(module, value)
        path, _, name = ".".join(filter(None, (source, value.name, rest))).rpartition(".")
        packed = self.packed(path)
        if packed is None:
            return _outside(path, name)
        binding = packed.scope.names.get(name)
        return self._class(packed, binding.only if binding else None, name)

    def packed(self, dotted: str) -> Module | None:
        """Return a packed module by its dotted name."""
        located = self._files.locate(dotted)
        if located is None or not located.member.endswith(".py"):
            return None
        module = self._files.module(located)
        return module if isinstance(module, Module) else None


def absolute(module: Module, value: Imported) -> str | None:
    """Return the absolute name of the module that an import names; None if it leads out of the top package."""
    if not value.level:
        return value.module
    parts = module.dotted.split(".")
    keep = len(parts) - value.level + (1 if module.package else 0)
    if keep < 1:
        return None
    return ".".join([*parts[:keep], *filter(None, [value.module])])


def _outside(module: str, name: str) -> Class:
    top = module.partition(".")[0]
    if top == "ts":
        dotted = ts.handler_class(name)
        return ServerClass(dotted) if dotted else UnknownClass(f"{module}.{name}")
    if any(module == plain or module.startswith(f"{plain}.") for plain in _PLAIN_MODULES):
        return PlainClass(f"{module}.{name}")
    return UnknownClass(f"{module}.{name}")


def _merge(rows: list[list[Class]]) -> list[Class]:
    """Merge orders as Python does (C3); where it could not, go on with the first."""
    merged: list[Class] = []
    rows = [row for row in rows if row]
    while rows:
        heads = (row[0] for row in rows if not any(row[0] in other[1:] for other in rows))
        head = next(heads, rows[0][0])
        merged.append(head)
        rows = [rest for row in rows if (rest := [item for item in row if item != head])]
    return merged


def check_constructing(library: Library, cls: LocalClass, role: str) -> Iterator[Finding]:
    """Yield why a class, whose role is "handler" or "model", cannot be constructed without arguments."""
    if cls.node.keywords:
        return  # a metaclass may do what it likes
    for name in ("__new__", "__init__"):
        found = library.find(cls, name)
        if found is None or found.function is None or not isinstance(found.owner, LocalClass):
            continue
        why = refusal(found.function, 0, method=True)
        if why:
            message = f"the {role} class {cls.node.name} is made without arguments, but {name} {why}"
            yield ARGUMENTS.error(message, found.owner.module.at(found.function))
