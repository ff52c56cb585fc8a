"""Find a handler's entry point as the server does: the archive's module first, a built-in only when there is none."""

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from msgspec import Struct

from marpack.torchserve.context import Handle
from marpack.torchserve.stock import BUILT_INS, HandlerName
from marpack.torchserve.ts_util import list_classes_from_module


class HandlerEntry(Struct, frozen=True):
    """What the server calls: `handle` for every batch, `initialize` once before."""

    name: str  # module.Class or module:function, for people
    handle: Handle
    initialize: Callable[[Any], Any]  # Any: Context → ignored
    instance: object | None = None  # of a handler class


class EntryPointError(Exception):
    """The module has no entry point that the server would take."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def find_entry(handler: str) -> HandlerEntry:
    """Import a handler and return its entry point (contract §2).

    Raises whatever importing raises; EntryPointError when there is not exactly one entry point.
    """
    name = HandlerName.parse(handler)
    module = _import_module(name.module, handler)
    if hasattr(module, name.function or "handle"):
        return _function_entry(module, name.function or "handle")
    return _class_entry(module, name.function)


def _import_module(name: str, handler: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        # The server then tries its built-ins by the handler's whole name; any other error of the module is final.
        built_in = BUILT_INS.get(handler)
        if built_in is None:
            raise
    return importlib.import_module(built_in.module)


def _function_entry(module: ModuleType, name: str) -> HandlerEntry:
    handle = getattr(module, name)
    of = getattr(module, "__name__", type(module).__name__)  # it may have put something else in its own place
    return HandlerEntry(name=f"{of}:{name}", handle=handle, initialize=lambda context: handle(None, context))


def _class_entry(module: ModuleType, function: str | None) -> HandlerEntry:
    classes = _own_classes(module)
    if len(classes) != 1:
        raise _not_one(module, classes, function)
    instance = classes[0]()
    name = f"{module.__name__}.{classes[0].__name__}"
    for method, arguments in (("handle", "data, context"), ("initialize", "context")):
        if not hasattr(instance, method):
            raise EntryPointError(
                f"the class {name} has no method `{method}`",
                f"derive it from ts.torch_handler.base_handler.BaseHandler, or write {method}(self, {arguments})",
            )
    return HandlerEntry(name=name, handle=instance.handle, initialize=instance.initialize, instance=instance)


def _own_classes(module: ModuleType) -> list[type]:
    built_in = BUILT_INS.get(module.__name__.removeprefix("ts.torch_handler."))
    if built_in is not None and module.__name__ == built_in.module:
        return [getattr(module, built_in.cls)]
    return list_classes_from_module(module)


def _not_one(module: ModuleType, classes: list[type], function: str | None) -> EntryPointError:
    wanted = f"function `{function}`" if function else "function `handle`"
    file = inspect.getsourcefile(module) or module.__name__
    if not classes:
        return EntryPointError(
            f"{file} defines no {wanted} and no class of its own", "write one class that derives from BaseHandler"
        )
    names = ", ".join(cls.__name__ for cls in classes)
    return EntryPointError(
        f"{file} defines no {wanted} and {len(classes)} classes ({names}); the server takes exactly one",
        "move the other classes to a module of their own and import them",
    )
