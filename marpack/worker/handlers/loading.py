"""The steps of BaseHandler.initialize: device, weights by format, torch.compile, labels (contract §6).

They are functions, not methods, so that no method of an author's can get in their way; the methods that authors
do override are called through the handler.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from marpack.errors import WeightsError
from marpack.protocol.diagnostics import Explained, note
from marpack.protocol.targets import HandlerSettings, TargetDifference, settings_for
from marpack.torchserve.labels import LABELS_NAME, LabelError, load_label_mapping, map_class_to_label
from marpack.weights.kind import WeightsFormat
from marpack.worker.handlers.interfaces import DeviceHandler, Document, LoadableHandler
from marpack.worker.loaders import compilation, device, formats, onnx
from marpack.worker.loaders.diagnosis import hint_without_loader, import_torchvision, kind_of, note_cause
from marpack.worker.loaders.formats import Job

# ruff: noqa: SLF001 - the methods that authors override begin with an underscore on the server


class NoLoaderError(WeightsError, RuntimeError):
    """The server has no loader for these weights; a RuntimeError, as there."""

    code = "no-loader"


class NoWeightsError(WeightsError, AttributeError):
    """The manifest names no weights and no model file; an AttributeError, as on the server."""

    code = "no-weights"


def choose_device(handler: LoadableHandler, properties: Mapping[str, Any]) -> None:  # Any: the context's properties
    """Set the handler's `device` and `map_location`."""
    name = device.choose(device.survey(os.environ), properties.get("gpu_id"))
    handler.map_location = None if name == "xla" else name.partition(":")[0]  # as on the server
    handler.device = device.torch_device(name)


def weights_path(manifest: Document, model_dir: str) -> str | None:
    """Return where the manifest's weights lie, None if it names none."""
    if "serializedFile" not in manifest["model"]:
        return None
    return str(os.path.join(model_dir, manifest["model"]["serializedFile"]))  # noqa: PTH118 - handlers read a str


def load_model(handler: LoadableHandler, model_dir: str, settings: HandlerSettings) -> None:
    """Set the handler's `model`: by the weights' suffix as the server does, or by their content under target marpack.

    Raises NoLoaderError, NoWeightsError, and whatever the format's own loader raises, after noting what the file holds.
    """
    model_file = handler.manifest["model"].get("modelFile", "")
    _prepare_operators(handler, settings)
    with Explained(partial(note_cause, handler.model_pt_path, model_file)):
        if model_file:
            _load_eager(handler, model_dir, model_file)
        elif handler.model_pt_path is None:
            raise NoWeightsError(
                "the manifest names neither a serializedFile nor a modelFile",
                hint="set weights: in marpack.yaml, or load the model in your handler's own initialize",
            )
        elif settings.target.has(TargetDifference.MORE_FORMATS):
            _load_by_content(handler, handler.model_pt_path, settings)
        else:
            _load_by_suffix(handler, handler.model_pt_path)


def _prepare_operators(handler: LoadableHandler, settings: HandlerSettings) -> None:
    """Import torchvision where the server's module of this handler would have; always, under target marpack."""
    if handler.model_pt_path is None:
        return
    if handler._marpack_imports_torchvision or settings.target.has(TargetDifference.TORCHVISION_OPERATORS):
        import_torchvision(Path(handler.model_pt_path))


def _load_eager(handler: LoadableHandler, model_dir: str, model_file: str) -> None:
    handler.model = handler._load_pickled_model(model_dir, model_file, handler.model_pt_path)
    handler.model.to(handler.device)
    handler.model.eval()


def _load_by_suffix(handler: LoadableHandler, weights: str) -> None:
    if weights.endswith(".pt"):
        handler.model = handler._load_torchscript_model(weights)
        handler.model.eval()
    elif weights.endswith(".onnx"):
        handler.model = onnx.open_session(weights, handler.map_location)
    elif weights.endswith(".so") and handler._use_torch_export_aot_compile():
        _settle_on(handler)
        handler.model = handler._load_torch_export_aot_compile(weights)
    else:
        raise NoLoaderError(
            f"the server loads no weights like {Path(weights).name}",
            where="MANIFEST.json: serializedFile",
            hint=hint_without_loader(Path(weights)),
        )


def _load_by_content(handler: LoadableHandler, weights: str, settings: HandlerSettings) -> None:
    kind = kind_of(Path(weights))
    if kind is WeightsFormat.TORCHSCRIPT:
        handler.model = handler._load_torchscript_model(weights)
    elif kind is WeightsFormat.ELF:
        _settle_on(handler)
        handler.model = handler._load_torch_export_aot_compile(weights)
    else:
        handler.model = formats.load_model(kind, job_of(handler, weights, settings))
    if kind in {WeightsFormat.TORCHSCRIPT, WeightsFormat.PICKLED_MODULE}:  # an exported program is in that mode anyway
        handler.model.eval()


def _settle_on(handler: DeviceHandler) -> None:
    """Make a GPU the current one: the library's loader takes no device of its own."""
    device = torch.device(handler.device or "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)


def job_of(handler: DeviceHandler, weights: str, settings: HandlerSettings) -> Job:
    """Gather what a loader needs to know."""
    return Job(
        path=Path(weights),
        device=torch.device(handler.device or "cpu"),  # authors set it as text, or call the loaders without
        trust_pickle=settings.trust_pickle,
    )


def state_reader(handler: DeviceHandler, weights: str) -> Callable[[], Any]:  # Any: a state_dict, if all is well
    """Return what reads a state_dict's file: torch_save, and safetensors too under target marpack."""
    settings = settings_for(handler)
    if not settings.target.has(TargetDifference.MORE_FORMATS):
        return lambda: _state_as_server(weights, handler.device, settings)
    job = job_of(handler, weights, settings)
    return lambda: formats.load_state(kind_of(job.path), job)


def _state_as_server(weights: str, device: Any, settings: HandlerSettings) -> Any:  # Any: authors set it as text, too
    """Hand the file to torch.load, whatever it holds."""
    if str(weights).endswith(".safetensors"):
        # Newest torch reads it if the package safetensors is there, which no TorchServe brings along.
        raise NoLoaderError(
            "the server reads no safetensors",
            where=Path(weights).name,
            hint='torch.save(safetensors.torch.load_file(path), "model.pt"), or set target: marpack',
        )
    return formats.read_torch_save(weights, device, trust=settings.trust_pickle)


def asks_for_aot_compile(config: Document) -> bool:
    """Say whether a model config has `pt2: {export: {aot_compile: true}}`."""
    if "pt2" not in config:
        return False
    export = config["pt2"].get("export", None)
    return isinstance(export, dict) and bool(export.get("aot_compile", False) == True)  # noqa: E712 - 1 enables too


def compile_model(handler: LoadableHandler, settings: HandlerSettings) -> None:
    """Compile the handler's model if its config says so and the user has not said --no-compile."""
    if not hasattr(handler, "model_yaml_config") or "pt2" not in handler.model_yaml_config:
        return
    options = compilation.options_of(handler.model_yaml_config["pt2"])
    if options is not None and settings.compile:
        strict = settings.target.has(TargetDifference.PT2_ERRORS)
        handler.model = compilation.compile_model(handler.model, options, strict=strict)


def load_labels(model_dir: str) -> dict[str, str] | None:
    """Read the archive's labels, None if it has none; note why, if they cannot be read."""
    try:
        return load_label_mapping(os.path.join(model_dir, LABELS_NAME))  # noqa: PTH118 - a str, as handlers call it
    except (ValueError, LookupError, LabelError) as error:  # broken JSON, no text, an empty list, another shape
        hint = 'write {"0": "cat", "1": "dog"} as UTF-8 without a byte order mark'
        note("labels-unreadable", f"{LABELS_NAME} cannot be used: {error}", stage="initialize", hint=hint)
        raise


def label_rows(
    rows: list[list[Any]],  # Any: probabilities, or a detector's boxes
    mapping: dict[str, str] | None,
    classes: list[list[int]] | None = None,
) -> list[dict[str, Any]]:
    """Return one `{label: value}` per row; raises KeyError for a class without a label, after noting it."""
    try:
        return map_class_to_label(rows, mapping, classes)
    except KeyError as error:
        number = error.args[0]
        hint = f'add "{number}" to {LABELS_NAME}, or check that the labels belong to these weights'
        message = f"the model answers with class {number}, and {LABELS_NAME} names {len(mapping or ())} others"
        note("labels-gap", message, stage="postprocess", hint=hint)
        raise
