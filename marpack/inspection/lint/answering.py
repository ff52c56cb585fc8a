"""What `handle` returns, as far as its definition tells: the server takes a list, and nothing else, for an answer."""

import ast
from collections.abc import Iterator

from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Module
from marpack.inspection.lint.signature import bound_arguments, dotted_name, is_async, is_generator, own_nodes

ASYNC = Code(
    "Handler",
    "handler-async",
    "An async `handle` gives a coroutine, which is no list: 503. Only under asyncCommunication is it awaited.",
    "Make it a plain function, or set `asyncCommunication: true` in the model config.",
)
SYNC = Code(
    "Handler",
    "handler-not-async",
    "Under asyncCommunication the server awaits what `handle` returns, and a plain function's list cannot be awaited.",
    "Make `handle` an async function, or drop asyncCommunication from the model config.",
)
GENERATOR = Code(
    "Handler",
    "handler-generator",
    "A `handle` with `yield` gives a generator, which is no list, so every request is a 503.",
    "Return a list with one element per request; stream with send_intermediate_predict_response.",
)
NO_ANSWER = Code(
    "Handler",
    "handler-returns-nothing",
    "`handle`, or the `postprocess` that answers for it, never returns a value; None is no list: 503.",
    "Return a list with one element per request.",
)
NO_LIST = Code(
    "Handler",
    "handler-returns-no-list",
    "A return of `handle`, or of `postprocess` for it, gives something that is not a list: 503.",
    "Return a list with one element per request: `return [answer]`.",
)

_NOT_LISTS = {
    ast.Dict: "a dict",
    ast.DictComp: "a dict",
    ast.Tuple: "a tuple",
    ast.Set: "a set",
    ast.SetComp: "a set",
    ast.GeneratorExp: "a generator",
    ast.JoinedStr: "a string",
}
_CONSTANTS = {str: "a string", bytes: "bytes", int: "a number", float: "a number", bool: "a boolean"}


def check_answer(module: Module, function: ast.AST, *, awaited: bool) -> Iterator[Finding]:
    """Yield what is wrong with the way a `handle` answers.

    Args:
        module: Where it stands.
        function: Its definition.
        awaited: Whether the model config asks for asyncCommunication.
    """
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    if bound_arguments(function, method=False) is None:
        return  # a decorator may make anything of it
    where = module.at(function)
    if is_generator(function):
        yield GENERATOR.error(f"'{function.name}' yields, so it gives a generator where the server wants a list", where)
    elif is_async(function) and not awaited:
        yield ASYNC.error(f"'{function.name}' is async, and its coroutine is no list", where)
    elif awaited and not is_async(function):
        yield SYNC.error(f"'{function.name}' is not async, but the model config sets asyncCommunication", where)
    else:
        yield from _check_returns(module, function)


def _check_returns(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    nodes = list(own_nodes(function))
    returns = sorted((node for node in nodes if isinstance(node, ast.Return)), key=lambda node: node.lineno)
    if all(_is_none(node.value) for node in returns):
        if not any(isinstance(node, ast.Raise) for node in nodes):
            yield NO_ANSWER.error(f"'{function.name}' never returns a value", module.at(function))
        return
    for node in returns:
        what = _no_list(node.value) if node.value else None
        if what:
            yield NO_LIST.warning(f"'{function.name}' returns {what} here, not a list", module.at(node))


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _no_list(value: ast.expr) -> str | None:
    if isinstance(value, ast.Constant):
        return _CONSTANTS.get(type(value.value))
    if isinstance(value, ast.Call) and dotted_name(value.func) == "json.dumps":
        return "a string"
    return _NOT_LISTS.get(type(value))
