"""BaseHandler: what every handler inherits, stage by stage as on the server; Captum's explanations (§6, §7)."""

import abc
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import profiler

from marpack.errors import MissingExtraError
from marpack.protocol.diagnostics import Explained, note, tell_output
from marpack.protocol.targets import keep_settings, settings_of
from marpack.worker.handlers import loading
from marpack.worker.handlers.call_diagnostics import explained_output, note_call, note_nonfinite
from marpack.worker.handlers.interfaces import Document, HandlerContext, Model, Rows, Value
from marpack.worker.handlers.timing import timed
from marpack.worker.loaders import eager, formats
from marpack.worker.loaders.device import use_tensor_cores

logger = logging.getLogger(__name__)
_TRACES = "/tmp/pytorch_profiler"  # noqa: S108 - where the server's users look for their traces
Insights = Callable[[Value, Value, Value], Value]


def subject(row: object) -> tuple[Value, Value]:
    """Return a row's input and its `target`, 0 if it names none."""
    if not isinstance(row, dict):
        return None, 0
    return row.get("data") or row.get("body"), row.get("target") or 0


def insights_of(handler: Any) -> Insights:  # Any: handlers with and without the method
    """Return the handler's `get_insights`; AttributeError, as on the server, where its author wrote none."""
    if not hasattr(handler, "get_insights"):
        message = f"{type(handler).__name__} has no get_insights, which explanations need"
        hint = "write get_insights(self, tensor_data, raw_data, target), or inherit from a built-in that has it"
        note("no-insights", message, stage="explain_handle", hint=hint)
    insights: Insights = handler.get_insights
    return insights


class Deferred:
    """One of Captum's attributors, made when something of it is asked for: importing Captum takes long."""

    def __init__(self, name: str, *args: Any) -> None:  # Any: the model, and a layer of it
        self._name = name
        self._args = args

    def __getattr__(self, name: str) -> Any:  # Any: the attributor's own
        if name.startswith("_"):  # not set yet, as while copying
            raise AttributeError(name)
        return getattr(getattr(captum_attr(), self._name)(*self._args), name)


def captum_attr() -> ModuleType:
    """Import captum.attr; raises MissingExtraError naming the package and the extra."""
    try:
        import captum.attr  # noqa: PLC0415 - seconds of import that only explanations need
    except ModuleNotFoundError as error:
        if error.name != "captum":
            raise
        raise MissingExtraError("captum", "explain", "an explanation") from error
    module: ModuleType = captum.attr
    return module


# Not in initialize: authors replace that, and the server decides it when this module is imported.
use_tensor_cores()


class BaseHandler(abc.ABC):  # noqa: B024 - ABC as on the server, whose subclasses list it again
    """Loads weights of any format the server takes, and answers with the model's output as nested lists.

    Authors override `initialize`, `preprocess`, `inference` and `postprocess`; what they call or override here has
    the server's names, arguments and exceptions.
    """

    # `vars` shows the server's attributes alone; marpack's settings of the handler are in a slot.
    __slots__ = ("__dict__", "__weakref__", "_marpack_settings")

    # The server's modules of the image handlers import torchvision, and with it its operators.
    _marpack_imports_torchvision = False

    def __init__(self) -> None:
        self.model: Model = None
        self.mapping: dict[str, str] | None = None
        self.device: torch.device | str | None = None
        self.initialized = False
        self.context: HandlerContext | None = None
        self.model_pt_path: str | None = None
        self.manifest: Document = None
        self.map_location: str | None = None
        self.explain = False
        self.target = 0
        self.profiler_args: dict[str, Any] = {}  # Any: keyword arguments of torch.profiler.profile

    def initialize(self, context: HandlerContext) -> None:
        """Choose the device, load weights and labels, compile the model if the config says so (contract §6).

        Raises RuntimeError for weights of a format the server does not load, and whatever torch raises on loading.
        """
        if hasattr(context, "model_yaml_config"):
            self.model_yaml_config: Document = context.model_yaml_config
        settings = settings_of(context)
        keep_settings(self, settings)  # for stages that are called without a context
        loading.choose_device(self, context.system_properties)
        self.manifest = context.manifest
        model_dir = context.system_properties["model_dir"]
        self.model_pt_path = loading.weights_path(self.manifest, model_dir)
        loading.load_model(self, model_dir, settings)
        loading.compile_model(self, settings)
        self.mapping = loading.load_labels(model_dir)
        self.initialized = True

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Model:
        """Load an AOTInductor shared library."""
        return formats.load_library(model_so_path, self.map_location)

    def _load_torchscript_model(self, model_pt_path: str) -> Model:
        """Load TorchScript to the handler's device."""
        return formats.load_torchscript(model_pt_path, self.device)

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Model:
        """Build the model file's one class and load its state_dict, if there is one.

        Raises RuntimeError without the model file, ValueError unless it defines exactly one class.
        """
        read = loading.state_reader(self, model_pt_path) if model_pt_path else None
        return eager.load(model_dir, model_file, read)

    def _use_torch_export_aot_compile(self) -> bool:
        """Say whether the config has `pt2: {export: {aot_compile: true}}`."""
        return loading.asks_for_aot_compile(getattr(self, "model_yaml_config", {}))

    @timed
    def preprocess(self, data: Value) -> Value:
        """Make a tensor of the batch, on the handler's device."""
        return torch.as_tensor(data, device=self.device)

    @timed
    def inference(self, data: Value, *args: Value, **kwargs: Value) -> Value:
        """Call the model with the batch on its device, without autograd."""
        with torch.inference_mode():
            batch = data.to(self.device)
            with Explained(partial(note_call, self.model, batch)):
                output = self.model(batch, *args, **kwargs)
            tell_output(output)
            return output

    @timed
    def postprocess(self, data: Value) -> Value:
        """Make nested lists of the model's output."""
        note_nonfinite(data)
        with explained_output("a tensor", data):
            return data.tolist()

    def handle(self, data: Rows, context: HandlerContext) -> Value:
        """Answer one batch: preprocess, inference, postprocess, or what its headers ask for instead.

        Adds the metric HandlerTime in ms.
        """
        start = time.time()
        self.context = context
        metrics = context.metrics
        if os.environ.get("ENABLE_TORCH_PROFILER"):  # asked per request: handlers may switch it on themselves
            self.manifest = context.manifest if self.manifest is None else self.manifest
            output, _ = self._infer_with_profiler(data=data)
        elif self._is_describe():
            output = [self.describe_handle()]
        else:
            prepared = self.preprocess(data)
            if self._is_explain():
                output = self.explain_handle(prepared, data)
            else:
                output = self.postprocess(self.inference(prepared))
        metrics.add_time("HandlerTime", round((time.time() - start) * 1000, 2), None, "ms")
        return output

    def _infer_with_profiler(self, data: Rows) -> tuple[Value, profiler.profile]:
        """Answer one batch under torch's profiler, and return its traces too."""
        return _profiled(self, data)

    def explain_handle(self, data_preprocess: Value, raw_data: Rows) -> Value:
        """Attribute the answer to the input: hand the first row's input and `target` to `get_insights`."""
        inputs, target = subject(raw_data[0])
        return insights_of(self)(data_preprocess, inputs, target)

    def _is_explain(self) -> bool:
        """Say whether the batch's first request wants an explanation, and remember it in `explain`."""
        asked = _header_is_true(self.context, "explain")
        if asked:
            self.explain = True  # not read: a subclass may do without `__init__`
        return asked

    def _is_describe(self) -> bool:
        """Say whether the batch's first request wants a description."""
        return _header_is_true(self.context, "describe")

    def describe_handle(self) -> Document:
        """Describe the model: nothing here, for authors to override."""
        return None

    def get_device(self) -> torch.device | str | None:
        """Return the device of model and inputs."""
        return self.device


def _header_is_true(context: HandlerContext | None, name: str) -> bool:
    return bool(context and context.get_request_header(0, name) == "True")


def _profiled(handler: BaseHandler, data: Rows) -> tuple[Value, profiler.profile]:
    with profiler.profile(**_profiler_arguments(handler)) as recorded:
        output = _answer(handler, data)
    logger.info(recorded.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    return output, recorded


def _answer(handler: BaseHandler, data: Rows) -> Value:
    """Answer one batch with every stage recorded."""
    with profiler.record_function("preprocess"):
        prepared = handler.preprocess(data)
    if handler._is_explain():  # noqa: SLF001 - the contract's name, for authors to override
        with profiler.record_function("explain"):
            return handler.explain_handle(prepared, data)
    with profiler.record_function("inference"):
        output = handler.inference(prepared)
    with profiler.record_function("postprocess"):
        return handler.postprocess(output)


def _profiler_arguments(handler: BaseHandler) -> dict[str, Any]:  # Any: keyword arguments of torch.profiler.profile
    """Complete the handler's own `profiler_args` in place, for its author to read back."""
    arguments = handler.profiler_args
    if not arguments:
        arguments.update(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA], record_shapes=True)
    if "on_trace_ready" not in arguments:
        folder = f"{_TRACES}/{handler.manifest['model'].get('modelName', '')}"
        arguments["on_trace_ready"] = profiler.tensorboard_trace_handler(folder)
        logger.info("traces go to %s", folder)
    return arguments
