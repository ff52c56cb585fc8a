"""Names that a packed module uses and never defines, found by pyflakes."""

import ast
from collections.abc import Iterable, Iterator

from marpack.findings import Finding
from marpack.inspection.lint.codes import Code, suggestion
from marpack.inspection.lint.files import GAVE_UP, Module
from marpack.inspection.lint.source import walk
from marpack.torchserve.server_modules import INSTALLED, is_standard

UNDEFINED = Code(
    "undefined-name",
    "A module uses a name that it neither defines nor imports; the code that uses it raises a NameError.",
    "Define or import the name before it is used.",
)
# By these a module can define names that its source does not show.
_DYNAMIC = frozenset({"exec", "globals", "locals", "vars", "builtins", "__builtins__"})
_GIVEN = frozenset({"__cached__", "get_ipython"})  # by Python and IPython; pyflakes does not know them
_MAX_GLOBALS = 500

Place = tuple[int, int]  # line, column


def check_names(modules: Iterable[Module]) -> Iterator[Finding]:
    """Yield a finding for each undefined name of some modules, at the line of its first use."""
    for module in modules:
        nodes = list(walk(module.tree))
        try:
            undefined = _undefined(module.tree, nodes)
        except RecursionError:
            yield GAVE_UP.note("its names could not be looked up", module.member)
            continue
        is_dynamic = bool(undefined) and any(isinstance(node, ast.Name) and node.id in _DYNAMIC for node in nodes)
        for name, line in undefined.items():
            message = f"the name '{name}' is not defined"
            if is_dynamic:
                yield UNDEFINED.note(f"{message}, unless the module defines it as it runs", module.at(line))
            else:
                yield UNDEFINED.warning(message, module.at(line), _hint(module, name))


def _hint(module: Module, name: str) -> str | None:
    if is_standard(name) or name in INSTALLED:
        return f"Add the line: import {name}"
    return suggestion(name, module.scope.names)


def _undefined(tree: ast.Module, nodes: list[ast.AST]) -> dict[str, int]:
    """Return each undefined name with the line of its first use; `nodes` are the tree's."""
    if not _is_decidable(nodes):
        return {}
    from pyflakes import checker, messages  # noqa: PLC0415 - an archive without Python files need not wait for it

    unread = set(_unread(tree, nodes))
    # pyflakes takes a name for deleted in functions that are called before it is.
    deleted = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)}
    found: dict[str, int] = {}
    try:
        reported = checker.Checker(tree, builtins=_GIVEN, withDoctest=False).messages
    finally:
        for node in ast.walk(tree):  # pyflakes links every node to its parent, which would lead other rules in circles
            vars(node).pop("_pyflakes_parent", None)
            vars(node).pop("_pyflakes_depth", None)
    for message in sorted(reported, key=lambda message: message.lineno):
        is_name = isinstance(message, messages.UndefinedName | messages.UndefinedLocal)
        if is_name and (message.lineno, message.col) not in unread and message.message_args[0] not in deleted:
            found.setdefault(message.message_args[0], message.lineno)
    return found


def _is_decidable(nodes: list[ast.AST]) -> bool:
    """Say whether a module's source shows its names: a star import hides them.

    pyflakes takes time by the square of a module's global statements, so one with very many is left alone.
    """
    starred = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in nodes)
    return not starred and sum(len(node.names) for node in nodes if isinstance(node, ast.Global)) <= _MAX_GLOBALS


def _unread(tree: ast.Module, nodes: list[ast.AST]) -> Iterator[Place]:
    """Yield the places of names that Python does not look up: in text, and in annotations that are not evaluated."""
    postponed = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
        for node in tree.body
    )
    pieces = {id(piece) for node in nodes if isinstance(node, ast.JoinedStr) for piece in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield node.lineno, node.col_offset
        for annotation in _annotations(node, postponed=postponed):
            yield from ((each.lineno, each.col_offset) for each in walk(annotation) if isinstance(each, ast.expr))


def _annotations(node: ast.AST, *, postponed: bool) -> Iterator[ast.expr]:
    """Yield the annotations of a node that are not evaluated: of a function's own variables, or all if `postponed`."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (each.annotation for each in walk(node) if isinstance(each, ast.AnnAssign))
    if not postponed:
        return
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield node.returns
