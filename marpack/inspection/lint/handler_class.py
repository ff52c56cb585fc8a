"""The handler's function or class, held against the way the server calls it."""

import ast
from collections.abc import Iterator

from marpack.findings import Finding
from marpack.inspection.lint.answering import ASYNC, SYNC, check_answer
from marpack.inspection.lint.classes import Library, Packed, Server, Unknown
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.constructing import check_constructing
from marpack.inspection.lint.entry import Entry, Kind
from marpack.inspection.lint.handler_file import MANIFEST
from marpack.inspection.lint.nodes import walk
from marpack.inspection.lint.signature import is_async, refusal
from marpack.torchserve import stock as ts

NO_METHOD = Code(
    "Handler",
    "handler-method-missing",
    "The handler's class has no `handle` or no `initialize`, and the server needs both; the worker dies.",
    "Define the method, or derive the class from ts.torch_handler.base_handler.BaseHandler.",
)
SIGNATURE = Code(
    "Handler",
    "handler-signature",
    "The server calls `handle(data, context)` and `initialize(context)`, and this one takes something else.",
    "Give it the parameters that the server passes.",
)
STAGE = Code(
    "Handler",
    "handler-stage",
    "BaseHandler's `handle` calls preprocess, inference and postprocess with one argument, and awaits none of them.",
    "Take one argument (the context is self.context), or override `handle` too.",
)
BASE_UNKNOWN = Code(
    "Handler",
    "handler-base-unknown",
    "The handler's class derives from one that is not packed, so its methods cannot be told.",
    "Pack the base class's module if the server does not have it.",
)

_ASYNC_HANDLERS = ("VLLMHandler", "TRTLLMHandler")


def check_entry(entry: Entry, library: Library, *, awaited: bool) -> Iterator[Finding]:
    """Yield what the server will stumble over when it makes, initialises and calls the handler."""
    if entry.kind is Kind.FUNCTION and entry.function is not None and entry.of is not None:
        yield from _check_function(entry, awaited=awaited)
    if entry.kind is Kind.CLASS and isinstance(entry.cls, Server):
        yield from _check_built_in(entry.cls, awaited=awaited)
    if entry.kind is Kind.CLASS and isinstance(entry.cls, Packed):
        yield from check_constructing(library, entry.cls, "handler")
        yield from _check_method(library, entry.cls, "initialize", ("context",))
        yield from _check_method(library, entry.cls, "handle", ("data", "context"))
        yield from _check_answering(library, entry.cls, awaited=awaited)


def _check_function(entry: Entry, *, awaited: bool) -> Iterator[Finding]:
    assert entry.function is not None and entry.of is not None  # noqa: S101, PT018 - for the type checker
    why = refusal(entry.function, 2, method=False)
    if why:
        message = f"the server calls '{entry.name}' with data and context, but it {why}"
        yield SIGNATURE.error(message, entry.of.at(entry.function))
    yield from check_answer(entry.of, entry.function, awaited=awaited)


def _check_built_in(cls: Server, *, awaited: bool) -> Iterator[Finding]:
    name = cls.dotted.rpartition(".")[2]
    if awaited and name not in _ASYNC_HANDLERS:
        yield SYNC.error(f"the built-in {name} is not async, but the model config sets asyncCommunication", MANIFEST)
    if not awaited and name in _ASYNC_HANDLERS:
        yield ASYNC.error(
            f"the built-in {name} is async, and the model config does not set asyncCommunication", MANIFEST
        )


def _check_method(library: Library, cls: Packed, name: str, arguments: tuple[str, ...]) -> Iterator[Finding]:
    found = library.find(cls, name)
    place = cls.module.at(cls.node)
    if found is None:
        if not _set_on_instance(library, cls, name):
            yield NO_METHOD.error(f"the class {cls.node.name} has no method '{name}'", place)
        return
    if isinstance(found.owner, Unknown):
        message = f"what {cls.node.name} inherits depends on {found.owner.text}, which is not packed"
        yield BASE_UNKNOWN.note(message, place)
        return
    why = refusal(found.function, len(arguments), method=True) if found.function else None
    if why and isinstance(found.owner, Packed):
        message = f"the server calls '{name}' with {' and '.join(arguments)}, but it {why}"
        yield SIGNATURE.error(message, found.owner.module.at(found.function or found.owner.node))


def _set_on_instance(library: Library, cls: Packed, name: str) -> bool:
    """Say whether a method of the class sets this attribute on the instance, or attributes are made on demand."""
    if library.find(cls, "__getattr__") is not None:
        return True
    nodes = (node for base in library.order(cls) if isinstance(base, Packed) for node in walk(base.node))
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store) for node in nodes
    ) or any(isinstance(node, ast.Call) and _is_setattr(node) for node in walk(cls.node))


def _is_setattr(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "setattr"


def _check_answering(library: Library, cls: Packed, *, awaited: bool) -> Iterator[Finding]:
    found = library.find(cls, "handle")
    if found is None or isinstance(found.owner, Unknown):
        return
    if isinstance(found.owner, Server):
        if awaited and found.owner.dotted.rpartition(".")[2] not in _ASYNC_HANDLERS:
            yield SYNC.error(
                "the inherited 'handle' is not async, but the model config sets asyncCommunication",
                cls.module.at(cls.node),
            )
        if found.owner.dotted == ts.BASE:
            yield from _check_stages(library, cls)
    elif isinstance(found.owner, Packed) and found.function:
        yield from check_answer(found.owner.module, found.function, awaited=awaited)


def _check_stages(library: Library, cls: Packed) -> Iterator[Finding]:
    for name in ("preprocess", "inference", "postprocess"):
        found = library.find(cls, name)
        if found is None or found.function is None or not isinstance(found.owner, Packed):
            continue
        where = found.owner.module.at(found.function)
        why = refusal(found.function, 1, method=True)
        if why:
            yield STAGE.error(f"BaseHandler's handle calls '{name}' with one argument, but it {why}", where)
        elif is_async(found.function):
            yield STAGE.error(f"'{name}' is async, and BaseHandler's handle does not await it", where)
        elif name == "postprocess":  # whose answer is handle's
            yield from check_answer(found.owner.module, found.function, awaited=False)
