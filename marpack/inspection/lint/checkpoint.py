"""What a state_dict's own keys give away: a whole checkpoint, a model wrapped for training."""

import ast
from collections.abc import Iterator

from marpack.findings import Finding
from marpack.inspection.lint.classes import Library
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Module
from marpack.inspection.lint.nodes import walk
from marpack.inspection.lint.state_keys import check_keys_of_state
from marpack.weights import legacy
from marpack.weights.detect import Recognized
from marpack.weights.pickle_machine import Made, Table
from marpack.weights.zip_entries import NotZipError

CHECKPOINT = Code(
    "Weights",
    "weights-checkpoint",
    "The weights are a training checkpoint: load_state_dict wants the state_dict that lies under one of its keys.",
    "Save the inner one: torch.save(checkpoint[KEY], path).",
)
WRAPPED = Code(
    "Weights",
    "weights-data-parallel",
    "Every key begins with 'module.', as DataParallel leaves them, and the model file's class has no 'module'.",
    "Save the inner model's: torch.save(model.module.state_dict(), path).",
)
_PREFIX = "module."


def check_state(found: Recognized, library: Library, model: Module | None, where: str) -> Iterator[Finding]:
    """Yield why load_state_dict will not know the keys.

    Args:
        found: The weights file, recognised as a state_dict.
        library: Resolves the bases of the model's class.
        model: The model file, if it could be parsed.
        where: The weights file's name.
    """
    pairs = _pairs(_root(found))
    nested = [key for key, value in pairs if _holds_tensors(value) and not str(key).endswith("_extra_state")]
    names = [key for key, _ in pairs if isinstance(key, str)]
    if nested:
        key = str(nested[0])[:40]
        message = f"it is a checkpoint: the tensors lie under its key '{key}'"
        yield CHECKPOINT.warning(message, where, f"save the inner one: torch.save(checkpoint['{key}'], path)")
    elif names and all(name.startswith(_PREFIX) for name in names) and model and not _mentions(model, "module"):
        yield WRAPPED.warning("every key begins with 'module.', as DataParallel leaves them", where)
    elif names and model:
        yield from check_keys_of_state(library, model, names, where)


def is_mapping(found: Recognized) -> bool:
    """Say whether what was saved is a mapping, of tensors or anything else, and not a model."""
    return isinstance(root := _root(found), Table) or (isinstance(root, Made) and bool(root.items))


def _root(found: Recognized) -> object:
    if found.zip is None:
        saved = legacy.saved_object(found.pickles)
        return saved.root if saved else None
    try:
        return found.zip.pickle("data.pkl").root
    except (KeyError, NotZipError):
        return None


def _pairs(value: object) -> list[tuple[object, object]]:
    return value.items if isinstance(value, Table | Made) else []


def _holds_tensors(value: object) -> bool:
    """Say whether a value is a mapping with tensors, or modules of tensors, in it."""
    return any(isinstance(inner, Made) and not inner.items for _, inner in _pairs(value))


def _mentions(model: Module, name: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in walk(model.tree))
