"""A state_dict's keys held against the layers that the model file's class names."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from marpack.findings import Finding
from marpack.inspection.lint.classes import Library, Packed, Plain
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Module
from marpack.inspection.lint.nodes import walk
from marpack.inspection.lint.own_classes import count
from marpack.inspection.lint.signature import dotted_name

UNEXPECTED = Code(
    "Weights",
    "weights-unexpected-key",
    "The state_dict has tensors for a layer that the model file's class never mentions; load_state_dict refuses them.",
    "Save the state_dict of the class that is packed.",
)
LACKING = Code(
    "Weights",
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


def check_keys_of_state(library: Library, model: Module, keys: Iterable[str], where: str) -> Iterator[Finding]:
    """Yield the first key that the class has no place for, and the first place that no key fills.

    Args:
        library: Resolves the class's bases.
        model: The model file.
        keys: The state_dict's keys.
        where: The weights file's name.
    """
    one = count(model).the_one
    bases = library.order(Packed(model, one)) if one else []
    if one is None or not all(isinstance(base, Packed | Plain) for base in bases):
        return
    if not any(isinstance(base, Plain) and base.dotted.startswith("torch.nn.") for base in bases):
        return
    nodes = [node for base in bases if isinstance(base, Packed) for node in walk(base.node)]
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
