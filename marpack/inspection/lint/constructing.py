"""Whether the server can construct a class: it passes no arguments, neither to handlers nor to models."""

import ast
from collections.abc import Iterator

from marpack.findings import Finding
from marpack.inspection.lint.classes import Library, Packed, Plain, Server, Unknown
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.scope import Own
from marpack.inspection.lint.signature import decorator_name, refusal

ARGUMENTS = Code(
    "Handler",
    "class-needs-arguments",
    "The server constructs the handler's class, and the model's, without arguments; this one cannot do without.",
    "Give every parameter of `__init__` a default, or read it from the model config in `initialize`.",
)
ABSTRACT = Code(
    "Handler",
    "class-abstract",
    "The class leaves abstract methods open, so Python refuses to construct it.",
    "Define the methods, or drop @abstractmethod.",
)


def check_constructing(library: Library, cls: Packed, role: str) -> Iterator[Finding]:
    """Yield why a class cannot be constructed without arguments.

    Args:
        library: Resolves the bases.
        cls: The class.
        role: What the class is for, for the message: "handler" or "model".
    """
    if cls.node.keywords:
        return  # a metaclass may do what it likes
    yield from _needs_arguments(library, cls, role)
    yield from _abstract(library, cls)


def _needs_arguments(library: Library, cls: Packed, role: str) -> Iterator[Finding]:
    place = cls.module.at(cls.node)
    needed = _fields(cls.node)
    if needed:
        listed = ", ".join(repr(name) for name in needed)
        yield ARGUMENTS.error(f"the {role} class {cls.node.name} cannot be made without its fields {listed}", place)
        return
    for name in ("__new__", "__init__"):
        found = library.find(cls, name)
        if found is None or found.function is None or not isinstance(found.owner, Packed):
            continue
        why = refusal(found.function, 0, method=True)
        if why:
            where = found.owner.module.at(found.function)
            yield ARGUMENTS.error(
                f"the {role} class {cls.node.name} is made without arguments, but {name} {why}", where
            )


def _fields(node: ast.ClassDef) -> list[str]:
    """Return the fields without defaults of a dataclass whose `__init__` Python writes."""
    decorators = [item for item in node.decorator_list if _last(item) == "dataclass"]
    own_init = any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body)
    if not decorators or own_init or any(isinstance(item, ast.Call) and item.keywords for item in decorators):
        return []
    return [
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and item.value is None
        and not any(word in ast.unparse(item.annotation) for word in ("ClassVar", "KW_ONLY"))
    ]


def _abstract(library: Library, cls: Packed) -> Iterator[Finding]:
    order = library.order(cls)
    if any(isinstance(base, Unknown) for base in order) or not any(_is_abc(base) for base in order):
        return
    for base in order:
        for name, function in _abstract_methods(base):
            found = library.find(cls, name)
            if found is not None and found.owner == base and isinstance(base, Packed):
                message = f"{cls.node.name} leaves the abstract method {name} open, so it cannot be constructed"
                yield ABSTRACT.error(message, base.module.at(function))


def _is_abc(base: object) -> bool:
    return isinstance(base, Server) or (isinstance(base, Plain) and base.dotted == "abc.ABC")


def _abstract_methods(base: object) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(base, Packed):
        return
    for name, binding in base.scope.names.items():
        only = binding.only
        if isinstance(only, Own) and any(_last(item) == "abstractmethod" for item in _decorators(only.node)):
            yield name, only.node


def _decorators(node: ast.AST) -> list[ast.expr]:
    found: list[ast.expr] = getattr(node, "decorator_list", [])
    return found


def _last(decorator: ast.expr) -> str:
    return (decorator_name(decorator) or "").rpartition(".")[2]
