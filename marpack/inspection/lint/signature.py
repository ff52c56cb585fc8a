"""What a function takes and gives, as far as its definition tells."""

import ast
from collections.abc import Iterator

from marpack.inspection.lint.nodes import children

Callable_ = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# Decorators that call the function with what they are called with.
_TRANSPARENT = frozenset(
    {"timed", "no_grad", "inference_mode", "enable_grad", "override", "abstractmethod", "autocast", "deprecated"}
)


def dotted_name(node: ast.expr) -> str | None:
    """Return `a.b.c` for a name or a chain of attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join((node.id, *reversed(parts)))


def decorator_name(node: ast.expr) -> str | None:
    """Return a decorator's dotted name, called or not."""
    return dotted_name(node.func if isinstance(node, ast.Call) else node)


def bound_arguments(node: Callable_, *, method: bool) -> int | None:
    """Return how many leading parameters are filled by Python itself; None if a decorator hides it."""
    names = [decorator_name(item) for item in getattr(node, "decorator_list", [])]
    last = [(name or "?").rpartition(".")[2] for name in names]
    if "staticmethod" in last:
        return 0
    if any(name not in _TRANSPARENT and name != "classmethod" for name in last):
        return None
    return 1 if method else 0


def refusal(node: Callable_, given: int, *, method: bool) -> str | None:
    """Return why a call with so many positional arguments fails, as the end of a sentence; None if it may not."""
    bound = bound_arguments(node, method=method)
    if bound is None:
        return None
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    count = given + bound
    if count > len(positional) and arguments.vararg is None:
        return f"takes {len(positional) - bound}, not {given}" if len(positional) >= bound else "takes no self"
    needed = [item.arg for item in positional[count : len(positional) - len(arguments.defaults)]]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    needed += [item.arg for item, default in pairs if default is None]
    if not needed:
        return None
    return f"cannot do without {', '.join(repr(name) for name in needed)}"


def own_nodes(node: Callable_) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body without those of functions and classes inside it."""
    waiting: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]
    while waiting:
        item = waiting.pop()
        yield item
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(children(item))


def is_generator(node: Callable_) -> bool:
    """Say whether calling the function gives a generator."""
    return any(isinstance(item, ast.Yield | ast.YieldFrom) for item in own_nodes(node))


def is_async(node: ast.AST) -> bool:
    """Say whether calling the function gives a coroutine."""
    return isinstance(node, ast.AsyncFunctionDef)
