"""The handler: its entry point, its classes, and the way the server calls it (contract §2, §7)."""

import ast
import builtins
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive import sagemaker
from marpack.archive.manifest import Manifest
from marpack.errors import did_you_mean
from marpack.findings import Finding, Severity
from marpack.inspection.lint.config import ModelConfig, Requirements
from marpack.inspection.lint.source import (
    Definition,
    Files,
    Found,
    Function,
    Imported,
    Module,
    Scope,
    broken_source,
    dotted_name,
    last_name,
    read_scope,
    walk,
)
from marpack.protocol.targets import Target, TargetDifference
from marpack.torchserve import server_modules as ts
from marpack.torchserve.server_modules import MANIFEST_FILES, NEVER_FOUND, HandlerName

_MANIFEST = "MAR-INF/MANIFEST.json: model.handler"
TEXT_HANDLER = "ts.torch_handler.text_handler.TextHandler"
_VOCABULARY = "source_vocab.pt"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ASYNC_HANDLERS = frozenset(row.cls for row in ts.BUILT_INS.values() if row.is_async)
# Modules whose classes have none of a handler's methods.
_PLAIN_MODULES = ("abc", "typing", "typing_extensions", "enum", "torch.nn", "dataclasses")
_HANDLER_SUFFIXES = ("Handler", "Classifier", "Segmenter", "Detector")
# Decorators that return the class that they decorate, or one in its place.
_CLASS_DECORATORS = frozenset({"dataclass", "total_ordering", "runtime_checkable", "final", "unique"})
# Decorators that call the function with the arguments they get.
_TRANSPARENT = frozenset(
    {"timed", "no_grad", "inference_mode", "enable_grad", "override", "abstractmethod", "autocast", "deprecated"}
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


# Classes


class ServerClass(Struct, frozen=True):
    """One of the server's own handler classes."""

    dotted: str


class PlainClass(Struct, frozen=True):
    """A class of Python's or torch's that has none of a handler's methods."""

    dotted: str


class UnknownClass(Struct, frozen=True):
    """A class with unknown attributes."""

    text: str
    is_packed: bool = True  # it may be: the source does not show plainly which class it is


class LocalClass:
    """A class that a packed module defines."""

    def __init__(self, module: Module, node: ast.ClassDef) -> None:
        self.module = module
        self.node = node

    @cached_property
    def scope(self) -> Scope:
        """The names that the class's body binds."""
        return read_scope(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalClass) and other.node is self.node

    def __hash__(self) -> int:
        return id(self.node)


Class = LocalClass | ServerClass | PlainClass | UnknownClass


class Attribute(Struct, frozen=True):
    """The class that an attribute comes from, and the attribute if it is plainly a function of a packed class."""

    owner: Class
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None

    def at(self) -> str:
        """Return the place of the function, or of its packed class."""
        assert isinstance(self.owner, LocalClass)  # noqa: S101 - only these have places
        return self.owner.module.at(self.function or self.owner.node)


class Classes:
    """Resolves classes across packed modules and the server's."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._orders: dict[Class, list[Class]] = {}

    def resolve(self, module: Module, expression: ast.expr) -> Class:
        """Return the class that an expression in a module names."""
        name = dotted_name(expression.value if isinstance(expression, ast.Subscript) else expression)  # Generic[T]
        if name is None:
            return UnknownClass(ast.unparse(expression)[:60])
        found = self.files.definition(module, name)
        if isinstance(found.value, ast.ClassDef):
            return LocalClass(found.module, found.value)
        if isinstance(found.value, Imported):
            source, _, last = found.dotted.rpartition(".")
            dotted = ts.handler_class(last) if source.partition(".")[0] == "ts" else None
            if dotted:
                return ServerClass(dotted)
            is_plain = any(source == plain or source.startswith(f"{plain}.") for plain in _PLAIN_MODULES)
            return PlainClass(found.dotted) if is_plain else UnknownClass(found.dotted, is_packed=False)
        is_builtin = isinstance(getattr(builtins, name, None), type) and module.lacks(name)
        return PlainClass(name) if is_builtin else UnknownClass(name)

    def order(self, start: Class) -> list[Class]:
        """Return a class and its bases, each before its own bases, as Python looks for methods."""
        if start not in self._orders:
            found: dict[Class, None] = {}  # in the opposite order
            self._collect(start, found, set())
            self._orders[start] = list(reversed(found))
        return self._orders[start]

    def _collect(self, cls: Class, found: dict[Class, None], seen: set[Class]) -> None:
        if cls in seen:
            return
        seen.add(cls)
        bases: list[Class] = []
        if isinstance(cls, ServerClass):
            bases = [ServerClass(base) for base in ts.classes()[cls.dotted].bases.split()]
        elif isinstance(cls, LocalClass):
            bases = [self.resolve(cls.module, base) for base in cls.node.bases]
        for base in reversed(bases):
            self._collect(base, found, seen)
        found[cls] = None

    def definitions(self, start: Class, name: str) -> Iterator[Attribute]:
        """Yield every class in resolution order that defines an attribute, or may define it."""
        for owner in self.order(start):
            if isinstance(owner, LocalClass):
                if owner.scope.dynamic or owner.node.keywords:  # a metaclass may do anything
                    yield Attribute(UnknownClass(owner.node.name))
                if name in owner.scope.names:
                    value = owner.scope.names[name].only
                    yield Attribute(owner, value if isinstance(value, _FUNCTIONS) else None)
            elif isinstance(owner, UnknownClass) or (
                isinstance(owner, ServerClass) and name in ts.classes()[owner.dotted].methods.split()
            ):
                yield Attribute(owner)

    def find(self, start: Class, name: str) -> Attribute | None:
        """Return the class that an attribute comes from; None if no class has it."""
        return next(self.definitions(start, name), None)

    def has_handle(self, cls: Class) -> bool:
        """Return whether a class has `handle`; with an unknown base, that base's name decides."""
        found = self.find(cls, "handle") if isinstance(cls, LocalClass | ServerClass) else None
        if found is not None and isinstance(found.owner, UnknownClass):
            return found.owner.text.endswith(_HANDLER_SUFFIXES)
        return found is not None


class OwnClasses(Struct, frozen=True):
    """The classes that belong to a module.

    The server counts every name of a class whose `__module__` is the module: a dataclass, an enum or an exception
    beside the handler counts, an imported class does not.
    """

    certain: dict[str, ast.ClassDef]
    exact: bool  # the source shows plainly that these are all

    @property
    def only(self) -> ast.ClassDef | None:
        """The class that the server takes, if the source shows it."""
        return next(iter(self.certain.values())) if self.exact and len(self.certain) == 1 else None

    def listing(self) -> str:
        """Return the first names for a message."""
        return ", ".join(islice(self.certain, 6)) + (", …" if len(self.certain) > 6 else "")

    def misplaced(self, method: str) -> ast.ClassDef:
        """Return the first class without a method; the second class if all have it."""
        nodes = sorted(self.certain.values(), key=lambda node: node.lineno)
        without = (node for node in nodes if method not in read_scope(node).names)
        return next(without, nodes[1])


def own_classes(scope: Scope) -> OwnClasses:
    """Return the classes that belong to a module."""
    certain: dict[str, ast.ClassDef] = {}
    exact = not scope.dynamic
    for name, binding in sorted(scope.names.items()):
        node = binding.only
        if (
            isinstance(node, ast.ClassDef)
            and all(last_name(item) in _CLASS_DECORATORS for item in node.decorator_list)
            and "__module__" not in read_scope(node).names
        ):
            certain[name] = node
        else:
            # An expression may be a class if its name is written as one.
            kinds = (ast.ClassDef, ast.Call, ast.IfExp, ast.BoolOp, ast.Name)
            is_camel_case = name[:1].isupper() and not name.isupper()
            for value in binding.values:
                exact &= not isinstance(value, kinds if is_camel_case else ast.ClassDef)
    return OwnClasses(certain, exact)


# The entry point


class Entry(Struct, frozen=True, kw_only=True):
    """The entry point, as far as the source shows it, with the findings about it."""

    is_function: bool = False  # the server calls a function of the module
    member: str | None = None  # the packed source file, parsed or not
    module: Module | None = None
    name: str = "handle"  # of the function
    function: Definition | None = None  # of the function, if a packed module plainly defines it
    cls: Class | None = None  # the server makes an instance of it
    findings: tuple[Finding, ...] = ()


def search_path(manifest: Manifest, open_member: Callable[[str], BinaryIO]) -> tuple[str, ...]:
    """Return the folders of the archive that the worker's search path begins with."""
    if sagemaker.has_adapter(manifest.model.handler, open_member):
        return f"{PurePosixPath(sagemaker.SCRIPT).parent}/", ""
    folder = HandlerName.parse(manifest.model.handler).folder
    return ("",) if folder is None else (f"{folder}/", "")


def find_entry(classes: Classes, manifest: Manifest) -> Entry:
    """Find the handler of a manifest among the members and the built-ins; in SageMaker's layout, the script."""
    is_sagemaker = sagemaker.has_adapter(manifest.model.handler, classes.files.open)
    handler = PurePosixPath(sagemaker.SCRIPT).name if is_sagemaker else manifest.model.handler
    files, name = classes.files, HandlerName.parse(handler)
    dotted = name.module
    if dotted.partition(".")[0] in NEVER_FOUND:
        return Entry(findings=(codes.HANDLER_NEVER_FOUND.at(_MANIFEST, module=dotted),))
    located = files.locate(dotted) if dotted else None
    if located is None:
        built_in = ts.BUILT_INS.get(name.path)
        if built_in is None:
            return Entry(findings=(_missing_handler(files, name),))
        needed = ts.needs_of(built_in.module)
        notes = [codes.HANDLER_NEEDS_ENGINE.at(_MANIFEST, name=built_in.name, needed=needed)] if needed else []
        return Entry(cls=ServerClass(built_in.dotted), findings=tuple(notes))
    if located.kind is Found.NAMESPACE:
        return Entry(findings=(codes.HANDLER_FOLDER.at(_MANIFEST, name=dotted),))
    shadows = [codes.HANDLER_SHADOWS.at(located.member, name=dotted)] if dotted in ts.BUILT_INS else []
    if located.kind is not Found.SOURCE:
        return Entry(findings=(*shadows, codes.SOURCE_UNCHECKED.at(located.member, reason="it is compiled")))
    module = files.module(located)
    if not isinstance(module, Module):
        broken = [broken_source(located.member, module)] if module else []
        return Entry(member=located.member, findings=(*shadows, *broken))
    entry = Entry(module=module) if is_sagemaker else read_entry(classes, module, name.function)
    return replace(entry, member=located.member, findings=(*shadows, *entry.findings))


def _missing_handler(files: Files, name: HandlerName) -> Finding:
    path, base, dotted = name.path, name.base, name.module
    if not dotted:
        return codes.HANDLER_UNNAMED.at(_MANIFEST)
    if "." in dotted and base in files.files_in(""):
        return codes.HANDLER_FILE_NAME.at(base, name=base)
    if ts.has_module(f"ts.torch_handler.{dotted}"):
        return codes.HANDLER_NOT_A_HANDLER.at(_MANIFEST, name=dotted)
    elsewhere = min((name for name in files.names if name.endswith(f"/{dotted}.py")), default=None)
    if elsewhere:
        return codes.HANDLER_ELSEWHERE.at(_MANIFEST, name=path, place=elsewhere)
    packed = [name for name in files.files_in("") if name.endswith(".py")]
    modules = [*ts.BUILT_INS, *(name.removesuffix(".py") for name in packed)]
    hint = did_you_mean(path, packed, 0.7) if path.endswith(".py") else did_you_mean(dotted, modules, 0.7)
    if path.endswith(".py") or hint or "." not in dotted:
        return codes.HANDLER_MISSING.at(_MANIFEST, hint=hint, name=path)
    return codes.HANDLER_UNKNOWN.at(_MANIFEST, name=path)


def read_entry(classes: Classes, module: Module, function: str | None = None) -> Entry:
    """Return what the server calls in a module: `function` or `handle`, else its one class."""
    name = function or "handle"
    if name in module.scope.names:
        found, where = classes.files.definition(module, name), module.at(module.scope.names[name].line)
        match found.value:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return Entry(is_function=True, module=module, name=name, function=found)
            case ast.ClassDef():
                finding = codes.HANDLER_CLASS_NOT_CALLABLE.at(where, name=name)
            case ast.Constant() | ast.List() | ast.Dict() | ast.Tuple() | ast.Set() | ast.JoinedStr():
                finding = codes.HANDLER_NOT_CALLABLE.at(where, name=name)
            case value:
                return Entry(is_function=value is not None, module=module, name=name)
        return Entry(module=module, findings=(finding,))
    own = own_classes(module.scope)
    if own.only is not None:
        findings = (codes.HANDLER_FUNCTION_MISSING.at(_MANIFEST, name=function),) if function else ()
        return Entry(module=module, cls=LocalClass(module, own.only), findings=findings)
    if module.scope.dynamic or not (own.exact or len(own.certain) > 1):
        return Entry(module=module)
    findings = (codes.HANDLER_NO_FUNCTION.at(module.member, name=function),) if function else ()
    if own.certain:
        where = module.at(own.misplaced("handle"))
        finding = codes.HANDLER_MANY_CLASSES.at(where, count=len(own.certain), names=own.listing())
        return Entry(module=module, findings=(*findings, finding))
    if findings:
        return Entry(module=module, findings=findings)
    imported = (name for name, binding in module.scope.names.items() if isinstance(binding.only, Imported))
    handlers = (name for name in islice(imported, 100) if classes.has_handle(classes.resolve(module, ast.Name(name))))
    if handler := next(handlers, None):
        hint = f"Derive one class: class Handler({handler}): pass"
        finding = codes.HANDLER_ONLY_IMPORTED.at(module.member, hint=hint, name=handler)
    else:
        finding = codes.HANDLER_NO_ENTRY.at(module.member)
    return Entry(module=module, findings=(finding,))


# How the handler loads its model


class LoadingStrategy(Struct, frozen=True, kw_only=True):
    """How certain it is that BaseHandler's rules for model, labels and compiling apply."""

    severity: Severity = Severity.NOTE  # ERROR: they do; WARNING: they may; NOTE: the handler loads by itself
    cls: Class | None = None

    @property
    def loads_itself(self) -> bool:
        """Whether the handler loads by itself, or the source does not show it."""
        return self.severity is Severity.NOTE

    @property
    def warning(self) -> Severity:
        """The severity of a broken rule that the server may tolerate."""
        return milder(self.severity, Severity.WARNING)


class LintContext(Struct, frozen=True, kw_only=True, dict=True):
    """One archive, with everything that several rules need."""

    files: Files
    manifest: Manifest
    target: Target
    classes: Classes
    config: ModelConfig
    requirements: Requirements
    entry: Entry
    loader: LoadingStrategy

    @cached_property
    def model_file(self) -> Module | None:
        """The model file, parsed."""
        name = self.manifest.model.model_file
        return self.files.packed(name.partition(".")[0]) if name and name in self.files else None

    @cached_property
    def starts(self) -> tuple[Module, ...]:
        """The handler and the model file."""
        return tuple(module for module in (self.entry.module, self.model_file) if module is not None)

    def owner(self, method: str) -> Class | None:
        """Return the class that a method comes from, for a handler that loads as BaseHandler does."""
        found = self.classes.find(self.loader.cls, method) if self.loader.cls is not None else None
        return found.owner if found else None


def milder(one: Severity, other: Severity) -> Severity:
    """Return the less serious of two severities."""
    return max(one, other, key=list(Severity).index)


def find_loader(entry: Entry, classes: Classes) -> LoadingStrategy:
    """Return how the handler loads its model."""
    if entry.cls is not None:
        return LoadingStrategy(severity=_initialize_severity(classes, entry.cls), cls=entry.cls)
    function = entry.function
    for node in walk(function.value) if function and isinstance(function.value, ast.AST) else ():
        match node:  # _service.initialize(context)
            case ast.Call(func=ast.Attribute(attr="initialize", value=ast.Name(id=name))) if function:
                service = classes.files.definition(function.module, name)
                if isinstance(service.value, ast.Call):
                    cls = classes.resolve(service.module, service.value.func)
                    # The source does not show whether the function gets there, so this is at most a warning.
                    severity = milder(_initialize_severity(classes, cls), Severity.WARNING)
                    return LoadingStrategy(severity=severity, cls=cls)
    return LoadingStrategy()


def _initialize_severity(classes: Classes, cls: Class) -> Severity:
    """Follow the calls of `super().initialize(…)` and return how certainly they reach BaseHandler's."""
    severity = Severity.ERROR
    for found in classes.definitions(cls, "initialize"):
        if isinstance(found.owner, ServerClass):
            built_in = ts.built_in_of(found.owner.dotted)
            return severity if built_in is not None and built_in.loads else Severity.NOTE
        if found.function is None or found.function.decorator_list:
            return Severity.NOTE
        nodes = walk(found.function, inner=False)
        if any(_changes_manifest(node) for node in nodes) or not any(map(_calls_initialize, nodes)):
            return Severity.NOTE
        if not any(isinstance(item, ast.Expr) and _calls_initialize(item.value) for item in found.function.body):
            severity = Severity.WARNING  # only under a condition
    return Severity.NOTE


def _calls_initialize(node: ast.AST) -> bool:
    """Return whether a node is `super().initialize(context)` or `Base.initialize(self, context)`."""
    match node:
        case (
            ast.Call(func=ast.Attribute(attr="initialize", value=ast.Call(func=ast.Name(id="super"))))
            | ast.Call(func=ast.Attribute(attr="initialize"), args=[ast.Name(id="self"), *_])
        ):
            return True
    return False


def _changes_manifest(node: ast.AST) -> bool:
    """Return whether a node is `context.manifest[…] = …`, or the same for the properties or the config."""
    return any(
        isinstance(inner, ast.Attribute) and inner.attr in {"manifest", "_system_properties", "model_yaml_config"}
        for target in (node.targets if isinstance(node, ast.Assign) else ())
        if isinstance(target, ast.Subscript)
        for inner in walk(target)
    )


# How the server calls it


def call_error(node: Function, given: int, *, method: bool) -> str | None:
    """Return why a call with so many positional arguments fails; None if it may succeed."""
    decorators = {last_name(item) for item in getattr(node, "decorator_list", [])}
    if decorators - _TRANSPARENT - {"staticmethod", "classmethod"}:
        return None  # a decorator may pass others
    bound = int(method and "staticmethod" not in decorators)  # the leading parameters that Python fills
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    count = given + bound
    if count > len(positional) and arguments.vararg is None:
        return f"takes {len(positional) - bound}, not {given}" if len(positional) >= bound else "takes no self"
    needed = [item.arg for item in positional[count : len(positional) - len(arguments.defaults)]]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    needed += [item.arg for item, default in pairs if default is None]
    return f"requires {', '.join(repr(name) for name in needed)}" if needed else None


def check_constructor(classes: Classes, cls: LocalClass, role: str) -> Iterator[Finding]:
    """Yield why the server cannot construct a class; its role is "handler" or "model"."""
    for name in ("__new__", "__init__"):
        found = classes.find(cls, name)
        reason = call_error(found.function, 0, method=True) if found and found.function else None
        if found and reason:
            yield codes.CLASS_NEEDS_ARGUMENTS.at(found.at(), role=role, cls=cls.node.name, name=name, reason=reason)


def check_entry(context: LintContext) -> Iterator[Finding]:
    """Yield why the server cannot construct, initialize or call the handler."""
    yield from context.entry.findings
    entry, classes, awaited = context.entry, context.classes, context.config.awaited
    if entry.function is not None and isinstance(node := entry.function.value, Function):
        where = entry.function.module.at(node)
        if reason := call_error(node, 2, method=False):
            yield codes.HANDLER_SIGNATURE.at(where, name=entry.name, arguments="data and context", reason=reason)
        yield from _check_answer(entry.function.module, node, awaited=awaited)
    if isinstance(entry.cls, ServerClass):
        name = entry.cls.dotted.rpartition(".")[2]
        if awaited is not (name in _ASYNC_HANDLERS):
            code = codes.HANDLER_BUILT_IN_NOT_ASYNC if awaited else codes.HANDLER_BUILT_IN_ASYNC
            yield code.at(_MANIFEST, name=name)
    if isinstance(entry.cls, LocalClass):
        yield from check_constructor(classes, entry.cls, "handler")
        yield from _check_method(classes, entry.cls, "initialize", ("context",))
        yield from _check_method(classes, entry.cls, "handle", ("data", "context"))
        yield from _check_handle(classes, entry.cls, awaited=awaited)
        yield from _check_skipped_initialize(classes, entry.cls)


def _check_answer(module: Module, function: Function, *, awaited: bool) -> Iterator[Finding]:
    """Yield why a `handle` does not return a list."""
    if isinstance(function, ast.Lambda) or {last_name(item) for item in function.decorator_list} - _TRANSPARENT:
        return
    where, name, is_async = module.at(function), function.name, isinstance(function, ast.AsyncFunctionDef)
    nodes = walk(function, inner=False)
    returns = [node for node in nodes if isinstance(node, ast.Return) and node.value is not None]
    returns = [node for node in returns if not (isinstance(node.value, ast.Constant) and node.value.value is None)]
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes):
        yield codes.HANDLER_GENERATOR.at(where, name=name)
    elif is_async is not awaited:
        yield (codes.HANDLER_ASYNC if is_async else codes.HANDLER_NOT_ASYNC).at(where, name=name)
    elif not returns and not any(isinstance(node, ast.Raise) for node in nodes):
        yield codes.HANDLER_RETURNS_NOTHING.at(where, name=name)
    else:
        for node in sorted(returns, key=lambda node: node.lineno):
            value = node.value
            kind = _CONSTANTS.get(type(value.value)) if isinstance(value, ast.Constant) else _NOT_LISTS.get(type(value))
            if isinstance(value, ast.Call) and dotted_name(value.func) == "json.dumps":
                kind = "a string"
            if kind:
                yield codes.HANDLER_RETURNS_NO_LIST.at(module.at(node), name=name, kind=kind)


def _check_method(classes: Classes, cls: LocalClass, name: str, arguments: tuple[str, ...]) -> Iterator[Finding]:
    found, place = classes.find(cls, name), cls.module.at(cls.node)
    if found is None:
        nodes = [node for base in classes.order(cls) if isinstance(base, LocalClass) for node in walk(base.node)]
        is_set = any(
            (isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store))
            or (isinstance(node, ast.Call) and dotted_name(node.func) == "setattr")
            for node in nodes
        )
        if not is_set:
            yield codes.HANDLER_METHOD_MISSING.at(place, cls=cls.node.name, name=name)
    elif isinstance(found.owner, UnknownClass) and not found.owner.is_packed:
        yield codes.HANDLER_BASE_UNKNOWN.at(place, cls=cls.node.name, base=found.owner.text)
    elif found.function and (reason := call_error(found.function, len(arguments), method=True)):
        yield codes.HANDLER_SIGNATURE.at(found.at(), name=name, arguments=" and ".join(arguments), reason=reason)


def _check_handle(classes: Classes, cls: LocalClass, *, awaited: bool) -> Iterator[Finding]:
    """Yield the problems of `handle`, or of the stages that BaseHandler's `handle` calls."""
    found = classes.find(cls, "handle")
    if found is not None and isinstance(found.owner, LocalClass) and found.function:
        yield from _check_answer(found.owner.module, found.function, awaited=awaited)
    if found is None or not isinstance(found.owner, ServerClass):
        return
    if awaited and found.owner.dotted.rpartition(".")[2] not in _ASYNC_HANDLERS:
        yield codes.HANDLER_INHERITED_NOT_ASYNC.at(cls.module.at(cls.node))
    for name in ("preprocess", "inference", "postprocess") if found.owner.dotted == ts.BASE else ():
        stage = classes.find(cls, name)
        if stage is None or stage.function is None or not isinstance(stage.owner, LocalClass):
            continue
        if reason := call_error(stage.function, 1, method=True):
            yield codes.HANDLER_STAGE.at(stage.at(), name=name, reason=reason)
        elif isinstance(stage.function, ast.AsyncFunctionDef):
            yield codes.HANDLER_STAGE_ASYNC.at(stage.at(), name=name)
        elif name == "postprocess":  # `handle` returns its result
            yield from _check_answer(stage.owner.module, stage.function, awaited=False)


def _check_skipped_initialize(classes: Classes, cls: LocalClass) -> Iterator[Finding]:
    """Yield the first use of an attribute that only BaseHandler's `initialize` sets, if that is never called."""
    order, found = classes.order(cls), classes.find(cls, "initialize")
    kinds = set(map(type, order))
    if found is None or not isinstance(found.owner, LocalClass) or ServerClass not in kinds or UnknownClass in kinds:
        return
    local = [base for base in order if isinstance(base, LocalClass)]
    nodes = [node for base in local for node in walk(base.node)]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    names = {node.attr for node in attributes} | {node.id for node in nodes if isinstance(node, ast.Name)}
    if names & {"initialize", "__dict__", "setattr", "vars"}:
        return
    # Attributes that the class sets itself, and those that a condition tests: the class expects these to be missing.
    known = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
    for node in nodes:
        test = node if isinstance(node, ast.BoolOp) else getattr(node, "test", None)
        known |= {inner.attr for inner in walk(test) if isinstance(inner, ast.Attribute)} if test else set()
    for base in local:
        uses = (  # self.name[…], self.name.more, self.name(…)
            (used.lineno, used.attr)
            for node in walk(base.node)
            if isinstance(node, ast.Subscript | ast.Attribute | ast.Call)
            if isinstance(used := getattr(node, "func", None) or getattr(node, "value", None), ast.Attribute)
            if isinstance(used.value, ast.Name) and used.value.id == "self" and used.attr in ts.SET_BY_INITIALIZE
        )
        if first := min((use for use in uses if use[1] not in known), default=None):
            yield codes.HANDLER_SKIPS_INITIALIZE.at(base.module.at(first[0]), name=first[1])
            return


# What it needs of the archive


def check_batches(context: LintContext) -> Iterator[Finding]:
    """Yield batches that the server's text classifier cannot handle."""
    size, owner = context.config.values.get("batchSize"), context.owner("preprocess")
    is_classifier = isinstance(owner, ServerClass) and owner.dotted.endswith(".TextClassifier")
    if is_classifier and isinstance(size, int) and size > 1 and not context.target.has(TargetDifference.TEXT_BATCHES):
        yield codes.TEXT_BATCHES.at(context.config.at("batchSize"), size=size)


def check_vocabulary(context: LintContext) -> Iterator[Finding]:
    """Yield a missing vocabulary, where the server's text handler loads it."""
    loader = context.loader
    if loader.loads_itself or loader.cls is None or ServerClass(TEXT_HANDLER) not in context.classes.order(loader.cls):
        return
    named = context.manifest.model.extra.get("sourceVocab")
    name = named if isinstance(named, str) and named else _VOCABULARY
    if name not in context.files and (named or isinstance(context.owner("get_source_vocab_path"), ServerClass)):
        yield codes.VOCABULARY_MISSING.at(name, severity=loader.severity, name=name)


def check_lookups(context: LintContext) -> Iterator[Finding]:
    """Yield the keys that the handler reads and the manifest or the model config does not have."""
    module, config, seen = context.entry.module, context.config, set[str]()
    if module is None:
        return
    model = context.manifest.model
    files = (model.model_file, model.serialized_file, model.requirements_file, model.config_file)
    named = {key for key, name in zip(MANIFEST_FILES, files, strict=True) if name is not None}
    functions = [node for node in walk(module.tree) if isinstance(node, _FUNCTIONS)]
    for function in sorted(functions, key=lambda node: node.lineno):
        nodes = walk(function, inner=False)
        if any(isinstance(node, ast.Try) for node in nodes):
            continue  # it may expect the error
        # Keys that a condition looks for are optional.
        tests = [node.left for node in nodes if isinstance(node, ast.Compare)]
        optional = {test.value for test in tests if isinstance(test, ast.Constant)}
        for line, key, is_config in sorted(_read_keys(nodes)):
            if key in seen or key in optional:
                continue
            if is_config and key not in config.values and not (config.member and not config.values):
                seen.add(key)
                code = codes.CONFIG_KEY_MISSING if config.member else codes.CONFIG_KEY_OF_NONE
                yield code.at(module.at(line), key=key[:40])
            elif not is_config and key in MANIFEST_FILES and key not in named:
                seen.add(key)
                kind, option, setting = MANIFEST_FILES[key]
                hint = f"Set {setting}: in marpack.yaml, or pass {option}."
                yield codes.MANIFEST_KEY_MISSING.at(module.at(line), hint=hint, key=key, kind=kind)


def _read_keys(nodes: list[ast.AST]) -> Iterator[tuple[int, str, bool]]:
    """Yield the line and the key of every `mapping["key"]`, with whether the mapping is the model config."""
    configs = {"model_yaml_config"}  # and the names that it is assigned to
    for node in nodes:
        if isinstance(node, ast.Assign) and last_name(node.value) == "model_yaml_config":
            configs |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in nodes:
        match node:
            case ast.Subscript(ctx=ast.Load(), slice=ast.Constant(value=str(key)), value=value):
                yield (
                    node.lineno,
                    key,
                    getattr(value, "attr", None) == "model_yaml_config" or (getattr(value, "id", None) in configs),
                )
