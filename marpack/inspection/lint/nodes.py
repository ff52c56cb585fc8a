"""A syntax tree's nodes, walked several times faster than ast.walk does."""

import ast
from collections.abc import Iterator

_MARKS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a tree's nodes in no particular order, without the marks of context (Load, Store) and operators."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)


def children(node: ast.AST) -> list[ast.AST]:
    """Return a node's direct children, as `walk` yields them."""
    found: list[ast.AST] = []
    for value in vars(node).values():
        if isinstance(value, list):
            found += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, _MARKS):
            found.append(value)
    return found
