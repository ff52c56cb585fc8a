"""The handler: its entry point, its classes, and the way the server calls it (contract §2, §7)."""

import ast
import builtins
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive.manifest import Manifest
from marpack.errors import did_you_mean
from marpack.findings import Finding, Severity
from marpack.inspection.lint.config import ModelConfig
from marpack.inspection.lint.manifest import Requirements
from marpack.inspection.lint.source import (
    Binding,
    Files,
    Found,
    Function,
    Imported,
    Module,
    Scope,
    broken_source,
    dotted_name,
    last_name,
    own_nodes,
    read_scope,
    walk,
)
from marpack.protocol.targets import Target, TargetDifference
from marpack.torchserve import server_modules as ts
from marpack.torchserve.server_modules import INSTALLED, MANIFEST_FILES, HandlerName, is_standard, never_found

_MANIFEST = "MAR-INF/MANIFEST.json: model.handler"
TEXT_HANDLER = "ts.torch_handler.text_handler.TextHandler"
_VOCABULARY = "source_vocab.pt"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ASYNC_HANDLERS = frozenset(row.cls for row in ts.BUILT_INS.values() if row.is_async)
# Modules whose classes have none of a handler's methods.
_PLAIN_MODULES = ("abc", "typing", "typing_extensions", "enum", "torch.nn", "dataclasses")
_MAX_DEPTH = 30  # imports of imports of a name
_MAX_CLASSES = 500  # in one resolution order; merging more takes too long
# Decorators that return the class that they decorate, or one in its place.
_CLASS_DECORATORS = frozenset(
    {"dataclass", "total_ordering", "runtime_checkable", "final", "unique", "define", "frozen", "s", "attrs", "mutable"}
)
# Calls that make a class of the calling module → the arguments they need.
_CLASS_MAKERS = {
    "namedtuple": 2, "NamedTuple": 1, "TypedDict": 1, "Enum": 2, "IntEnum": 2, "StrEnum": 2, "Flag": 2, "IntFlag": 2,
    "type": 3,
}  # fmt: skip
_NO_CLASSES = frozenset({"NewType", "TypeVar", "ParamSpec", "TypeVarTuple"})
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
    """A class that is not packed, with unknown attributes."""

    text: str


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
    """The class that an attribute comes from."""

    owner: Class
    binding: Binding | None = None  # the owner's own, if it is packed

    @property
    def function(self) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the definition, if the attribute is certainly one function."""
        only = self.binding.only if self.binding else None
        return only if isinstance(only, _FUNCTIONS) else None


class Classes:
    """Resolves classes across packed modules and the server's."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._orders: dict[Class, list[Class]] = {}

    def resolve(self, module: Module, expression: ast.expr) -> Class:
        """Return the class that an expression in a module names."""
        dotted = dotted_name(expression.value if isinstance(expression, ast.Subscript) else expression)  # Generic[T]
        if dotted is None:
            return UnknownClass(ast.unparse(expression)[:60])
        first, _, rest = dotted.partition(".")
        if not rest:
            return self._named(module, first)
        binding = module.scope.names.get(first)
        imported = binding.only if binding else None
        source = module.absolute(imported) if isinstance(imported, Imported) else None
        if not isinstance(imported, Imported) or source is None:
            return UnknownClass(dotted)
        path, _, name = ".".join(filter(None, (source, imported.name, rest))).rpartition(".")
        return self._imported(path, name)

    def _named(self, module: Module, name: str, depth: int = 0) -> Class:
        """Return the class that a name of a module stands for."""
        binding = module.scope.names.get(name)
        if binding is None:
            found = (self._imported(module.absolute(star), name, depth + 1) for star in module.scope.stars)
            known = next((cls for cls in found if not isinstance(cls, UnknownClass)), None)
            is_builtin = not module.scope.stars and isinstance(getattr(builtins, name, None), type)
            return known or (PlainClass(name) if is_builtin else UnknownClass(name))
        match binding.only:
            case ast.ClassDef() as node:
                return LocalClass(module, node)
            case Imported(name=str()) as imported:
                return self._imported(module.absolute(imported), imported.name or "", depth + 1)
            case ast.Attribute() as expression:
                return self.resolve(module, expression)
        return UnknownClass(name)

    def _imported(self, source: str | None, name: str, depth: int = 0) -> Class:
        """Return the class that `from source import name` binds."""
        if source is None or depth > _MAX_DEPTH:
            return UnknownClass(name)
        packed = self.files.packed(source)
        if packed is not None:
            return self._named(packed, name, depth)
        if source.partition(".")[0] == "ts":
            dotted = ts.handler_class(name)
            return ServerClass(dotted) if dotted else UnknownClass(f"{source}.{name}")
        is_plain = any(source == plain or source.startswith(f"{plain}.") for plain in _PLAIN_MODULES)
        return PlainClass(f"{source}.{name}") if is_plain else UnknownClass(f"{source}.{name}")

    def order(self, start: Class) -> list[Class]:
        """Return the method resolution order; unknown bases are part of it."""
        if start not in self._orders:
            self._orders[start] = [UnknownClass("itself")]  # a class that inherits from itself
            bases: list[Class] = []
            if isinstance(start, ServerClass):
                bases = [ServerClass(base) for base in ts.bases_of(start.dotted)]
            elif isinstance(start, LocalClass) and len(start.node.bases) <= _MAX_CLASSES:
                bases = [self.resolve(start.module, base) for base in start.node.bases] or [PlainClass("object")]
            rows = [self.order(base) for base in bases]
            too_many = sum(map(len, rows)) > _MAX_CLASSES
            merged = [UnknownClass("too many bases")] if too_many else _merge_orders([*rows, bases])
            self._orders[start] = [start, *merged]
        return self._orders[start]

    def definitions(self, start: Class, name: str) -> Iterator[Attribute]:
        """Yield every class in resolution order that defines an attribute, or may define it."""
        for owner in self.order(start):
            if isinstance(owner, LocalClass):
                if owner.scope.dynamic:
                    yield Attribute(UnknownClass(owner.node.name))
                if name in owner.scope.names:
                    yield Attribute(owner, owner.scope.names[name])
            elif isinstance(owner, UnknownClass) or (
                isinstance(owner, ServerClass) and name in ts.methods_of(owner.dotted)
            ):
                yield Attribute(owner)

    def find(self, start: Class, name: str) -> Attribute | None:
        """Return the class that an attribute comes from; None if no class has it."""
        return next(self.definitions(start, name), None)

    def has_handle(self, cls: Class | None) -> bool:
        """Return whether a class has `handle`; with an unknown base, that base's name decides."""
        found = self.find(cls, "handle") if isinstance(cls, LocalClass | ServerClass) else None
        if found is not None and isinstance(found.owner, UnknownClass):
            return found.owner.text.endswith(("Handler", "Classifier", "Segmenter", "Detector"))
        return found is not None


def _merge_orders(rows: list[list[Class]]) -> list[Class]:
    """Merge resolution orders as Python does (C3); where Python fails, continue with the first."""
    merged: list[Class] = []
    rows = [row for row in rows if row]
    while rows:
        heads = (row[0] for row in rows if not any(row[0] in other[1:] for other in rows))
        head = next(heads, rows[0][0])
        merged.append(head)
        rows = [rest for row in rows if (rest := [item for item in row if item != head])]
    return merged


class OwnClasses(Struct, frozen=True):
    """The classes that belong to a module.

    The server counts every name of a class whose `__module__` is the module: a dataclass, an enum or an exception
    beside the handler counts, an alias counts again, an imported class does not.
    """

    certain: dict[str, ast.AST]  # name → its definition, or the call that makes the class
    exact: bool  # there are no others

    @property
    def only(self) -> ast.ClassDef | None:
        """The class that the server takes, if the source shows it."""
        node = next(iter(self.certain.values()), None)
        return node if isinstance(node, ast.ClassDef) and self.exact and len(self.certain) == 1 else None

    def listing(self) -> str:
        """Return the first names for a message."""
        return ", ".join(islice(self.certain, 6)) + (", …" if len(self.certain) > 6 else "")

    def misplaced_line(self, scope: Scope, method: str) -> int:
        """Return the line of the first class without a method; of the second class if all have it."""
        lines = sorted(scope.names[name].line for name in self.certain)
        without = sorted(
            scope.names[name].line
            for name, node in self.certain.items()
            if not any(getattr(item, "name", "") == method for item in getattr(node, "body", ()))
        )
        return without[0] if without else lines[1]


def own_classes(scope: Scope) -> OwnClasses:
    """Return the classes that belong to a module."""
    certain: dict[str, ast.AST] = {}
    exact = not scope.dynamic
    for name, binding in sorted(scope.names.items()):
        kinds = [_is_own_class(name, value, scope) for value in binding.values]
        only = binding.only
        if kinds == [True] and isinstance(only, ast.AST):
            certain[name] = only
        elif any(kind is not False for kind in kinds):
            exact = False
    return OwnClasses(certain, exact)


def _is_own_class(name: str, value: ast.AST | Imported | None, scope: Scope) -> bool | None:
    """Return whether a value is a class of the module's own; None if the source does not show it."""
    looks_like_class = name[:1].isupper() and not name.isupper()
    match value:
        case ast.ClassDef():
            assigned = [target for item in value.body if isinstance(item, ast.Assign) for target in item.targets]
            if any(isinstance(target, ast.Name) and target.id == "__module__" for target in assigned):
                return None
            return all(last_name(item) in _CLASS_DECORATORS for item in value.decorator_list) or None
        case ast.Call():
            maker, function = last_name(value) or "", dotted_name(value.func) or ""
            if maker in _CLASS_MAKERS:
                return len(value.args) + len(value.keywords) >= _CLASS_MAKERS[maker] or None
            binding = scope.names.get(function)
            is_instance = binding is not None and isinstance(binding.only, ast.ClassDef)
            return None if looks_like_class and not is_instance and maker not in _NO_CLASSES else False
        case ast.IfExp() | ast.BoolOp():
            return None if looks_like_class else False
        case ast.Name() if value.id in scope.names:
            return None if looks_like_class else False
    return False


# The entry point


class EntryKind(StrEnum):
    """What the server calls."""

    FUNCTION = "function"
    CLASS = "class"
    NOTHING = "nothing"  # certainly
    UNKNOWN = "unknown"  # the source alone does not show it


class LocalFunction(Struct, frozen=True):
    """A function that a packed module defines."""

    module: Module
    node: Function


class Entry(Struct, frozen=True, kw_only=True):
    """The entry point, with the findings about it."""

    kind: EntryKind = EntryKind.UNKNOWN
    member: str | None = None  # the packed source file, parsed or not
    module: Module | None = None
    name: str = "handle"  # of the function
    function: LocalFunction | None = None  # if it can be read
    cls: Class | None = None  # the server makes an instance of it
    findings: tuple[Finding, ...] = ()


def search_path(manifest: Manifest) -> tuple[str, ...]:
    """Return the folders of the archive that the worker's search path begins with."""
    folder = HandlerName.parse(manifest.model.handler).folder
    return ("",) if folder is None else (f"{folder}/", "")


def find_entry(classes: Classes, manifest: Manifest) -> Entry:
    """Find the handler of a manifest among the members and the built-ins."""
    files, name = classes.files, HandlerName.parse(manifest.model.handler)
    dotted = name.module
    if never_found(dotted.partition(".")[0]):
        return Entry(findings=(codes.HANDLER_NEVER_FOUND.at(_MANIFEST, module=dotted),))
    located = files.locate(dotted) if dotted else None
    if located is None:
        built_in = ts.BUILT_INS.get(name.path)
        if built_in is None:
            return Entry(findings=(_missing_handler(files, name),))
        needed = ts.needs_of(built_in.module)
        notes = [codes.HANDLER_NEEDS_ENGINE.at(_MANIFEST, name=built_in.name, needed=needed)] if needed else []
        return Entry(kind=EntryKind.CLASS, cls=ServerClass(built_in.dotted), findings=tuple(notes))
    if located.kind is Found.NAMESPACE:
        return Entry(findings=(codes.HANDLER_FOLDER.at(_MANIFEST, name=dotted),))
    shadows = [codes.HANDLER_SHADOWS.at(located.member, name=dotted)] if dotted in ts.BUILT_INS else []
    if located.kind is not Found.SOURCE:
        return Entry(findings=(*shadows, codes.SOURCE_UNCHECKED.at(located.member, reason="it is compiled")))
    module = files.module(located)
    if not isinstance(module, Module):
        broken = [broken_source(located.member, module)] if module else []
        return Entry(member=located.member, findings=(*shadows, *broken))
    entry = read_entry(classes, module, name.function)
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
    binding = module.scope.names.get(name)
    if binding is not None:
        return _read_function(classes, module, name, binding)
    if not is_absent(classes.files, module, name):
        return Entry(module=module)
    own, kind, cls, findings = own_classes(module.scope), EntryKind.UNKNOWN, None, []
    if own.only is not None:
        kind, cls = EntryKind.CLASS, LocalClass(module, own.only)
        if function:
            findings = [codes.HANDLER_FUNCTION_MISSING.at(_MANIFEST, name=function)]
    elif len(own.certain) > 1 or (own.exact and not own.certain):
        kind = EntryKind.NOTHING
        if function:
            findings = [codes.HANDLER_NO_FUNCTION.at(module.member, name=function)]
        if own.certain:
            where = module.at(own.misplaced_line(module.scope, "handle"))
            findings += [codes.HANDLER_MANY_CLASSES.at(where, count=len(own.certain), names=own.listing())]
        else:
            findings += [_no_entry(classes, module)]
    return Entry(kind=kind, module=module, cls=cls, findings=tuple(findings))


def _no_entry(classes: Classes, module: Module) -> Finding:
    imported = (name for name, binding in module.scope.names.items() if isinstance(binding.only, Imported))
    handlers = (name for name in islice(imported, 100) if classes.has_handle(classes.resolve(module, ast.Name(name))))
    if handler := next(handlers, None):
        hint = f"Derive one class: class Handler({handler}): pass"
        return codes.HANDLER_ONLY_IMPORTED.at(module.member, hint=hint, name=handler)
    return codes.HANDLER_NO_ENTRY.at(module.member)


def _read_function(classes: Classes, module: Module, name: str, binding: Binding) -> Entry:
    """Return the entry point that a module's name is."""
    owner, value = module, binding.only
    for _ in range(_MAX_DEPTH):  # follow imports to the packed module that defines the value
        if not isinstance(value, Imported) or value.name is None:
            break
        packed = classes.files.packed(owner.absolute(value) or "")
        inner = packed.scope.names.get(value.name) if packed else None
        if packed is None or inner is None or inner.only is None:
            return Entry(kind=EntryKind.FUNCTION, module=module, name=name)
        owner, value = packed, inner.only
    match value:
        case None:
            return Entry(module=module, name=name)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            function = LocalFunction(owner, value)
            return Entry(kind=EntryKind.FUNCTION, module=module, name=name, function=function)
        case ast.ClassDef():
            finding = codes.HANDLER_CLASS_NOT_CALLABLE.at(module.at(binding.line), name=name)
        case ast.Constant() | ast.List() | ast.Dict() | ast.Tuple() | ast.Set() | ast.JoinedStr():
            finding = codes.HANDLER_NOT_CALLABLE.at(module.at(binding.line), name=name)
        case Imported(name=None) if classes.files.packed(owner.absolute(value) or "") is not None:
            finding = codes.HANDLER_NOT_CALLABLE.at(module.at(binding.line), name=name)
        case _:
            return Entry(kind=EntryKind.FUNCTION, module=module, name=name)
    return Entry(kind=EntryKind.NOTHING, module=module, findings=(finding,))


def is_absent(files: Files, module: Module, name: str) -> bool:
    """Return whether a module certainly does not have a name, its star imports included."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current.member in seen:
            continue
        seen.add(current.member)
        if name in current.scope.names or current.scope.dynamic:
            return False
        for star in current.scope.stars:
            source = current.absolute(star) or ""
            top = source.partition(".")[0]
            if packed := files.packed(source):
                waiting.append(packed)
            elif ts.has_module(source):
                if name in ts.names_of(source):
                    return False
            elif not (is_standard(top) or top in INSTALLED):
                return False
    return True


# How the handler loads its model


class LoadingStrategy(Struct, frozen=True, kw_only=True):
    """How certain it is that BaseHandler's rules for model, labels and compiling apply."""

    severity: Severity = Severity.NOTE  # ERROR: they do; WARNING: they may; NOTE: the handler loads by itself
    cls: Class | None = None

    @property
    def own_way(self) -> bool:
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
    names = [
        node.func.value.id  # _service.initialize(context)
        for node in (walk(function.node) if function is not None else ())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "initialize"
        if isinstance(node.func.value, ast.Name)
    ]
    binding = function.module.scope.names.get(names[0]) if function and names else None
    if function is None or binding is None or not isinstance(binding.only, ast.Call):
        return LoadingStrategy()
    cls = classes.resolve(function.module, binding.only.func)
    # The source does not show whether the function gets there, so this is at most a warning.
    return LoadingStrategy(severity=milder(_initialize_severity(classes, cls), Severity.WARNING), cls=cls)


def _initialize_severity(classes: Classes, cls: Class) -> Severity:
    """Follow the calls of `super().initialize(…)` and return how certainly they reach BaseHandler's."""
    severity = Severity.ERROR
    for found in classes.definitions(cls, "initialize"):
        if isinstance(found.owner, ServerClass):
            return severity if ts.loads_as_base(found.owner.dotted) else Severity.NOTE
        function = found.function
        if function is None or not isinstance(found.owner, LocalClass) or function.decorator_list:
            return Severity.NOTE
        nodes = list(own_nodes(function))
        if any(_changes_manifest(node) for node in nodes) or not any(map(_calls_initialize, nodes)):
            return Severity.NOTE
        if not any(isinstance(item, ast.Expr) and _calls_initialize(item.value) for item in function.body):
            severity = Severity.WARNING  # only under a condition
    return Severity.NOTE


def _calls_initialize(node: ast.AST) -> bool:
    """Return whether a node is `super().initialize(context)` or `Base.initialize(self, context)`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="initialize", value=ast.Call(func=ast.Name(id="super")))):
            return True
        case ast.Call(func=ast.Attribute(attr="initialize"), args=[ast.Name(id="self"), *_]):
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
    bound = _bound_arguments(node, method=method)
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
    return f"requires {', '.join(repr(name) for name in needed)}" if needed else None


def _bound_arguments(node: Function, *, method: bool) -> int | None:
    """Return how many leading parameters Python fills; None if a decorator hides it."""
    names = {last_name(item) for item in getattr(node, "decorator_list", [])}
    if "staticmethod" in names:
        return 0
    return None if names - _TRANSPARENT - {"classmethod"} else int(method)


def check_constructor(classes: Classes, cls: LocalClass, role: str) -> Iterator[Finding]:
    """Yield why the server cannot construct a class; its role is "handler" or "model"."""
    for name in ("__new__", "__init__") if not cls.node.keywords else ():  # a metaclass may do anything
        found = classes.find(cls, name)
        if found is None or found.function is None or not isinstance(found.owner, LocalClass):
            continue
        if reason := call_error(found.function, 0, method=True):
            where = found.owner.module.at(found.function)
            yield codes.CLASS_NEEDS_ARGUMENTS.at(where, role=role, cls=cls.node.name, name=name, reason=reason)


def check_entry(context: LintContext) -> Iterator[Finding]:
    """Yield why the server cannot construct, initialize or call the handler."""
    yield from context.entry.findings
    entry, classes, awaited = context.entry, context.classes, context.config.awaited
    if entry.function is not None:
        module, node = entry.function.module, entry.function.node
        if reason := call_error(node, 2, method=False):
            yield codes.HANDLER_SIGNATURE.at(
                module.at(node), name=entry.name, arguments="data and context", reason=reason
            )
        yield from _check_answer(module, node, awaited=awaited)
    cls = entry.cls
    if isinstance(cls, ServerClass):
        name = cls.dotted.rpartition(".")[2]
        if awaited and name not in _ASYNC_HANDLERS:
            yield codes.HANDLER_BUILT_IN_NOT_ASYNC.at(_MANIFEST, name=name)
        if not awaited and name in _ASYNC_HANDLERS:
            yield codes.HANDLER_BUILT_IN_ASYNC.at(_MANIFEST, name=name)
    if isinstance(cls, LocalClass):
        yield from check_constructor(classes, cls, "handler")
        yield from _check_method(classes, cls, "initialize", ("context",))
        yield from _check_method(classes, cls, "handle", ("data", "context"))
        yield from _check_handle(classes, cls, awaited=awaited)
        yield from _check_skipped_initialize(classes, cls)


def _check_answer(module: Module, function: Function, *, awaited: bool) -> Iterator[Finding]:
    """Yield why a `handle` does not return a list."""
    if isinstance(function, ast.Lambda) or _bound_arguments(function, method=False) is None:
        return
    where, name, is_async = module.at(function), function.name, isinstance(function, ast.AsyncFunctionDef)
    nodes = list(own_nodes(function))
    returns = [node for node in nodes if isinstance(node, ast.Return) and node.value is not None]
    returns = [node for node in returns if not (isinstance(node.value, ast.Constant) and node.value.value is None)]
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes):
        yield codes.HANDLER_GENERATOR.at(where, name=name)
    elif is_async and not awaited:
        yield codes.HANDLER_ASYNC.at(where, name=name)
    elif awaited and not is_async:
        yield codes.HANDLER_NOT_ASYNC.at(where, name=name)
    elif not returns and not any(isinstance(node, ast.Raise) for node in nodes):
        yield codes.HANDLER_RETURNS_NOTHING.at(where, name=name)
    else:
        for node in sorted(returns, key=lambda node: node.lineno):
            if node.value is not None and (kind := _name_non_list(node.value)):
                yield codes.HANDLER_RETURNS_NO_LIST.at(module.at(node), name=name, kind=kind)


def _name_non_list(value: ast.expr) -> str | None:
    """Return the kind of a value that is certainly not a list."""
    if isinstance(value, ast.Constant):
        return _CONSTANTS.get(type(value.value))
    if isinstance(value, ast.Call) and dotted_name(value.func) == "json.dumps":
        return "a string"
    return _NOT_LISTS.get(type(value))


def _check_method(classes: Classes, cls: LocalClass, name: str, arguments: tuple[str, ...]) -> Iterator[Finding]:
    found = classes.find(cls, name)
    place = cls.module.at(cls.node)
    if found is None:
        nodes = [node for base in classes.order(cls) if isinstance(base, LocalClass) for node in walk(base.node)]
        is_set = any(
            (isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store))
            or (isinstance(node, ast.Call) and dotted_name(node.func) == "setattr")
            for node in nodes
        )
        if not is_set:
            yield codes.HANDLER_METHOD_MISSING.at(place, cls=cls.node.name, name=name)
    elif isinstance(found.owner, UnknownClass):
        yield codes.HANDLER_BASE_UNKNOWN.at(place, cls=cls.node.name, base=found.owner.text)
    elif isinstance(found.owner, LocalClass) and found.function:
        reason = call_error(found.function, len(arguments), method=True)
        where = found.owner.module.at(found.function)
        if reason:
            yield codes.HANDLER_SIGNATURE.at(where, name=name, arguments=" and ".join(arguments), reason=reason)


def _check_handle(classes: Classes, cls: LocalClass, *, awaited: bool) -> Iterator[Finding]:
    """Yield what is wrong with `handle`, or with the stages that BaseHandler's `handle` calls."""
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
        where = stage.owner.module.at(stage.function)
        if reason := call_error(stage.function, 1, method=True):
            yield codes.HANDLER_STAGE.at(where, name=name, reason=reason)
        elif isinstance(stage.function, ast.AsyncFunctionDef):
            yield codes.HANDLER_STAGE_ASYNC.at(where, name=name)
        elif name == "postprocess":  # `handle` returns its result
            yield from _check_answer(stage.owner.module, stage.function, awaited=False)


def _check_skipped_initialize(classes: Classes, cls: LocalClass) -> Iterator[Finding]:
    """Yield the first use of an attribute that only BaseHandler's `initialize` sets, if that is never called."""
    order = classes.order(cls)
    local = [base for base in order if isinstance(base, LocalClass)]
    found = classes.find(cls, "initialize")
    if found is None or found.owner not in local or not any(isinstance(base, ServerClass) for base in order):
        return
    if any(isinstance(base, UnknownClass) for base in order):
        return
    nodes = [node for base in local for node in walk(base.node)]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    names = {node.attr for node in attributes} | {node.id for node in nodes if isinstance(node, ast.Name)}
    if names & {"initialize", "__dict__", "setattr", "vars"}:
        return
    # Attributes that the class sets itself, and those that a condition tests: the class expects these to be missing.
    tests = [node.test for node in nodes if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert)]
    tested = [
        inner for node in (*tests, *(node for node in nodes if isinstance(node, ast.BoolOp))) for inner in walk(node)
    ]
    known = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
    unset = set(ts.SET_BY_INITIALIZE) - known - {node.attr for node in tested if isinstance(node, ast.Attribute)}
    uses = [(base.module, node) for base in local for node in _uses_of_self(base.node) if node.attr in unset]
    if uses:
        module = uses[0][0]
        line, name = min((node.lineno, node.attr) for each, node in uses if each is module)
        yield codes.HANDLER_SKIPS_INITIALIZE.at(module.at(line), name=name)


def _uses_of_self(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield `self.name` in `self.name[…]`, `self.name.more` and `self.name(…)`."""
    for node in walk(tree):
        match node:
            case (
                ast.Subscript(value=ast.Attribute(value=ast.Name(id="self")) as used)
                | ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")) as used)
                | ast.Call(func=ast.Attribute(value=ast.Name(id="self")) as used)
            ):
                yield used


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
    if loader.own_way or loader.cls is None or ServerClass(TEXT_HANDLER) not in context.classes.order(loader.cls):
        return
    named = context.manifest.model.extra.get("sourceVocab")
    name = named if isinstance(named, str) and named else _VOCABULARY
    if name not in context.files and (named or isinstance(context.owner("get_source_vocab_path"), ServerClass)):
        yield codes.VOCABULARY_MISSING.at(name, severity=loader.severity, name=name)


def check_lookups(context: LintContext) -> Iterator[Finding]:
    """Yield the keys that the handler reads and the manifest or the model config does not have."""
    module, config, seen = context.entry.module, context.config, set[str]()
    model = context.manifest.model
    files = (model.model_file, model.serialized_file, model.requirements_file, model.config_file)
    named = {key for key, name in zip(MANIFEST_FILES, files, strict=True) if name is not None}
    functions = [node for node in walk(module.tree) if isinstance(node, _FUNCTIONS)] if module else []
    for function in sorted(functions, key=lambda node: node.lineno):
        nodes = list(own_nodes(function))
        if module is None or any(isinstance(node, ast.Try) for node in nodes):
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
                is_config = isinstance(value, ast.Attribute) and value.attr == "model_yaml_config"
                yield node.lineno, key, is_config or (isinstance(value, ast.Name) and value.id in configs)
