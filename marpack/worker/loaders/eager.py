"""An eager model: a class from the archive, and the state_dict that fills it (contract §2)."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from marpack.errors import HandlerError, WeightsError
from marpack.protocol.diagnostics import Explained, note
from marpack.torchserve.ts_util import list_classes_from_module
from marpack.worker.loaders.registry import Job

_PREFIXES = ("module.", "_orig_mod.", "model.")  # DataParallel, torch.compile, Lightning
_NESTS = ("state_dict", "model_state_dict", "model")


class ModelFileMissingError(HandlerError, RuntimeError):
    """The manifest's model file is not in the archive; a RuntimeError, as on the server."""

    code = "model-file-missing"


class ModelClassError(HandlerError, ValueError):
    """The model file defines no class, or several; a ValueError, as on the server."""

    code = "model-class"


def model_class(model_dir: str, model_file: str) -> type:
    """Import the model's file by its base name, and return its one class.

    Raises:
        ModelFileMissingError: There is no such file in the model folder.
        ModelClassError: The file defines no class of its own, or several.

    """
    if not (Path(model_dir) / model_file).is_file():
        hint = "modelFile must be the base name of a file at the archive's root"
        raise ModelFileMissingError(f"the model file {model_file} is not in the archive", hint=hint)
    found = list_classes_from_module(importlib.import_module(model_file.partition(".")[0]))
    if len(found) != 1:
        raise _not_one(found, model_file)
    return found[0]


def _not_one(found: list[type], model_file: str) -> ModelClassError:
    names = ", ".join(each.__name__ for each in found) or "none"
    return ModelClassError(
        f"the server wants exactly one class here, and finds {names}",
        where=model_file,
        hint="keep only the model's class in this file, and import its parts from files of their own",
    )


def construct(found: type) -> Any:  # Any: the author's class, an nn.Module by convention only
    """Construct the model as the server does, without arguments."""
    try:
        return found()
    except TypeError as error:
        hint = "give every parameter of __init__ a default, or build the model in your handler's initialize"
        note("model-construct", f"{found.__name__}() failed: {error}", stage="initialize", hint=hint)
        raise


class ModelFileNeededError(WeightsError):
    """Tensors came without the class they belong to."""

    code = "model-file-needed"


def load(model_dir: str, model_file: str, read: Callable[[], Any] | None) -> Any:  # Any: the author's class
    """Build the archive's one model class and load what `read` returns into it; without `read`, leave it as built.

    Raises as `model_class` does, and as torch does for a state_dict that does not fit.
    """
    model = construct(model_class(model_dir, model_file))
    if read is not None:
        fill(model, read())
        return model
    message = f"the manifest names no weights: {model_file} answers from the values its __init__ draws"
    note("no-weights", message, stage="initialize", hint="name the serialized file, unless that is meant")
    return model


def fill(model: Any, state: object) -> None:  # Any: the author's class
    """Load a state_dict into a model; if it does not fit, note the first tensors that don't."""
    with Explained(partial(_note_misfit, model, state)):
        model.load_state_dict(state)


def _note_misfit(model: object, state: object, _: Exception) -> None:
    if not isinstance(state, Mapping):
        message = f"the weights hold a {type(state).__name__}, not a state_dict"
        note("not-a-state-dict", message, stage="initialize", hint="save it as torch.save(model.state_dict(), path)")
    elif isinstance(model, torch.nn.Module):
        message, hint = misfit(model.state_dict(), state)
        note("state-dict-misfit", message, stage="initialize", hint=hint)


def misfit(wanted: Mapping[str, object], given: Mapping[object, object]) -> tuple[str, str]:
    """Tell in one sentence where a state_dict misses a model, and in another how to mend it."""
    missing = [name for name in wanted if name not in given]
    unknown = [str(name) for name in given if name not in wanted]
    wrong = [text for name in wanted if name in given and (text := _shapes(name, wanted[name], given[name]))]
    parts = (
        f"{len(wrong)} of another shape ({wrong[0]})" if wrong else "",
        f"{len(missing)} missing (first: {missing[0]})" if missing else "",
        f"{len(unknown)} unknown to the model (first: {unknown[0]})" if unknown else "",
    )
    reported = ", ".join(filter(None, parts)) or "torch refuses it"
    return f"the state_dict does not fit the model: {reported}", _way_out(missing, unknown, given)


def _shapes(name: str, wanted: object, given: object) -> str | None:
    model, file = (list(getattr(tensor, "shape", ())) for tensor in (wanted, given))
    return None if model == file else f"{name}: model {model}, file {file}"


def _way_out(missing: list[str], unknown: list[str], given: Mapping[object, object]) -> str:
    for nest in _NESTS:
        if isinstance(given.get(nest), Mapping):
            return f'this is a training checkpoint: torch.save(checkpoint["{nest}"], path) saves the state_dict alone'
    for prefix in _PREFIXES:
        if unknown and all(name.startswith(prefix) for name in unknown) and unknown[0].removeprefix(prefix) in missing:
            return f'strip "{prefix}" from every name before saving: the model was wrapped when it was saved'
    return "pack the model file that these weights were trained with"


def refuse_tensors(job: Job) -> NoReturn:
    """Say what tensors lack to become a model."""
    raise ModelFileNeededError(
        "the weights are tensors only, and the manifest names no model file",
        where=job.path.name,
        hint="set model_file: to the file with the model's class, or save TorchScript",
    )
