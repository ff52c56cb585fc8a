"""The handler held against how the server calls it: its methods, its answers, its batches (contract §7)."""

import ast
from collections.abc import Iterator

from marpack.archive.manifest import Manifest
from marpack.findings import Finding
from marpack.inspection.lint.classes import Library, LocalClass, ServerClass, UnknownClass, check_constructing
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.entry_point import MANIFEST, EntryDecision, EntryKind
from marpack.inspection.lint.files import Files, Module
from marpack.inspection.lint.model_config import ModelConfig
from marpack.inspection.lint.model_loading import LoadingStrategy, is_servers_own
from marpack.inspection.syntax import bound_arguments, dotted_name, is_async, is_generator, own_nodes, refusal, walk
from marpack.torchserve import stock as ts
from marpack.torchserve.targets import Target, TargetDifference

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

_ASYNC_HANDLERS = frozenset(row.cls for row in ts.BUILT_INS.values() if row.is_async)
TEXT_HANDLER = "ts.torch_handler.text_handler.TextHandler"
FILE = "source_vocab.pt"

MISSING = Code(
    "Weights",
    "vocabulary-missing",
    "The text handlers load source_vocab.pt from the archive's root, and it is not there; the worker dies.",
    "Pack the vocabulary as source_vocab.pt: torch.save({token: index}, 'source_vocab.pt').",
)
BATCHES = Code(
    "Weights",
    "text-batches",
    "The server's text classifier handles one request at a time; a batch of several is a 503 for each of them.",
    "Set batchSize to 1, override `preprocess` and `inference`, or build with target: marpack.",
)


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


def check_entry(entry: EntryDecision, library: Library, *, awaited: bool) -> Iterator[Finding]:
    """Yield what the server will stumble over when it makes, initialises and calls the handler."""
    if entry.kind is EntryKind.FUNCTION and entry.function is not None and entry.of is not None:
        yield from _check_function(entry, awaited=awaited)
    if entry.kind is EntryKind.CLASS and isinstance(entry.cls, ServerClass):
        yield from _check_built_in(entry.cls, awaited=awaited)
    if entry.kind is EntryKind.CLASS and isinstance(entry.cls, LocalClass):
        yield from check_constructing(library, entry.cls, "handler")
        yield from _check_method(library, entry.cls, "initialize", ("context",))
        yield from _check_method(library, entry.cls, "handle", ("data", "context"))
        yield from _check_answering(library, entry.cls, awaited=awaited)


def _check_function(entry: EntryDecision, *, awaited: bool) -> Iterator[Finding]:
    assert entry.function is not None and entry.of is not None  # noqa: S101, PT018 - for the type checker
    why = refusal(entry.function, 2, method=False)
    if why:
        message = f"the server calls '{entry.name}' with data and context, but it {why}"
        yield SIGNATURE.error(message, entry.of.at(entry.function))
    yield from check_answer(entry.of, entry.function, awaited=awaited)


def _check_built_in(cls: ServerClass, *, awaited: bool) -> Iterator[Finding]:
    name = cls.dotted.rpartition(".")[2]
    if awaited and name not in _ASYNC_HANDLERS:
        yield SYNC.error(f"the built-in {name} is not async, but the model config sets asyncCommunication", MANIFEST)
    if not awaited and name in _ASYNC_HANDLERS:
        yield ASYNC.error(
            f"the built-in {name} is async, and the model config does not set asyncCommunication", MANIFEST
        )


def _check_method(library: Library, cls: LocalClass, name: str, arguments: tuple[str, ...]) -> Iterator[Finding]:
    found = library.find(cls, name)
    place = cls.module.at(cls.node)
    if found is None:
        if not _set_on_instance(library, cls, name):
            yield NO_METHOD.error(f"the class {cls.node.name} has no method '{name}'", place)
        return
    if isinstance(found.owner, UnknownClass):
        message = f"what {cls.node.name} inherits depends on {found.owner.text}, which is not packed"
        yield BASE_UNKNOWN.note(message, place)
        return
    why = refusal(found.function, len(arguments), method=True) if found.function else None
    if why and isinstance(found.owner, LocalClass):
        message = f"the server calls '{name}' with {' and '.join(arguments)}, but it {why}"
        yield SIGNATURE.error(message, found.owner.module.at(found.function or found.owner.node))


def _set_on_instance(library: Library, cls: LocalClass, name: str) -> bool:
    """Say whether a method of the class sets this attribute on the instance, or attributes are made on demand."""
    if library.find(cls, "__getattr__") is not None:
        return True
    nodes = (node for base in library.order(cls) if isinstance(base, LocalClass) for node in walk(base.node))
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store) for node in nodes
    ) or any(isinstance(node, ast.Call) and _is_setattr(node) for node in walk(cls.node))


def _is_setattr(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "setattr"


def _check_answering(library: Library, cls: LocalClass, *, awaited: bool) -> Iterator[Finding]:
    found = library.find(cls, "handle")
    if found is None or isinstance(found.owner, UnknownClass):
        return
    if isinstance(found.owner, ServerClass):
        if awaited and found.owner.dotted.rpartition(".")[2] not in _ASYNC_HANDLERS:
            yield SYNC.error(
                "the inherited 'handle' is not async, but the model config sets asyncCommunication",
                cls.module.at(cls.node),
            )
        if found.owner.dotted == ts.BASE:
            yield from _check_stages(library, cls)
    elif isinstance(found.owner, LocalClass) and found.function:
        yield from check_answer(found.owner.module, found.function, awaited=awaited)


def _check_stages(library: Library, cls: LocalClass) -> Iterator[Finding]:
    for name in ("preprocess", "inference", "postprocess"):
        found = library.find(cls, name)
        if found is None or found.function is None or not isinstance(found.owner, LocalClass):
            continue
        where = found.owner.module.at(found.function)
        why = refusal(found.function, 1, method=True)
        if why:
            yield STAGE.error(f"BaseHandler's handle calls '{name}' with one argument, but it {why}", where)
        elif is_async(found.function):
            yield STAGE.error(f"'{name}' is async, and BaseHandler's handle does not await it", where)
        elif name == "postprocess":  # whose answer is handle's
            yield from check_answer(found.owner.module, found.function, awaited=False)


def check_batches(config: ModelConfig, library: Library, loader: LoadingStrategy, target: Target) -> Iterator[Finding]:
    """Yield that the server will fill batches which its own text classifier cannot take."""
    size = config.values.get("batchSize")
    if not isinstance(size, int) or size < 2 or target.has(TargetDifference.TEXT_BATCHES) or loader.cls is None:
        return
    found = library.find(loader.cls, "preprocess")
    if found is not None and isinstance(found.owner, ServerClass) and found.owner.dotted.endswith(".TextClassifier"):
        message = f"the text classifier takes one request at a time, and the batch size is {size}"
        yield BATCHES.warning(message, config.at("batchSize"))


def check_vocabulary(files: Files, manifest: Manifest, library: Library, loader: LoadingStrategy) -> Iterator[Finding]:
    """Yield that the vocabulary is missing, where the server's text handler would load it."""
    if loader.own_way or loader.cls is None or ServerClass(TEXT_HANDLER) not in library.order(loader.cls):
        return
    named = manifest.model.extra.get("sourceVocab")
    name = named if isinstance(named, str) and named else FILE
    if name not in files and (named or is_servers_own(library, loader, "get_source_vocab_path")):
        yield MISSING.weigh(loader.severity, f"the text handler's vocabulary '{name}' is not in the archive", name)
