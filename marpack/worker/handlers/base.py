"""BaseHandler, which every handler inherits, and its oldest sibling, DenseNetHandler (contract §6, §7)."""

import abc
import io
import logging
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import profiler

from marpack.errors import HandlerError, MissingExtraError, WeightsError
from marpack.protocol.targets import HandlerSettings, TargetDifference, keep_settings, settings_for, settings_of
from marpack.torchserve.labels import LABELS_NAME, LabelError, load_label_mapping
from marpack.torchserve.metrics import MetricsStore
from marpack.torchserve.model_config import get_yaml_config
from marpack.weights.kind import SERVED, WeightsFormat
from marpack.worker.loaders import compilation, device, formats
from marpack.worker.loaders.diagnosis import hint_without_loader, import_torchvision, kind_of, note_cause
from marpack.worker.notes import Explained, attempt, note, record_output
from marpack.worker.stages import timed

# ruff: noqa: SLF001 - the methods that authors override begin with an underscore on the server

logger = logging.getLogger(__name__)
_TRACES = "/tmp/pytorch_profiler"  # noqa: S108 - where the server's users look for their traces
_COMPILER = ("torch._dynamo", "torch._inductor")

Rows = list[dict[str, Any]]  # Any: a field is bytearray, str or decoded JSON (contract §4)
Value = Any  # Any: authors' stages return what they like
Document = Any  # Any: JSON and YAML as they stand
Model = Any  # Any: a Module, an ONNX Runtime session or a compiled function
HandlerContext = Any  # Any: marpack's Context, or an author's mock


class NoLoaderError(WeightsError, RuntimeError):
    """The server has no loader for these weights; a RuntimeError, as there."""

    code = "no-loader"


class NoWeightsError(WeightsError, AttributeError):
    """The manifest names no weights and no model file; an AttributeError, as on the server."""

    code = "no-weights"


class OptionError(HandlerError):
    """A key of the `handler` section has an invalid value."""

    code = "handler-option"


# Examples of values: an integer of 1 or more, or a number of 0 or more. Sizes are in pixels.
_OPTIONS: dict[str, float] = {"topk": 3, "threshold": 0.5, "ngrams": 2, "resize": 256, "crop": 224}


class Deferred:
    """An object of Captum's, constructed when it is first used, as importing Captum takes long; MissingExtraError."""

    def __init__(self, name: str, *args: Any) -> None:  # Any: the model, and a layer of it
        self._name = name
        self._args = args

    def __getattr__(self, name: str) -> Any:  # Any: the attributor's own
        if name.startswith("_"):  # not set yet, as while copying
            raise AttributeError(name)
        try:
            import captum.attr  # noqa: PLC0415 - seconds of import that only explanations need
        except ModuleNotFoundError as error:
            if error.name != "captum":
                raise
            raise MissingExtraError("captum", "explain", "an explanation") from error
        return getattr(getattr(captum.attr, self._name)(*self._args), name)


# Not in initialize: authors replace that, and the server decides it when this module is imported.
if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0):  # Ampere or newer
    torch.set_float32_matmul_precision("high")


class BaseHandler(abc.ABC):  # noqa: B024 - ABC as on the server, whose subclasses list it again
    """Loads weights of any format the server takes, and responds with the model's output as nested lists.

    The methods that authors call or override have the server's names, arguments and exceptions. The other steps are
    functions of this module, so that no method of an author's replaces one.
    """

    # `vars` shows the server's attributes alone; marpack's settings of the handler are in a slot.
    __slots__ = ("__dict__", "__weakref__", "_marpack_settings")

    # The server's modules of the image handlers import torchvision, and with it its operators.
    _marpack_imports_torchvision = False

    def __init__(self) -> None:
        self.model: Model = None
        self.mapping: dict[str, str] | None = None
        self.device: torch.device | str | None = None  # authors also set it as text
        self.initialized = False
        self.context: HandlerContext = None
        self.model_pt_path: str | None = None
        self.manifest: Document = None
        self.map_location: str | None = None
        self.explain = False
        self.target = 0
        self.profiler_args: dict[str, Any] = {}  # Any: keyword arguments of torch.profiler.profile

    def initialize(self, context: HandlerContext) -> None:
        """Choose the device, load weights and labels, compile the model if the config says so (contract §6)."""
        if hasattr(context, "model_yaml_config"):
            self.model_yaml_config: Document = context.model_yaml_config
        settings = settings_of(context)
        keep_settings(self, settings)  # for stages that are called without a context
        name = device.choose(device.survey(os.environ), context.system_properties.get("gpu_id"))
        self.map_location = None if name == "xla" else name.partition(":")[0]  # as on the server
        self.device = device.torch_device(name)
        self.manifest = context.manifest
        model_dir = context.system_properties["model_dir"]
        self.model_pt_path = None
        if "serializedFile" in self.manifest["model"]:
            self.model_pt_path = os.path.join(model_dir, self.manifest["model"]["serializedFile"])  # noqa: PTH118 - a str
        if self.model_pt_path is not None and (
            self._marpack_imports_torchvision or settings.target.has(TargetDifference.TORCHVISION_OPERATORS)
        ):
            import_torchvision(Path(self.model_pt_path))
        with Explained(partial(note_cause, self.model_pt_path, self.manifest["model"].get("modelFile", ""))):
            _load_model(self, model_dir, settings)
        if hasattr(self, "model_yaml_config") and "pt2" in self.model_yaml_config:
            options = compilation.options_of(self.model_yaml_config["pt2"])
            if options is not None and settings.compile:
                strict = settings.target.has(TargetDifference.PT2_ERRORS)
                self.model = compilation.compile_model(self.model, options, strict=strict)
        try:
            self.mapping = load_label_mapping(os.path.join(model_dir, LABELS_NAME))  # noqa: PTH118 - a str
        except (ValueError, LookupError, LabelError) as error:  # broken JSON, no text, an empty list, another shape
            hint = 'Write an object such as {"0": "cat", "1": "dog"}, in UTF-8 without a byte order mark.'
            note("labels-unreadable", f"{LABELS_NAME} cannot be used: {error}", stage="initialize", hint=hint)
            raise
        self.initialized = True

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Model:
        return formats.load_library(model_so_path, self.map_location)

    def _load_torchscript_model(self, model_pt_path: str) -> Model:
        return formats.load_torchscript(model_pt_path, self.device, trust=settings_for(self).trust_pickle)

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Model:
        """Construct the model file's one class and load its state_dict, if there is one."""
        read = partial(read_state, model_pt_path, self.device, settings_for(self)) if model_pt_path else None
        return formats.load_eager(model_dir, model_file, read)

    def _use_torch_export_aot_compile(self) -> bool:
        """Return whether the config has `pt2: {export: {aot_compile: true}}`."""
        config = getattr(self, "model_yaml_config", {})
        export = config["pt2"].get("export", None) if "pt2" in config else None
        return isinstance(export, dict) and bool(export.get("aot_compile", False) == True)  # noqa: E712 - 1 enables too

    @timed
    def preprocess(self, data: Value) -> Value:
        """Make a tensor of the batch, on the handler's device."""
        return torch.as_tensor(data, device=self.device)

    @timed
    def inference(self, data: Value, *args: Value, **kwargs: Value) -> Value:
        """Call the model with the batch on its device, without autograd."""
        with torch.inference_mode():
            batch = data.to(self.device)
            with Explained(partial(_note_call, self.model, batch)):
                output = self.model(batch, *args, **kwargs)
            record_output(output)
            return output

    @timed
    def postprocess(self, data: Value) -> Value:
        """Make nested lists of the model's output."""
        note_nonfinite(data)
        with explained_output("a tensor", data):
            return data.tolist()

    def handle(self, data: Rows, context: HandlerContext) -> Value:
        """Respond to one batch, with an explanation or a description if asked; adds the metric HandlerTime in ms."""
        start = time.time()
        self.context = context
        metrics = context.metrics
        if os.environ.get("ENABLE_TORCH_PROFILER"):  # read per request: handlers may set it themselves
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
        """Respond to one batch and record every stage; completes `profiler_args` in place."""
        arguments = self.profiler_args
        if not arguments:
            arguments["activities"] = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
            arguments["record_shapes"] = True
        if "on_trace_ready" not in arguments:
            folder = f"{_TRACES}/{self.manifest['model'].get('modelName', '')}"
            arguments["on_trace_ready"] = profiler.tensorboard_trace_handler(folder)
            logger.info("traces go to %s", folder)
        with profiler.profile(**arguments) as recorded:
            with profiler.record_function("preprocess"):
                prepared = self.preprocess(data)
            if self._is_explain():
                with profiler.record_function("explain"):
                    output = self.explain_handle(prepared, data)
            else:
                with profiler.record_function("inference"):
                    output = self.inference(prepared)
                with profiler.record_function("postprocess"):
                    output = self.postprocess(output)
        logger.info(recorded.key_averages().table(sort_by="cpu_time_total", row_limit=10))
        return output, recorded

    def explain_handle(self, data_preprocess: Value, raw_data: Rows) -> Value:
        """Call `get_insights`, which the author wrote or inherits, with the first row's input and `target`."""
        row: Value = raw_data[0]
        inputs, target = None, 0
        if isinstance(row, dict):
            inputs, target = row.get("data") or row.get("body"), row.get("target") or 0
        if not hasattr(self, "get_insights"):
            message = f"{type(self).__name__} has no get_insights, which explanations need"
            hint = "Define get_insights(self, tensor_data, raw_data, target), or use a base class that has it."
            note("no-insights", message, stage="explain_handle", hint=hint)
        insights: Value = self.get_insights  # type: ignore[attr-defined]  # the author's
        return insights(data_preprocess, inputs, target)

    def _is_explain(self) -> bool:
        """Return whether the batch's first request is for an explanation, and remember it in `explain`."""
        explains = bool(self.context and self.context.get_request_header(0, "explain") == "True")
        if explains:
            self.explain = True  # not read: a subclass may do without `__init__`
        return explains

    def _is_describe(self) -> bool:
        return bool(self.context and self.context.get_request_header(0, "describe") == "True")

    def describe_handle(self) -> Document:
        """Describe the model: nothing here, for authors to override."""
        return None

    def get_device(self) -> torch.device | str | None:
        """Return the device of model and inputs."""
        return self.device


def _load_model(handler: BaseHandler, model_dir: str, settings: HandlerSettings) -> None:
    """Set the handler's `model`: by the weights' suffix as the server does, under target marpack by their content."""
    weights, model_file = handler.model_pt_path, handler.manifest["model"].get("modelFile", "")
    if model_file:
        handler.model = handler._load_pickled_model(model_dir, model_file, weights)
        handler.model.to(handler.device)
        handler.model.eval()
    elif weights is not None:
        _load_whole_model(handler, weights, settings)
    else:
        hint = "Set weights: in marpack.yaml, or load the model in your handler's initialize."
        raise NoWeightsError("the manifest names neither a serializedFile nor a modelFile", hint=hint)


def _load_whole_model(handler: BaseHandler, weights: str, settings: HandlerSettings) -> None:
    target = torch.device(handler.device or "cpu")
    by_content = settings.target.has(TargetDifference.MORE_FORMATS)
    if by_content:
        kind = kind_of(Path(weights))
    else:
        kinds = (served for suffix, served in SERVED.items() if weights.endswith(str(suffix)))
        kind = next(kinds, WeightsFormat.UNKNOWN)
        if kind is WeightsFormat.ELF and not handler._use_torch_export_aot_compile():
            kind = WeightsFormat.UNKNOWN
    if kind is WeightsFormat.TORCHSCRIPT:
        handler.model = handler._load_torchscript_model(weights)
    elif kind is WeightsFormat.ELF:
        if target.type == "cuda":  # the library's loader takes the current GPU
            torch.cuda.set_device(target)
        handler.model = handler._load_torch_export_aot_compile(weights)
    elif by_content:
        handler.model = formats.load_model(kind, Path(weights), target, trust=settings.trust_pickle)
    elif kind is WeightsFormat.ONNX:
        handler.model = formats.open_session(weights, handler.map_location)
    else:
        path = Path(weights)
        what, where = f"the server has no loader for weights like {path.name}", "MANIFEST.json: serializedFile"
        raise NoLoaderError(what, where=where, hint=hint_without_loader(path))
    if kind in {WeightsFormat.TORCHSCRIPT, WeightsFormat.PICKLED_MODULE}:  # an exported program is in that mode anyway
        handler.model.eval()


def read_state(weights: str, where: torch.device | str | None, settings: HandlerSettings) -> Value:
    """Read a state_dict: a file of torch.save as on the server, and safetensors too under target marpack."""
    if settings.target.has(TargetDifference.MORE_FORMATS):
        where = torch.device(where or "cpu")
        if kind_of(Path(weights)) is WeightsFormat.SAFETENSORS:
            return formats.load_safetensors(Path(weights), where)
    elif str(weights).endswith(".safetensors"):
        # Newest torch reads it if the package safetensors is installed; a TorchServe has neither.
        hint = 'Convert them: torch.save(safetensors.torch.load_file(path), "model.pt"). Or set target: marpack.'
        raise NoLoaderError("the server does not read safetensors", where=Path(weights).name, hint=hint)
    return formats.read_torch_save(weights, where, trust=settings.trust_pickle)


def improves(handler: object, difference: TargetDifference) -> bool:
    """Return whether a handler has marpack's improved behavior in one point."""
    return settings_for(handler).target.has(difference)


def read_options(handler: BaseHandler, known: tuple[str, ...]) -> dict[str, float]:
    """Return the options in the config's `handler` section, none for target torchserve; raises OptionError."""
    config = getattr(handler, "model_yaml_config", None)
    section = config.get("handler") if isinstance(config, dict) else None
    options = {key: section[key] for key in known if key in section} if isinstance(section, dict) else {}
    if options and not improves(handler, TargetDifference.HANDLER_OPTIONS):
        message = f"the server does not read handler.{', handler.'.join(options)} in the model config"
        hint = "Set them as attributes of a subclass, or set target: marpack."
        note("handler-options", message, stage="initialize", hint=hint)
        return {}
    for key, value in options.items():
        example = _OPTIONS[key]
        kinds, minimum = ((int,), 1) if isinstance(example, int) else ((int, float), 0)
        if type(value) not in kinds or value < minimum:  # not isinstance, which takes a bool for an int
            what = f"{value!r} is not {'an integer' if kinds == (int,) else 'a number'} of {minimum} or more"
            raise OptionError(
                what, where=f"model-config.yaml: handler.{key}", hint=f"Write a valid value, such as {key}: {example:g}"
            )
    return options


def _note_call(model: object, batch: object, error: Exception) -> None:
    """Note what a model was called with when the call failed, or why it cannot be called."""
    # TorchScript puts its own trace first and the reason last; the compiler names the backend first.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    reason = lines[-1] if "TorchScript" in lines[0] else " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if "onnxruntime" in kind and not callable(model):
        message = "self.model is an ONNX Runtime session on the server, which BaseHandler.inference cannot call"
        hint = "Override inference with self.model.run(None, {name: array}), or set target: marpack."
        note("onnx-session", message, stage="inference", hint=hint)
    elif not callable(model):
        set_it = "Set self.model in initialize, or call super().initialize(context) there."
        message = f"self.model is a {kind}, which cannot be called"
        note("no-model", message, stage="inference", hint=set_it if model is None else None)
    elif type(error).__module__.startswith(_COMPILER):
        hint = "Run with --no-compile to see the model's own error. Then fix it, or remove pt2 from the config."
        note("compile-failed", f"torch.compile failed: {reason}", stage="inference", hint=hint)
    else:
        hint = "Compare shape and dtype with those that the model was trained or exported with."
        note("model-call", f"the model was called with {_describe(batch)}: {reason}", stage="inference", hint=hint)


def _describe(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor {list(value.shape)} {str(value.dtype).removeprefix('torch.')} on {value.device}"


def note_nonfinite(output: object) -> None:
    """Note NaN and infinity in a model's output: the server sends them on, and no strict JSON parser reads them."""
    if not isinstance(output, torch.Tensor):
        return
    count = attempt(lambda: int(output.numel() - torch.isfinite(output.detach()).sum()))
    # An output whose numbers cannot be tested (float8, a subclass's) is still a response.
    if count and not isinstance(count, Exception):
        message = f"{count} of {output.numel()} numbers in the model's output are NaN or infinite"
        hint = "Look for a division by zero, an overflow in half precision, or untrained weights."
        note("not-finite", message, stage="postprocess", hint=hint)


@contextmanager
def explained_output(wanted: str, output: object) -> Iterator[None]:
    """Note what the model returned and what the handler takes, if the handler fails on it."""
    try:
        yield
    except (AttributeError, IndexError, TypeError):
        returned = _describe(output)
        if isinstance(output, dict):
            returned = f"a dict of {', '.join(map(str, output)) or 'nothing'}"
        elif isinstance(output, (list, tuple)) and output:
            returned = f"a {type(output).__name__} of {len(output)}, the first {_describe(output[0])}"
        hint = "Return that from the model, or override postprocess."
        message = f"the model returned {returned}, but this handler needs {wanted}"
        note("model-output", message, stage="postprocess", hint=hint)
        raise


class DenseNetHandler:
    """Stacks the tensors of a batch, as `torch.save` writes them, and responds to all of them with one."""

    def __init__(self) -> None:
        self.model: Model = None
        self.device: torch.device | str | None = None
        self.initialized = False
        self.context: HandlerContext = None
        self.manifest: Document = None
        self.map_location: str | None = None

    def initialize(self, context: HandlerContext) -> None:
        """Load TorchScript, or the model file's one class; raises RuntimeError without weights."""
        gpu_id = context.system_properties.get("gpu_id")
        on_gpu = torch.cuda.is_available() and gpu_id is not None
        self.map_location = "cuda" if on_gpu else "cpu"
        self.device = torch.device(f"cuda:{gpu_id}" if on_gpu else "cpu")
        self.manifest = context.manifest
        model_dir = str(context.system_properties["model_dir"])
        weights = str(Path(model_dir, self.manifest["model"]["serializedFile"]))
        if not Path(weights).is_file():
            raise RuntimeError("Missing the model.pt file")
        model_file = self.manifest["model"].get("modelFile", "")
        if model_file:
            self.model = self._load_pickled_model(model_dir, model_file, weights)
        else:
            self.model = self._load_torchscript_model(weights)
        self.model.to(self.device)
        self.model.eval()
        self.initialized = True

    def _load_torchscript_model(self, model_pt_path: str) -> Model:
        device = torch.device(self.map_location or "cpu")
        return formats.load_torchscript(model_pt_path, device, trust=settings_for(self).trust_pickle)

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str) -> Model:
        read = partial(read_state, model_pt_path, self.device, settings_for(self))
        return formats.load_eager(model_dir, model_file, read)

    def inference(self, data: Value, *args: Value, **kwargs: Value) -> Value:
        """Call the model with the batch on its device, without autograd."""
        batch = data.to(self.device)
        with torch.no_grad():
            return self.model(batch, *args, **kwargs)

    def handle(self, data: Rows, context: HandlerContext) -> list[Value]:
        """Respond to one batch with one tensor, which the server takes for one request only."""
        start = time.time()
        self.context = context
        metrics = context.metrics
        tensors = [torch.load(io.BytesIO(row.get("data") or row.get("body"))) for row in data]  # type: ignore[arg-type]
        output = self.inference(torch.stack(tensors))
        metrics.add_time("HandlerTime", round((time.time() - start) * 1000, 2), None, "ms")
        return [output]


class MockContext:
    """The smallest context that initializes a handler, for its author's own tests (contract §8)."""

    def __init__(
        self,
        model_pt_file: str | None = "model.pt",
        model_dir: str = "ts/torch_handler/unit_tests/models/tmp",
        model_file: str | None = "model.py",
        gpu_id: str | int | None = "0",
        model_name: str = "mnist",
        model_yaml_config_file: str | None = None,
    ) -> None:
        model = {"serializedFile": model_pt_file, "modelFile": model_file}
        self.manifest = {"model": {key: name for key, name in model.items() if name}}
        self.system_properties: dict[str, Any] = {"model_dir": model_dir}  # Any: paths and numbers
        if torch.cuda.is_available() and gpu_id:
            self.system_properties["gpu_id"] = gpu_id
        self.explain = False
        self.metrics = MetricsStore(uuid.uuid4(), model_name)
        self.model_yaml_config: Any = {}  # Any: YAML as it stands
        if model_yaml_config_file:
            path = os.path.join(model_dir, model_yaml_config_file)  # noqa: PTH118 - authors pass any kind of path
            self.model_yaml_config = get_yaml_config(path)

    def get_request_header(self, idx: int, exp: str) -> bool:
        """Return `explain` for every header of every row but the first, as the server's mock does."""
        return bool(idx and exp and self.explain)
