"""Who loads the model; the model file's one class, and its layers against the keys of the state_dict."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.manifest import Manifest
from marpack.findings import Finding, Severity
from marpack.inspection.lint.bindings import Count, Expression, count, odd_line
from marpack.inspection.lint.classes import (
    Attribute,
    Class,
    Library,
    LocalClass,
    PlainClass,
    ServerClass,
    check_constructing,
)
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.entry_point import EntryDecision, HandlerFile, LocalFunction
from marpack.inspection.lint.files import Files, Module, broken
from marpack.inspection.lint.model_config import ModelConfig
from marpack.inspection.lint.requirements import Requirements
from marpack.inspection.lint.source import Broken, dotted_name, own_nodes, walk
from marpack.protocol.targets import Target
from marpack.torchserve import server_modules as ts
from marpack.torchserve.server_modules import never_found

MANIFEST = "MAR-INF/MANIFEST.json: model.modelFile"

MISSING = Code(
    "model-file-missing",
    "The model file is not in the archive.",
    "Pack the file at the archive's root, or leave modelFile out.",
)
FILE_NAME = Code(
    "model-file-name",
    "The server imports the model file by its name up to the first dot, from the archive's root.",
    "Rename the file to a plain name such as model.py, and pack it at the root.",
)
NO_CLASS = Code(
    "model-no-class",
    "The model file has no class of its own; imported classes do not count.",
    "Define the model's class in the model file: class Model(Imported): pass.",
)
MANY_CLASSES = Code(
    "model-many-classes",
    "The model file has more than one class of its own, and the server wants exactly one.",
    "Move the building blocks into another packed module and import them: imported classes do not count.",
)
UNDECIDED = Code(
    "model-undecided",
    "Only running the model file would tell how many classes it has.",
    "Define the model's class at the module's top level, under no condition.",
)
NO_MODULE = Code(
    "model-not-a-module",
    "The model's class is no torch.nn.Module, so it has no load_state_dict, to or eval.",
    "Derive the class from torch.nn.Module.",
)
UNEXPECTED = Code(
    "weights-unexpected-key",
    "The state_dict has tensors for a layer that the model file's class never mentions; load_state_dict refuses them.",
    "Save the state_dict of the class that is packed.",
)
LACKING = Code(
    "weights-missing-key",
    "The model file's class has a layer that the state_dict has no tensors for; load_state_dict refuses it.",
    "Save the state_dict of the class that is packed.",
)

# Layers that always have tensors.
_FILLED = frozenset(
    {"Linear", "Bilinear", "Embedding", "EmbeddingBag", "LSTM", "GRU", "RNN", "MultiheadAttention", "Parameter"}
    | {f"{kind}{dimensions}d" for kind in ("Conv", "ConvTranspose") for dimensions in (1, 2, 3)}
)
_UNSEEN = frozenset({"setattr", "add_module", "register_module", "__setattr__", "load_state_dict"})


class LoadingStrategy(Struct, frozen=True, kw_only=True):
    """How sure it is that BaseHandler's rules for model, labels and compiling apply."""

    severity: Severity = Severity.NOTE  # ERROR: they do; WARNING: they seem to; NOTE: the handler has its own way
    cls: Class | None = None

    @property
    def own_way(self) -> bool:
        """Whether the handler loads by itself, or nobody can tell."""
        return self.severity is Severity.NOTE

    @property
    def warning(self) -> Severity:
        """How much it weighs that one of these rules is broken, and the server may cope."""
        return lighter(self.severity, Severity.WARNING)


class LintContext(Struct, frozen=True, kw_only=True):
    """One archive with all that the rules need to know of it, worked out once."""

    files: Files
    manifest: Manifest
    target: Target
    library: Library
    config: ModelConfig
    requirements: Requirements
    handler: HandlerFile
    entry: EntryDecision
    loader: LoadingStrategy

    @property
    def model_file(self) -> Module | None:
        """The model file, parsed, if there is one."""
        name = self.manifest.model.model_file
        return self.library.packed(name.partition(".")[0]) if name and name in self.files else None

    def is_servers_own(self, method: str) -> bool:
        """Say whether a method of the handler's is the server's, for certain, and not overridden."""
        return isinstance(self.owner(method), ServerClass)

    def owner(self, method: str) -> Class | None:
        """Return the class that the handler, where it loads as BaseHandler does, has a method from."""
        found = self.library.find(self.loader.cls, method) if self.loader.cls is not None else None
        return found.owner if found else None


def check_model_file(context: LintContext) -> Iterator[Finding]:
    """Yield why the server cannot make the model of the model file."""
    name, files, severity = context.manifest.model.model_file, context.files, context.loader.severity
    if not name:
        return
    if name not in files:
        yield MISSING.weigh(severity, f"the model file '{name}' is not in the archive", MANIFEST)
        return
    dotted = name.split(".")[0]
    if name.endswith(".ipynb"):
        hint = f"jupyter nbconvert --to script {name}, keep the model's class alone in it, and name the .py file"
        yield FILE_NAME.weigh(severity, f"'{name}' is a notebook, and the server imports Python files", MANIFEST, hint)
    elif "/" in name or name != f"{dotted}.py":
        yield FILE_NAME.weigh(severity, f"the server imports '{dotted}', which is not '{name}'", name)
    elif never_found(dotted):
        yield FILE_NAME.weigh(severity, f"the server imports Python's own module '{dotted}' instead", name)
    elif module := context.library.packed(dotted):
        yield from _check_class(context.library, module, severity)
    else:
        located = files.locate(dotted)
        tree = files.module(located) if located and located.member == name else None
        if isinstance(tree, Broken):
            yield broken(name, tree, severity)


def _check_class(library: Library, module: Module, severity: Severity) -> Iterator[Finding]:
    counted = count(module.scope)
    one = counted.the_one
    if one is None:
        yield _not_one(module, counted, severity)
        return
    cls = LocalClass(module, one)
    for finding in (*check_constructing(library, cls, "model"), *_check_module(library, cls)):
        yield replace(finding, severity=severity)


def _not_one(module: Module, counted: Count, severity: Severity) -> Finding:
    listed = ", ".join(counted.names[:6]) + (", …" if len(counted.names) > 6 else "")
    if counted.low > 1:
        message = f"it has {counted.low} classes of its own ({listed}) where the server wants exactly one"
        return MANY_CLASSES.weigh(severity, message, module.at(odd_line(module.scope, counted, "forward")))
    if counted.high == 0:
        return NO_CLASS.weigh(severity, "it has no class of its own", module.member)
    return UNDECIDED.note(f"only running it would tell how many classes it has ({listed})", module.member)


def _check_module(library: Library, cls: LocalClass) -> Iterator[Finding]:
    order = library.order(cls)
    if not all(isinstance(base, LocalClass | PlainClass) for base in order):
        return
    if any(isinstance(base, PlainClass) and base.dotted.startswith("torch.nn.") for base in order):
        return
    if library.find(cls, "load_state_dict") is None:
        message = f"the class {cls.node.name} is no torch.nn.Module"
        yield NO_MODULE.error(message, cls.module.at(cls.node))


def check_keys_of_state(library: Library, model: Module, keys: Iterable[str], where: str) -> Iterator[Finding]:
    """Yield the first key that the model file's class has no place for, and the first place that no key fills."""
    one = count(model.scope).the_one
    bases = library.order(LocalClass(model, one)) if one else []
    if one is None or not all(isinstance(base, LocalClass | PlainClass) for base in bases):
        return
    if not any(isinstance(base, PlainClass) and base.dotted.startswith("torch.nn.") for base in bases):
        return
    nodes = [node for base in bases if isinstance(base, LocalClass) for node in walk(base.node)]
    mentioned = {name for node in nodes for name in _names(node)}
    if mentioned & _UNSEEN:
        return
    layers = dict.fromkeys(key.partition(".")[0] for key in keys)
    extra = next((name for name in layers if name not in mentioned), None)
    if extra is not None:
        message = f"it has tensors for '{extra[:40]}', which the class {one.name} never mentions"
        yield UNEXPECTED.warning(message, where)
    lacking = next((name for name in _filled(one) if name not in layers), None)
    if lacking is not None:
        yield LACKING.warning(f"it has nothing for '{lacking[:40]}', a layer of the class {one.name}", where)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _filled(cls: ast.ClassDef) -> list[str]:
    """Return the layers with tensors that `__init__` makes under no condition, and nobody touches again."""
    init = next((item for item in cls.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    made = [name for statement in (init.body if init else ()) if (name := _layer(statement))]
    attributes = (node for node in walk(cls) if isinstance(node, ast.Attribute))
    changed = Counter(node.attr for node in attributes if not isinstance(node.ctx, ast.Load))
    return [name for name in made if changed[name] == 1]


def _layer(statement: ast.stmt) -> str | None:
    """Return the name in `self.name = nn.Linear(…)`."""
    match statement:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call(func=function)):
            made = (dotted_name(function) or "").rpartition(".")[2]
            return name if made in _FILLED else None
    return None


_WEIGHTS = (Severity.NOTE, Severity.WARNING, Severity.ERROR)


def loader_of(entry: EntryDecision, library: Library) -> LoadingStrategy:
    """Tell who loads the model."""
    if entry.cls is not None:
        return LoadingStrategy(severity=_severity(library, entry.cls), cls=entry.cls)
    if entry.function is not None:
        cls = _initialised_class(library, entry.function)
        if cls is not None:  # how the function gets there is its own business, hence no error
            return LoadingStrategy(severity=lighter(_severity(library, cls), Severity.WARNING), cls=cls)
    return LoadingStrategy()


def _severity(library: Library, cls: Class) -> Severity:
    """Walk along the chain of `super().initialize(…)` and see whether it ends at BaseHandler's."""
    severity = Severity.ERROR
    for found in library.definitions(cls, "initialize"):
        if isinstance(found.owner, ServerClass):
            return severity if ts.loads_as_base(found.owner.dotted) else Severity.NOTE
        step = _step(found)
        if step is Severity.NOTE:
            return step
        severity = lighter(severity, step)
    return Severity.NOTE


def _step(found: Attribute) -> Severity:
    """Return how sure it is that one `initialize` goes on to the next class's, with the manifest as it is."""
    function = found.function
    if function is None or not isinstance(found.owner, LocalClass) or function.decorator_list:
        return Severity.NOTE
    if any(_touches_manifest(node) for node in own_nodes(function)):
        return Severity.NOTE
    if any(isinstance(item, ast.Expr) and _is_super_call(item.value) for item in function.body):
        return Severity.ERROR
    called = any(_is_super_call(node) for node in own_nodes(function))
    return Severity.WARNING if called else Severity.NOTE


def _is_super_call(node: ast.AST) -> bool:
    """Recognise `super().initialize(context)` and `Base.initialize(self, context)`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="initialize", value=ast.Call(func=ast.Name(id="super")))):
            return True
        case ast.Call(func=ast.Attribute(attr="initialize"), args=[ast.Name(id="self"), *_]):
            return True
    return False


def _touches_manifest(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(
        isinstance(inner, ast.Attribute) and inner.attr in {"manifest", "_system_properties", "model_yaml_config"}
        for target in targets
        if isinstance(target, ast.Subscript)
        for inner in walk(target)
    )


def _initialised_class(library: Library, function: LocalFunction) -> Class | None:
    """Return the class whose instance a handler function initialises: `_service.initialize(context)`."""
    for node in walk(function.node):
        match node:
            case ast.Call(func=ast.Attribute(attr="initialize", value=ast.Name(id=name))):
                return _class_of_instance(library, function.module, name)
    return None


def _class_of_instance(library: Library, module: Module, name: str) -> Class | None:
    binding = module.scope.names.get(name)
    only = binding.only if binding else None
    if isinstance(only, Expression) and isinstance(only.node, ast.Call):
        return library.class_of(module, only.node.func)
    return None


def lighter(one: Severity, other: Severity) -> Severity:
    """Return the severity that weighs less."""
    return min(one, other, key=_WEIGHTS.index)
