"""The import statements of a module, each with how sure it is that they run."""

import ast
from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct

from marpack.inspection.lint.bindings import truth
from marpack.inspection.syntax import dotted_name, walk


class Certainty(IntEnum):
    """How sure it is that an import runs, and that a failure is felt."""

    GUARDED = 0  # its failure is caught
    DEFERRED = 1  # inside a function
    CONDITIONAL = 2  # under a condition at the top level
    CERTAIN = 3


class Import(Struct, frozen=True):
    """One imported module, or one name of it."""

    module: str
    name: str | None  # None for `import module`
    level: int
    line: int
    weight: Certainty


_ImportNode = ast.Import | ast.ImportFrom
_Waiting = list[tuple[ast.AST, Certainty]]
_CATCHING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError", "RuntimeError"})
_PATH_CHANGERS = frozenset(
    {"sys.path", "sys.meta_path", "sys.path_hooks", "sys.modules", "site.addsitedir", "os.system", "os.chdir"}
)
_UNPACKERS = frozenset({"extractall", "extract", "unpack_archive", "spec_from_file_location", "check_call"})


def imports_of(tree: ast.Module) -> list[Import]:
    """Return a module's imports in the order of their lines."""
    found = [item for node, weight in _statements(tree) for item in _imports(node, weight)]
    return sorted(found, key=lambda item: item.line)


def brings_modules(tree: ast.Module) -> bool:
    """Say whether a module changes where imports are looked for, or unpacks or installs what they may find."""
    names = (dotted_name(node) or f"?.{node.attr}" for node in walk(tree) if isinstance(node, ast.Attribute))
    return any(
        name in _PATH_CHANGERS or name.startswith("subprocess.") or name.rpartition(".")[2] in _UNPACKERS
        for name in names
    )


def _imports(node: _ImportNode, weight: Certainty) -> Iterator[Import]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield Import(alias.name, None, 0, node.lineno, weight)
        else:
            yield Import(node.module or "", alias.name, node.level, node.lineno, weight)


def _statements(tree: ast.Module) -> Iterator[tuple[_ImportNode, Certainty]]:
    waiting: _Waiting = [(node, Certainty.CERTAIN) for node in tree.body]
    while waiting:
        node, weight = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, weight
        else:
            waiting.extend(_inside(node, weight))


def _inside(node: ast.AST, weight: Certainty) -> _Waiting:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [(item, min(weight, Certainty.DEFERRED)) for item in node.body]
        case ast.If():
            return _if(node, weight)
        case ast.Try() | ast.TryStar():
            return _try(node, weight)
        case ast.For() | ast.AsyncFor() | ast.While() | ast.Match():
            return [(item, min(weight, Certainty.CONDITIONAL)) for item in ast.iter_child_nodes(node)]
        case ast.stmt() | ast.match_case():
            return [(item, weight) for item in ast.iter_child_nodes(node) if isinstance(item, ast.stmt)]
    return []


def _if(node: ast.If, weight: Certainty) -> _Waiting:
    outcome = truth(node.test)
    if outcome is not None:
        return [(item, weight) for item in (node.body if outcome else node.orelse)]
    return [(item, min(weight, Certainty.CONDITIONAL)) for item in (*node.body, *node.orelse)]


def _try(node: ast.Try | ast.TryStar, weight: Certainty) -> _Waiting:
    caught = any(_catches(handler) for handler in node.handlers)
    tried = Certainty.GUARDED if caught else weight
    below = min(weight, Certainty.CONDITIONAL)
    found: _Waiting = [(item, tried) for item in node.body]
    found += [(item, below) for handler in node.handlers for item in handler.body]
    found += [(item, below) for item in node.orelse]
    return found + [(item, weight) for item in node.finalbody]


def _catches(handler: ast.ExceptHandler) -> bool:
    """Say whether a handler lets the module go on without what could not be imported."""
    if any(isinstance(item, ast.Raise) for item in handler.body):
        return False
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any((dotted_name(item) or "").rpartition(".")[2] in _CATCHING for item in types)
