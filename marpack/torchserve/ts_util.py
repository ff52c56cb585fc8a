"""What `ts.utils.util` holds: classes of a module, backends, PredictionException, decorators (contract §2, §5, §6)."""

import enum
import functools
import importlib
import inspect
import logging
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

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
    """Say whether the server compiles with this backend; it skips every other one with a log line."""
    if backend in [member.value for member in PT2Backend]:  # no set: a list in its place cannot be hashed
        return True
    logger.warning("%s is not a backend the server knows", backend)
    return False


class PredictionException(Exception):  # noqa: N818 - the contract's name
    """Fail every row of the batch with a status code and message of the handler's choice."""

    def __init__(self, message: Any, error_code: Any = 500) -> None:  # Any: handlers pass what they like
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


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


def timeit(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that fails when it is called: the server's asks for `time.clock`, which Python has no more."""

    @functools.wraps(function)
    def timed(*_args: P.args, **_kwargs: P.kwargs) -> R:
        raise AttributeError("module 'time' has no attribute 'clock'")

    return timed
