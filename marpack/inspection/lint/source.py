"""Python source: bytes → syntax tree, walking it, and what a function takes."""

import ast
import codecs
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from marpack.errors import first_line

_MAX_PATH = 256  # characters
MAX_SOURCE = 256 << 10  # bytes; a parse takes up to half a second and 150 MB for these, and no hand has written more

# The parser joins dotted names piece by piece, so that a long one costs memory by its square.
_ENDLESS_NAME = re.compile(rb"(?<![\w\x80-\xff])(?:[\w\x80-\xff]++(?:\s|\\\r?\n)*+\.(?:\s|\\\r?\n)*+){300}")
# Codecs whose decoders are slow by design, or that no editor writes.
_ODD_CODECS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf-7", "undefined", "mbcs"})
# Fields that hold names, numbers, and the marks of context and operators, but no nodes to walk.
_LEAVES = frozenset({"arg", "attr", "ctx", "id", "level", "module", "op", "ops", "type_comment"})
Callable_ = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# Decorators that call the function with what they are called with.
_TRANSPARENT = frozenset(
    {"timed", "no_grad", "inference_mode", "enable_grad", "override", "abstractmethod", "autocast", "deprecated"}
)


class Broken(Struct, frozen=True):
    """Why a file has no syntax tree; where only we give up, the server may well read it."""

    reason: str
    line: int | None = None
    certain: bool = True  # the server cannot import it either


def parse(data: bytes) -> ast.Module | Broken:
    """Parse a file as Python would import it: with its byte-order mark and its coding line (PEP 263)."""
    if len(data) > MAX_SOURCE:
        return Broken(f"it is larger than {MAX_SOURCE >> 10} KiB, and was not looked into", certain=False)
    if _ENDLESS_NAME.search(data):
        return Broken("it holds a dotted name of hundreds of parts, and was not looked into", certain=False)
    odd = _odd_codec(data)
    return odd or _parse(data)


def _odd_codec(data: bytes) -> Broken | None:
    try:
        name, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, ValueError) as error:
        return Broken(f"its encoding is unknown or contradicts its bytes: {first_line(error)}", 1)
    if codecs.lookup(name).name in _ODD_CODECS:
        return Broken(f"it is written in the encoding {name}, and was not looked into", certain=False)
    return None


def _parse(data: bytes) -> ast.Module | Broken:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except SyntaxError as error:
        return Broken(error.msg, error.lineno)
    except (RecursionError, MemoryError):
        return Broken("it is nested too deeply, and was not looked into", certain=False)
    except ValueError as error:  # null bytes, bytes that are not of its encoding
        return Broken(first_line(error))


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
    """Yield the constants that are text, those of f-strings included, and none longer than a path is."""
    for node in walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _MAX_PATH:
            yield node


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
