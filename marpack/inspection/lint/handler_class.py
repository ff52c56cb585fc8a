"""The handler held against how the server calls it: its methods, its answers, its batches (contract §7)."""

import ast
from collections.abc import Collection, Iterable, Iterator

from marpack.findings import Finding
from marpack.inspection.lint.classes import Library, LocalClass, ServerClass, UnknownClass, check_constructing
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.entry_point import MANIFEST
from marpack.inspection.lint.files import Module
from marpack.inspection.lint.model_loading import LintContext
from marpack.inspection.lint.source import (
    bound_arguments,
    dotted_name,
    is_async,
    is_generator,
    own_nodes,
    refusal,
    walk,
)
from marpack.protocol.targets import TargetDifference
from marpack.torchserve import server_modules as ts
from marpack.torchserve.server_modules import MANIFEST_FILES

ASYNC = Code(
    "handler-async",
    "An async `handle` gives a coroutine, which is no list: 503. Only under asyncCommunication is it awaited.",
    "Make it a plain function, or set `asyncCommunication: true` in the model config.",
)
SYNC = Code(
    "handler-not-async",
    "Under asyncCommunication the server awaits what `handle` returns, and a plain function's list cannot be awaited.",
    "Make `handle` an async function, or drop asyncCommunication from the model config.",
)
GENERATOR = Code(
    "handler-generator",
    "A `handle` with `yield` gives a generator, which is no list, so every request is a 503.",
    "Return a list with one element per request; stream with send_intermediate_predict_response.",
)
NO_ANSWER = Code(
    "handler-returns-nothing",
    "`handle`, or the `postprocess` that answers for it, never returns a value; None is no list: 503.",
    "Return a list with one element per request.",
)
NO_LIST = Code(
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
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CONSTANTS = {str: "a string", bytes: "bytes", int: "a number", float: "a number", bool: "a boolean"}
NO_METHOD = Code(
    "handler-method-missing",
    "The handler's class has no `handle` or no `initialize`, and the server needs both; the worker dies.",
    "Define the method, or derive the class from ts.torch_handler.base_handler.BaseHandler.",
)
SIGNATURE = Code(
    "handler-signature",
    "The server calls `handle(data, context)` and `initialize(context)`, and this one takes something else.",
    "Give it the parameters that the server passes.",
)
STAGE = Code(
    "handler-stage",
    "BaseHandler's `handle` calls preprocess, inference and postprocess with one argument, and awaits none of them.",
    "Take one argument (the context is self.context), or override `handle` too.",
)
BASE_UNKNOWN = Code(
    "handler-base-unknown",
    "The handler's class derives from one that is not packed, so its methods cannot be told.",
    "Pack the base class's module if the server does not have it.",
)

SKIPS = Code(
    "handler-skips-initialize",
    "The class overrides `initialize` without calling BaseHandler's, and relies on what only that sets.",
    "Begin with super().initialize(context), or set the attribute yourself.",
)

_ASYNC_HANDLERS = frozenset(row.cls for row in ts.BUILT_INS.values() if row.is_async)
TEXT_HANDLER = "ts.torch_handler.text_handler.TextHandler"
FILE = "source_vocab.pt"

MISSING = Code(
    "vocabulary-missing",
    "The text handlers load source_vocab.pt from the archive's root, and it is not there; the worker dies.",
    "Pack the vocabulary as source_vocab.pt: torch.save({token: index}, 'source_vocab.pt').",
)
BATCHES = Code(
    "text-batches",
    "The server's text classifier handles one request at a time; a batch of several is a 503 for each of them.",
    "Set batchSize to 1, override `preprocess` and `inference`, or build with target: marpack.",
)


def _check_answer(module: Module, function: ast.AST, *, awaited: bool) -> Iterator[Finding]:
    """Yield what is wrong with the way a `handle` answers; a decorator may make anything of it."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    if bound_arguments(function, method=False) is None:
        return
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


CONFIG_LOOKUP = Code(
    "config-key-missing",
    "The handler reads a key of the model config that the archive does not have: a KeyError.",
    "Add the key under config: in marpack.yaml, or to the file that --config-file packs.",
)
FILE_LOOKUP = Code(
    "manifest-key-missing",
    "The handler reads the name of a file from the manifest, and the archive names no such file: a KeyError.",
    "Name the file when you build the archive.",
)


def check_entry(context: LintContext) -> Iterator[Finding]:
    """Yield what the server will stumble over when it makes, initialises and calls the handler."""
    entry, library, awaited = context.entry, context.library, context.config.awaited
    if entry.function is not None:
        module, node = entry.function.module, entry.function.node
        why = refusal(node, 2, method=False)
        if why:
            message = f"the server calls '{entry.name}' with data and context, but it {why}"
            yield SIGNATURE.error(message, module.at(node))
        yield from _check_answer(module, node, awaited=awaited)
    if isinstance(entry.cls, ServerClass):
        yield from _check_built_in(entry.cls, awaited=awaited)
    if isinstance(entry.cls, LocalClass):
        yield from check_constructing(library, entry.cls, "handler")
        yield from _check_method(library, entry.cls, "initialize", ("context",))
        yield from _check_method(library, entry.cls, "handle", ("data", "context"))
        yield from _check_answering(library, entry.cls, awaited=awaited)
        yield from _check_skipping(library, entry.cls)


def _check_built_in(cls: ServerClass, *, awaited: bool) -> Iterator[Finding]:
    name = cls.dotted.rpartition(".")[2]
    if awaited and name not in _ASYNC_HANDLERS:
        yield SYNC.error(f"the built-in {name} is not async, but the model config sets asyncCommunication", MANIFEST)
    if not awaited and name in _ASYNC_HANDLERS:
        message = f"the built-in {name} is async, and the model config does not set asyncCommunication"
        yield ASYNC.error(message, MANIFEST)


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


def _check_skipping(library: Library, cls: LocalClass) -> Iterator[Finding]:
    """Yield what the handler uses of what BaseHandler's `initialize` would set, and it never calls."""
    order = library.order(cls)
    local = [base for base in order if isinstance(base, LocalClass)]
    found = library.find(cls, "initialize")
    if found is None or found.owner not in local or not any(isinstance(base, ServerClass) for base in order):
        return
    if any(isinstance(base, UnknownClass) for base in order):
        return
    nodes = [node for base in local for node in walk(base.node)]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    changed = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
    called = {node.attr for node in attributes} & {"initialize", "__dict__"}
    if called or any(isinstance(node, ast.Name) and node.id in {"setattr", "vars"} for node in nodes):
        return
    asked = {inner.attr for node in nodes for inner in _tested(node) if isinstance(inner, ast.Attribute)}
    for base in local:
        used = (used for node in walk(base.node) if (used := _used(node)) is not None)
        for node in sorted(used, key=lambda node: node.lineno):
            if node.attr in ts.SET_BY_INITIALIZE and node.attr not in changed | asked:
                message = f"'initialize' does not call BaseHandler's, so self.{node.attr} is not set where this uses it"
                yield SKIPS.warning(message, base.module.at(node.lineno))
                return


def _used(node: ast.AST) -> ast.Attribute | None:
    """Return `self.name` in `self.name[…]`, `self.name.more` and `self.name(…)`."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self")) as used):
            return used
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")) as used):
            return used
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self")) as used):
            return used
    return None


def _tested(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of what a condition asks."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        yield from walk(node.test)
    elif isinstance(node, ast.BoolOp):
        yield from walk(node)


def _set_on_instance(library: Library, cls: LocalClass, name: str) -> bool:
    """Say whether a method of the class sets, or may set, this attribute on the instance."""
    nodes = (node for base in library.order(cls) if isinstance(base, LocalClass) for node in walk(base.node))
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store) for node in nodes
    ) or any(isinstance(node, ast.Call) and dotted_name(node.func) == "setattr" for node in walk(cls.node))


def _check_answering(library: Library, cls: LocalClass, *, awaited: bool) -> Iterator[Finding]:
    found = library.find(cls, "handle")
    if found is None or isinstance(found.owner, UnknownClass):
        return
    if isinstance(found.owner, ServerClass):
        if awaited and found.owner.dotted.rpartition(".")[2] not in _ASYNC_HANDLERS:
            message = "the inherited 'handle' is not async, but the model config sets asyncCommunication"
            yield SYNC.error(message, cls.module.at(cls.node))
        if found.owner.dotted == ts.BASE:
            yield from _check_stages(library, cls)
    elif isinstance(found.owner, LocalClass) and found.function:
        yield from _check_answer(found.owner.module, found.function, awaited=awaited)


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
            yield from _check_answer(found.owner.module, found.function, awaited=False)


def check_batches(context: LintContext) -> Iterator[Finding]:
    """Yield that the server will fill batches which its own text classifier cannot take."""
    size, owner = context.config.values.get("batchSize"), context.owner("preprocess")
    if not isinstance(size, int) or size < 2 or context.target.has(TargetDifference.TEXT_BATCHES):
        return
    if isinstance(owner, ServerClass) and owner.dotted.endswith(".TextClassifier"):
        message = f"the text classifier takes one request at a time, and the batch size is {size}"
        yield BATCHES.warning(message, context.config.at("batchSize"))


def check_vocabulary(context: LintContext) -> Iterator[Finding]:
    """Yield that the vocabulary is missing, where the server's text handler would load it."""
    loader = context.loader
    if loader.own_way or loader.cls is None or ServerClass(TEXT_HANDLER) not in context.library.order(loader.cls):
        return
    named = context.manifest.model.extra.get("sourceVocab")
    name = named if isinstance(named, str) and named else FILE
    if name not in context.files and (named or context.is_servers_own("get_source_vocab_path")):
        yield MISSING.weigh(loader.severity, f"the text handler's vocabulary '{name}' is not in the archive", name)


def check_lookups(context: LintContext) -> Iterator[Finding]:
    """Yield the keys of the manifest and of the model config that the handler reads and the archive does not have."""
    module, config, seen = context.handler.module, context.config, set[str]()
    functions = [node for node in walk(module.tree) if isinstance(node, _FUNCTIONS)] if module else []
    known = {key for key, name in zip(MANIFEST_FILES, _named_files(context), strict=True) if name is not None}
    for function in sorted(functions, key=lambda node: node.lineno):
        nodes = list(own_nodes(function))
        if module is None or any(isinstance(node, ast.Try) for node in nodes):
            continue  # which may well expect the error
        names = {name for node in nodes for name in _config_names(node)}
        for line, key, is_config in sorted(_lookups(nodes, names)):
            if key in seen or key in _expected(nodes):
                continue
            if is_config and key not in config.values and not (config.member and not config.values):
                seen.add(key)
                message = f"it reads the key '{key[:40]}' of the model config, and the archive has no "
                yield CONFIG_LOOKUP.warning(message + ("such key" if config.member else "config"), module.at(line))
            elif not is_config and key in MANIFEST_FILES and key not in known:
                seen.add(key)
                what, option, setting = MANIFEST_FILES[key]
                hint = f"set {setting}: in marpack.yaml, or pass {option}"
                message = f"it reads {key} of the manifest, and the archive names no {what}"
                yield FILE_LOOKUP.warning(message, module.at(line), hint)


def _named_files(context: LintContext) -> tuple[str | None, ...]:
    """Return what the manifest names, in the order of MANIFEST_FILES."""
    model = context.manifest.model
    return model.model_file, model.serialized_file, model.requirements_file, model.config_file


def _config_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that an assignment gives to the model config."""
    if isinstance(node, ast.Assign) and _is_config(node.value, frozenset()):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_config(node: ast.expr, names: Collection[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "model_yaml_config"
    return isinstance(node, ast.Name) and node.id in {"model_yaml_config", *names}


def _lookups(nodes: Iterable[ast.AST], names: Collection[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield the line and the key of every value that is read by a text, and whether it is read of the model config."""
    for node in nodes:
        match node:
            case ast.Subscript(ctx=ast.Load(), slice=ast.Constant(value=str(key))):
                yield node.lineno, key, _is_config(node.value, names)


def _expected(nodes: Iterable[ast.AST]) -> set[object]:
    """Return the texts that some condition looks for: `"handler" in config`."""
    tests = [node for node in nodes if isinstance(node, ast.Compare)]
    return {test.left.value for test in tests if isinstance(test.left, ast.Constant)}
