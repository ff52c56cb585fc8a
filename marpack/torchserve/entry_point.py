"""A handler's entry point, the envelopes around it, and the functions of `ts.utils.util` (contract §2, §6, §9)."""

import base64
import enum
import functools
import importlib
import inspect
import itertools
import json
import logging
import warnings
from abc import ABC, abstractmethod
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
# numpy's names, or its letters for kinds → the protocol's
_DATATYPES = {"bool": "BOOL", "byte": "BYTES", "object": "BYTES", "U": "BYTES"}
_DATATYPES |= {f"{kind}{bits}": f"{kind}{bits}".upper() for kind in ("uint", "int") for bits in (8, 16, 32, 64)}
_DATATYPES |= {f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)}


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """Return the classes defined in a module, not those it imports, sorted by name."""
    own = [member for _, member in inspect.getmembers(module, inspect.isclass) if member.__module__ == module.__name__]
    return own if parent_class is None else [member for member in own if issubclass(member, parent_class)]


def import_class(class_name: str, module_prefix: str | None = None) -> type:
    """Return the class of a dotted name, below `module_prefix` if one is given; raises ImportError."""
    if not class_name:
        raise ImportError("the class to import has no name")
    module_name, _, name = class_name.rpartition(".")
    path = ".".join(part for part in (module_prefix, module_name) if part)
    if not path:
        raise ImportError(f"{class_name!r} names no module to import the class from")
    found: type | None = getattr(importlib.import_module(path), name, None)
    if found is None:
        raise ImportError(f"the module {path} has no class {name}")
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
    """Return a decorator that warns at every call: deprecated since `version`, use `replacement` instead."""

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
    """Import a handler and return its entry point (contract §2); EntryPointError unless there is exactly one."""
    name = HandlerName.parse(handler)
    try:
        module = importlib.import_module(name.module)
    except ImportError:
        # The server then tries its built-ins by the handler's whole name; any other error of the module is final.
        if handler not in BUILT_INS:
            raise
        module = importlib.import_module(BUILT_INS[handler].module)
    function = name.function or "handle"
    if hasattr(module, function):
        handle = getattr(module, function)
        of = getattr(module, "__name__", type(module).__name__)  # it may have put something else in its own place
        return HandlerEntry(name=f"{of}:{function}", handle=handle, initialize=lambda context: handle(None, context))
    built_in = BUILT_INS.get(module.__name__.removeprefix("ts.torch_handler."))
    if built_in is not None and module.__name__ == built_in.module:
        classes = [getattr(module, built_in.cls)]
    else:
        classes = list_classes_from_module(module)
    if len(classes) != 1:
        missing = f"{inspect.getsourcefile(module) or module.__name__} defines no function `{function}`"
        if not classes:
            raise EntryPointError(f"{missing} and no class", "Define one class that derives from BaseHandler.")
        names = ", ".join(cls.__name__ for cls in classes)
        raise EntryPointError(
            f"{missing}, and {len(classes)} classes ({names}) instead of one",
            "Move the other classes to another module, and import them.",
        )
    instance = classes[0]()
    class_name = f"{module.__name__}.{classes[0].__name__}"
    for method, arguments in (("handle", "data, context"), ("initialize", "context")):
        if not hasattr(instance, method):
            raise EntryPointError(
                f"the class {class_name} has no method `{method}`",
                f"Derive it from ts.torch_handler.base_handler.BaseHandler, or define {method}(self, {arguments}).",
            )
    return HandlerEntry(name=class_name, handle=instance.handle, initialize=instance.initialize, instance=instance)


class BaseEnvelope(ABC):
    """Translates another protocol's requests to a handler's rows, and its answers back.

    Rows and answers are `Any`: values that do not fit must fail where and as they fail on the server.
    """

    answers_one = False  # the first request of a batch alone

    def __init__(self, handle_fn: Handle) -> None:
        self._handle_fn = handle_fn
        self.context: Any = None

    def handle(self, data: Any, context: Any) -> Any:
        """Answer one batch; an empty batch and an empty answer pass untouched."""
        self.context = context
        answers = self._handle_fn(self.parse_input(data) if data else data, context)
        return self.format_output(answers) if answers else answers

    @abstractmethod
    def parse_input(self, data: Any) -> Any:
        """Return the handler's rows."""

    @abstractmethod
    def format_output(self, data: Any) -> Any:
        """Return the answers in the protocol's form."""


def _payload(row: Any) -> Any:
    return row.get("data") or row.get("body")


class BodyEnvelope(BaseEnvelope):
    """Unwraps each row to its `data` or `body`; answers pass untouched."""

    def parse_input(self, data: Any) -> Any:
        """Return one payload per row."""
        return [_payload(row) for row in data]

    def format_output(self, data: Any) -> Any:
        """Return the answers as they are."""
        return data


class JSONEnvelope(BaseEnvelope):
    """Joins the instances of all requests into one batch for the handler, and shares its answers out again."""

    _lengths: list[int] = []  # noqa: RUF012 - replaced, never changed

    def parse_input(self, data: Any) -> Any:
        """Return every instance of every request, `{"b64": …}` decoded to bytes."""
        groups = [(_payload(row) or row)["instances"] for row in data]
        # Only an instance that comes first decides, as on the server: a mixture fails there, and here.
        groups = [[_decoded(item) for item in group] if isinstance(group[0], dict) else group for group in groups]
        self._lengths = [len(group) for group in groups]
        return list(itertools.chain.from_iterable(groups))

    def format_output(self, data: Any) -> Any:
        """Return one JSON text per request."""
        bounds = itertools.pairwise(itertools.accumulate(self._lengths, initial=0))
        return [json.dumps({"predictions": data[start:end]}) for start, end in bounds]


def _decoded(item: Any) -> Any:
    if list(item.keys()) == ["b64"]:
        return base64.b64decode(item["b64"])
    inner = {key: value for key, value in item.items() if isinstance(value, dict) and list(value) == ["b64"]}
    return item | {key: base64.b64decode(value["b64"]) for key, value in inner.items()}


class KServeEnvelope(BaseEnvelope):
    """Passes the first request's instances on; the others of a batch are lost, as on the server."""

    answers_one = True

    def parse_input(self, data: Any) -> Any:
        """Return the instances of the first request."""
        body = [_payload(row) for row in data][0]  # noqa: RUF015 - every row is looked at, as on the server
        if isinstance(body, bytes | bytearray):
            body = json.loads(body.decode())
        return body.get("instances")

    def format_output(self, data: Any) -> Any:
        """Return one response for a batch of any size."""
        explains = self.context and self.context.get_request_header(0, "explain") == "True"
        return [{"explanations" if explains else "predictions": data}]


class KServev2Envelope(BaseEnvelope):
    """Passes the first request's tensors on, one row each; output types follow numpy, not the request."""

    answers_one = True

    def parse_input(self, data: Any) -> Any:
        """Return the inputs of the first request, their data in the shape asked for; of BYTES the first element."""
        import numpy as np  # noqa: PLC0415 - few archives have this envelope

        bodies = [_payload(row) for row in data]
        if isinstance(bodies[0], bytes | bytearray):
            bodies = [json.loads(body.decode("utf8")) for body in bodies]
        inputs = bodies[0]["inputs"]
        for tensor in inputs:
            if tensor["datatype"] == "BYTES":
                tensor["data"] = tensor["data"][0]
            else:
                tensor["data"] = np.array(tensor["data"]).reshape(tuple(tensor["shape"])).tolist()
        self.context.input_names = [tensor["name"] for tensor in inputs]
        request_id = bodies[0].get("id")
        if request_id and request_id.strip():
            self.context.input_request_id = request_id
        return [body.get("inputs") for body in bodies][0]  # noqa: RUF015 - every body is looked at, as on the server

    def format_output(self, data: Any) -> Any:
        """Return one v2 response for a batch of any size."""
        import numpy as np  # noqa: PLC0415 - as above

        model = self.context.manifest.get("model")
        if hasattr(self.context, "input_request_id"):
            request_id = self.context.input_request_id
            del self.context.input_request_id
        else:
            request_id = self.context.get_request_id(0)
        answer = {"id": request_id, "model_name": model.get("modelName"), "model_version": model.get("modelVersion")}
        names = self.context.input_names
        del self.context.input_names
        outputs = []
        for index, item in enumerate(data):
            flat = np.array(item).flatten()
            datatype = _DATATYPES[str(flat.dtype) if str(flat.dtype) in _DATATYPES else flat.dtype.kind]
            outputs.append({"name": names[index], "datatype": datatype, "data": flat.tolist(), "shape": flat.shape})
        return [answer | {"outputs": outputs}]


ENVELOPES: dict[str, type[BaseEnvelope]] = {
    "base": BaseEnvelope,  # type: ignore[type-abstract]  # as on the server: making one fails
    "body": BodyEnvelope,
    "json": JSONEnvelope,
    "kserve": KServeEnvelope,
    "kservev2": KServev2Envelope,
}


def envelope_of(name: str | None, handle: Handle) -> Handle:
    """Return an entry point wrapped in the envelope of that name; unchanged without one; ModuleNotFoundError."""
    if not name:
        return handle
    if name not in ENVELOPES:
        known = ", ".join(sorted(set(ENVELOPES) - {"base"}))
        raise ModuleNotFoundError(f"the envelope {name!r} does not exist; use one of {known}")
    return ENVELOPES[name](handle).handle


def loses_requests(handle: Handle) -> str | None:
    """Return the name of the envelope around an entry point, if it answers the first request of a batch alone."""
    envelope = getattr(handle, "__self__", None)
    if not isinstance(envelope, BaseEnvelope) or not envelope.answers_one:
        return None
    return next(name for name, kind in ENVELOPES.items() if kind is type(envelope))
