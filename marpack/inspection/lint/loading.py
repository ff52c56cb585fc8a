"""Who loads the model: BaseHandler's `initialize`, or the handler in its own way; findings weigh accordingly."""

import ast

from msgspec import Struct

from marpack.findings import Severity
from marpack.inspection.lint.classes import Attribute, Class, Library, Packed, Server
from marpack.inspection.lint.entry import Entry, Kind
from marpack.inspection.lint.files import Module
from marpack.inspection.lint.nodes import walk
from marpack.inspection.lint.scope import Expression
from marpack.inspection.lint.signature import own_nodes
from marpack.torchserve import stock as ts


class Loader(Struct, frozen=True, kw_only=True):
    """How sure it is that BaseHandler's rules for model, labels and compiling apply."""

    severity: Severity = Severity.NOTE  # ERROR: they do; WARNING: they seem to; NOTE: the handler has its own way
    cls: Class | None = None

    @property
    def own_way(self) -> bool:
        """Whether the handler loads by itself, or nobody can tell."""
        return self.severity is Severity.NOTE


_WEIGHTS = (Severity.NOTE, Severity.WARNING, Severity.ERROR)


def loader_of(entry: Entry, library: Library) -> Loader:
    """Tell who loads the model."""
    if entry.kind is Kind.CLASS and entry.cls is not None:
        return Loader(severity=_severity(library, entry.cls), cls=entry.cls)
    if entry.kind is Kind.FUNCTION and entry.function is not None and entry.of is not None:
        cls = _initialised_class(library, entry.of, entry.function)
        if cls is not None:  # how the function gets there is its own business, hence no error
            return Loader(severity=_lighter(_severity(library, cls), Severity.WARNING), cls=cls)
    return Loader()


def is_servers_own(library: Library, loader: Loader, method: str) -> bool:
    """Say whether a method is the server's, for certain, and not overridden."""
    found = library.find(loader.cls, method) if loader.cls is not None else None
    return found is not None and isinstance(found.owner, Server)


def _severity(library: Library, cls: Class) -> Severity:
    """Walk along the chain of `super().initialize(…)` and see whether it ends at BaseHandler's."""
    severity = Severity.ERROR
    for found in library.definitions(cls, "initialize"):
        if isinstance(found.owner, Server):
            return severity if ts.loads_as_base(found.owner.dotted) else Severity.NOTE
        step = _step(found)
        if step is Severity.NOTE:
            return step
        severity = _lighter(severity, step)
    return Severity.NOTE


def _step(found: Attribute) -> Severity:
    """Return how sure it is that one `initialize` goes on to the next class's, with the manifest as it is."""
    function = found.function
    if function is None or not isinstance(found.owner, Packed) or function.decorator_list:
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


def _initialised_class(library: Library, module: Module, function: ast.AST) -> Class | None:
    """Return the class whose instance a handler function initialises: `_service.initialize(context)`."""
    for node in walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="initialize", value=ast.Name(id=name))):
                return _class_of_instance(library, module, name)
    return None


def _class_of_instance(library: Library, module: Module, name: str) -> Class | None:
    binding = module.scope.names.get(name)
    only = binding.only if binding else None
    if isinstance(only, Expression) and isinstance(only.node, ast.Call):
        return library.class_of(module, only.node.func)
    return None


def _lighter(one: Severity, other: Severity) -> Severity:
    return min(one, other, key=_WEIGHTS.index)
