"""A handler's entry point, found as the server finds it, and the functions of `ts.utils.util` (contract §2, §6)."""

import enum
import functools
import importlib
import inspect
import logging
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct

from marpack.torchserve.context import Handle
from marpack.torchserve.server_modules import BUILT_INS, HandlerName

logger = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")
IPEX_AVAILABLE = False
ONNX_AVAILABLE = True
PROFILER_AVAILABLE = True
PT230_AVAILABLE = True
PT2_AVAILABLE = True
XLA_AVAILABLE = False


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


class PT2Backend(str, enum.Enum):  # noqa: UP042 - the contract's base classes
    """Backends by the names that model-config.yaml uses."""

    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    INDUCTOR = "inductor"
    NVFUSER = "nvfuser"
    AOT_NVFUSER = "aot_nvfuser"
    AOT_CUDAGRAPHS = "aot_cudagraphs"
    OFI = "ofi"
    FX2TRT = "fx2trt"
    ONNXRT = "onnxrt"
    IPEX = "ipex"
    TORCHXLA_TRACE_ONCE = "torchxla_trace_once"
    OPENVINO = "openvino"
    TENSORRT = "tensorrt"
    HPU_BACKEND = "hpu_backend"


def check_valid_pt2_backend(backend: str) -> bool:
    """Return whether the server compiles with this backend; it skips every other one with a log line."""
    if backend in [member.value for member in PT2Backend]:  # no set: a list in its place cannot be hashed
        return True
    logger.warning("%s is not a backend the server knows", backend)
    return False


def deprecated(
    version: object, replacement: str = "", klass: type[Warning] = PendingDeprecationWarning
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that warns at every call of the function it decorates.

    Args:
        version: The version from which the function is deprecated.
        replacement: The dotted name to use instead.
        klass: The warning's class.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def warned(*args: P.args, **kwargs: P.kwargs) -> R:
            text = f"{function.__name__} is deprecated since {version}; use {replacement}"
            warnings.warn(text, klass, stacklevel=2)
            return function(*args, **kwargs)

        return warned

    return decorate


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
    try:
        module = importlib.import_module(name.module)
    except ImportError:
        # The server then tries its built-ins by the handler's whole name; any other error of the module is final.
        if handler not in BUILT_INS:
            raise
        module = importlib.import_module(BUILT_INS[handler].module)
    function = name.function or "handle"
    if not hasattr(module, function):
        return _class_entry(module, name.function)
    handle = getattr(module, function)
    of = getattr(module, "__name__", type(module).__name__)  # it may have put something else in its own place
    return HandlerEntry(name=f"{of}:{function}", handle=handle, initialize=lambda context: handle(None, context))


def _class_entry(module: ModuleType, function: str | None) -> HandlerEntry:
    built_in = BUILT_INS.get(module.__name__.removeprefix("ts.torch_handler."))
    if built_in is not None and module.__name__ == built_in.module:
        classes = [getattr(module, built_in.cls)]
    else:
        classes = list_classes_from_module(module)
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
