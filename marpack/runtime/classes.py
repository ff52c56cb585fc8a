"""Which classes a module defines itself: how the server finds handlers and models (contract §2)."""

import importlib
import inspect
from types import ModuleType


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """Return the classes defined in a module, not those it imports, sorted by name."""
    own = [member for _, member in inspect.getmembers(module, inspect.isclass) if member.__module__ == module.__name__]
    return own if parent_class is None else [member for member in own if issubclass(member, parent_class)]


def import_class(class_name: str, module_prefix: str | None = None) -> type:
    """Return the class of a dotted name, below `module_prefix` if one is given.

    Raises ImportError for an empty name, one without a module, and one that is not there.
    """
    if not class_name:
        raise ImportError("the class to import has no name")
    module_name, _, name = class_name.rpartition(".")
    path = ".".join(part for part in (module_prefix, module_name) if part)
    if not path:
        raise ImportError(f"{class_name!r} names no module to import the class from")
    found: type | None = getattr(importlib.import_module(path), name, None)
    if found is None:
        raise ImportError(f"there is no class {name} in the module {path}")
    return found
