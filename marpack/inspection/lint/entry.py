"""The handler's entry point: the function or the one class that the server will call, or why it finds none."""

import ast
from enum import StrEnum
from itertools import islice

from msgspec import Struct

from marpack.findings import Finding
from marpack.inspection.lint.classes import Class, Library, Packed, Server, absolute
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Module
from marpack.inspection.lint.handler_file import MANIFEST, HandlerFile
from marpack.inspection.lint.own_classes import Count, count, odd_line
from marpack.inspection.lint.scope import Binding, Imported, Own, Value
from marpack.torchserve import stock as ts
from marpack.torchserve.stock import INSTALLED, is_standard

NO_ENTRY = Code(
    "Handler",
    "handler-no-entry",
    "The handler's module has neither the function nor a class of its own; imported classes do not count.",
    "Define `handle(data, context)`, or one class with `initialize` and `handle`.",
)
MANY_CLASSES = Code(
    "Handler",
    "handler-many-classes",
    "The handler's module has more than one class of its own; dataclasses, enums, exceptions and aliases count too.",
    "Move all but the handler's class into another packed module and import them: imported classes do not count.",
)
FUNCTION_MISSING = Code(
    "Handler",
    "handler-function-missing",
    "The function after the colon does not exist; the server takes the module's one class instead, without a word.",
    "Name a function of the module, or leave the colon out.",
)
NOT_CALLABLE = Code(
    "Handler",
    "handler-not-callable",
    "The module's entry point is not a function, and the server calls it as one with `None` and the context.",
    "Let the name stand for a function `handle(data, context)`.",
)
UNDECIDED = Code(
    "Handler",
    "handler-undecided",
    "Only running the module would tell what its entry point is.",
    "Define the handler's class or function at the module's top level, under no condition.",
)


class Kind(StrEnum):
    """What the server will call."""

    FUNCTION = "function"
    CLASS = "class"
    NOTHING = "nothing"  # certainly
    UNKNOWN = "unknown"


class Entry(Struct, frozen=True, kw_only=True):
    """The entry point, with what was noticed while deciding it."""

    kind: Kind = Kind.UNKNOWN
    module: Module | None = None
    name: str = "handle"  # of the function
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None = None
    of: Module | None = None  # the module that defines the function
    cls: Class | None = None
    findings: tuple[Finding, ...] = ()


def decide(found: HandlerFile, library: Library) -> Entry:
    """Decide what the server will call (contract §2)."""
    if found.built_in:
        return Entry(kind=Kind.CLASS, cls=Server(found.built_in))
    if found.module is None:
        return Entry()
    name = found.function or "handle"
    binding = lookup(library, found.module, name)
    if isinstance(binding, Binding):
        return _function(library, found.module, name, binding)
    if binding is None:
        return _unsure(found.module, f"only running it would tell whether it has '{name}'")
    entry = _class(library, found.module)
    return _without_function(entry, found) if found.function else entry


class Absent(Struct, frozen=True):
    """A name that a module does not have, for certain."""


def lookup(library: Library, module: Module, name: str) -> Binding | Absent | None:
    """Return what a module's attribute is bound to; None if only running it would tell."""
    answer: Binding | Absent | None = Absent()
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop(0)
        if current.member in seen:
            continue
        seen.add(current.member)
        if name in current.scope.names:
            hidden = current is not module and (name.startswith("_") or "__all__" in current.scope.names)
            return None if hidden else current.scope.names[name]
        if current.scope.dynamic:
            answer = None
        for star in current.scope.stars:
            packed = library.packed(absolute(current, star) or "")
            if packed:
                waiting.append(packed)
            elif not isinstance(_from_outside(absolute(current, star), star, name), Absent):
                answer = _from_outside(absolute(current, star), star, name)
    return answer


def _from_outside(source: str | None, star: Imported, name: str) -> Binding | Absent | None:
    """Return what `from source import *` binds a name to, of a module that is not packed."""
    if source and ts.has_module(source):
        return Binding((star,)) if name in ts.names_of(source) else Absent()
    top = (source or "?").partition(".")[0]
    return Absent() if is_standard(top) or top in INSTALLED else None


def _function(library: Library, module: Module, name: str, binding: Binding) -> Entry:
    where = module.at(binding.line)
    if not binding.sure or len(binding.values) != 1:
        return _unsure(module, f"only running it would tell what '{name}' stands for", where)
    owner, value = _follow(library, module, binding.values[0])
    if isinstance(value, Own) and isinstance(value.node, ast.ClassDef):
        message = f"'{name}' is a class, and the server would call it as a function with None and the context"
        return Entry(kind=Kind.NOTHING, module=module, findings=(NOT_CALLABLE.error(message, where),))
    if isinstance(value, Own):
        assert not isinstance(value.node, ast.ClassDef)  # noqa: S101 - for the type checker
        return Entry(kind=Kind.FUNCTION, module=module, name=name, function=value.node, of=owner)
    if _is_no_function(library, module, value):
        message = f"'{name}' is not a function, and the server would call it with None and the context"
        return Entry(kind=Kind.NOTHING, module=module, findings=(NOT_CALLABLE.error(message, where),))
    return Entry(kind=Kind.FUNCTION, module=module, name=name)


def _follow(library: Library, module: Module, value: Value, depth: int = 0) -> tuple[Module, Value]:
    """Follow imports to the packed module that defines a value, as far as that is certain."""
    if not isinstance(value, Imported) or value.name is None or depth > 20:
        return module, value
    source = absolute(module, value)
    packed = library.packed(source) if source else None
    binding = lookup(library, packed, value.name) if packed else None
    if packed is None or not isinstance(binding, Binding) or binding.only is None:
        return module, value
    return _follow(library, packed, binding.only, depth + 1)


def _is_no_function(library: Library, module: Module, value: Value) -> bool:
    """Say whether a value certainly cannot be called: a constant, a module."""
    if isinstance(value, Imported):
        return value.name is None and library.packed(absolute(module, value) or "") is not None
    node = getattr(value, "node", None)
    return isinstance(node, ast.Constant | ast.List | ast.Dict | ast.Tuple | ast.Set | ast.JoinedStr)


def _class(library: Library, module: Module) -> Entry:
    counted = count(module)
    one = counted.the_one
    if one is not None:
        return Entry(kind=Kind.CLASS, module=module, cls=Packed(module, one))
    if counted.low > 1:
        return _many(module, counted)
    if counted.high == 0:
        return _none(library, module)
    listed = ", ".join(counted.names[:5])
    return _unsure(module, f"only running it would tell how many classes it has of its own ({listed})")


def _many(module: Module, counted: Count) -> Entry:
    listed = ", ".join(counted.names[:6]) + (", …" if len(counted.names) > 6 else "")
    message = f"it has {counted.low} classes of its own ({listed}) where the server wants exactly one, and no 'handle'"
    where = module.at(odd_line(module, counted, "handle"))
    return Entry(kind=Kind.NOTHING, module=module, findings=(MANY_CLASSES.error(message, where),))


def _none(library: Library, module: Module) -> Entry:
    message = "it has neither a function 'handle' nor a class of its own"
    imported = (name for name, binding in module.scope.names.items() if isinstance(binding.only, Imported))
    handler = next((name for name in islice(imported, 100) if _is_handler(library, module, name)), None)
    hint = None
    if handler:
        message += f"; the imported {handler} does not count"
        hint = f"derive one class: class Handler({handler}): pass"
    return Entry(kind=Kind.NOTHING, module=module, findings=(NO_ENTRY.error(message, module.member, hint),))


def _is_handler(library: Library, module: Module, name: str) -> bool:
    found = library.class_of(module, ast.Name(name, ast.Load()))
    return isinstance(found, Server) or (isinstance(found, Packed) and library.find(found, "handle") is not None)


def _without_function(entry: Entry, found: HandlerFile) -> Entry:
    if entry.kind is not Kind.CLASS:
        message = f"there is no function '{found.function}'"
        member = found.module.member if found.module else None
        finding = NO_ENTRY.error(message, member) if entry.kind is Kind.NOTHING else None
        extra = (finding,) if finding else ()
        return Entry(kind=entry.kind, module=entry.module, findings=(*extra, *entry.findings))
    message = f"there is no function '{found.function}'; the server takes the module's one class instead"
    finding = FUNCTION_MISSING.warning(message, MANIFEST)
    return Entry(kind=entry.kind, module=entry.module, cls=entry.cls, findings=(finding, *entry.findings))


def _unsure(module: Module, message: str, where: str | None = None) -> Entry:
    return Entry(module=module, findings=(UNDECIDED.note(message, where or module.member),))
