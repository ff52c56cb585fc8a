"""Where requests enter an archive, from the handler's source text: never imported, only parsed."""

import ast
from collections.abc import Callable

from marpack.inspection.facts import HandlerFacts
from marpack.inspection.syntax import Broken, parse
from marpack.torchserve.stock import HandlerName

# BaseHandler's methods that archives override, in the order they run (contract §6).
STAGES = (
    "initialize", "preprocess", "inference", "postprocess", "handle",
    "explain_handle", "get_insights", "describe_handle", "get_device",
)  # fmt: skip
_HANDLERS = ("Handler", "Classifier", "Segmenter", "Detector", "Service")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def handler_facts(entry_point: str, read: Callable[[str], bytes | None]) -> HandlerFacts:
    """Return what the manifest's `handler` names.

    Args:
        entry_point: `file.py`, `file.py:function` or a built-in's name.
        read: Returns a member's bytes, or None when there is no such member.
    """
    name = HandlerName.parse(entry_point)
    file = f"{name.module}.py"
    source = read(file)
    if source is None:
        return HandlerFacts(entry_point=entry_point)
    tree = parse(source)
    if isinstance(tree, Broken):
        where = f"line {tree.line}: " if tree.line else ""
        return HandlerFacts(entry_point=entry_point, file=file, problem=where + tree.reason)
    return _entry(HandlerFacts(entry_point=entry_point, file=file), tree, name.function or "handle")


def _entry(known: HandlerFacts, tree: ast.Module, function: str) -> HandlerFacts:
    """Return the function if it is there, else the one class with `handle`, own or inherited (contract §2)."""
    if any(isinstance(node, _FUNCTIONS) and node.name == function for node in tree.body):
        return HandlerFacts(entry_point=known.entry_point, file=known.file, function=function)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    owners = [node for node in classes.values() if "handle" in _methods(node, classes)]
    heirs = [node for node in classes.values() if _may_inherit(node, classes)]
    found = owners if len(owners) == 1 else list({node.name: node for node in [*owners, *heirs]}.values())
    if len(found) != 1:
        names = ", ".join(node.name for node in found)
        problem = (
            f"several classes may have handle: {names}" if names else f"no function {function}, and no class with it"
        )
        return HandlerFacts(entry_point=known.entry_point, file=known.file, problem=problem)
    methods = _methods(found[0], classes)
    return HandlerFacts(
        entry_point=known.entry_point,
        file=known.file,
        class_name=found[0].name,
        bases=tuple(ast.unparse(base) for base in found[0].bases),
        stages=tuple(stage for stage in STAGES if stage in methods),
    )


def _may_inherit(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    """Tell whether a base that another file defines is a handler, by its name."""
    bases = (base for item in _chain(node, classes) for base in item.bases)
    names = (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in bases)
    return any(
        name not in classes and name.endswith(("Handler", "Classifier", "Segmenter", "Detector")) for name in names
    )


def _methods(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    parts = (part for item in _chain(node, classes) for part in item.body)
    return {part.name for part in parts if isinstance(part, _FUNCTIONS)}


def _chain(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """Return a class and those of its bases that the same file defines."""
    found = [node]
    for item in found:
        near = (classes[base.id] for base in item.bases if isinstance(base, ast.Name) and base.id in classes)
        found.extend(base for base in near if base not in found)
    return found
