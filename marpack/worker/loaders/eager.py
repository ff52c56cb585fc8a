"""An eager model: a class from the archive, and the state_dict that fills it (contract §2)."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from marpack.errors import HandlerError
from marpack.protocol.messages import Explained, note
from marpack.torchserve.entry_point import list_classes_from_module

_PREFIXES = ("module.", "_orig_mod.", "model.")  # DataParallel, torch.compile, Lightning
_NESTS = ("state_dict", "model_state_dict", "model")


class ModelFileMissingError(HandlerError, RuntimeError):
    """The manifest's model file is not in the archive; a RuntimeError, as on the server."""

    code = "model-file-missing"


class ModelClassError(HandlerError, ValueError):
    """The model file defines no class, or several; a ValueError, as on the server."""

    code = "model-class"


def load(model_dir: str, model_file: str, read: Callable[[], Any] | None) -> Any:  # Any: the author's class
    """Construct the archive's one model class as the server does, and load the state_dict that `read` returns into it.

    Without `read`, the model keeps the values that its `__init__` sets.

    Raises:
        ModelFileMissingError: There is no such file in the model folder.
        ModelClassError: The file defines no class of its own, or several.
        Exception: What the author's code raises, and what torch raises for a state_dict that does not fit.

    """
    if not (Path(model_dir) / model_file).is_file():
        hint = "modelFile must be the base name of a file at the archive's root"
        raise ModelFileMissingError(f"the model file {model_file} is not in the archive", hint=hint)
    found = list_classes_from_module(importlib.import_module(model_file.partition(".")[0]))
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise ModelClassError(
            f"the server requires exactly one class here, and finds {names}",
            where=model_file,
            hint="keep only the model's class in this file, and import its parts from files of their own",
        )
    try:
        model = found[0]()
    except TypeError as error:
        hint = "give every parameter of __init__ a default, or build the model in your handler's initialize"
        note("model-construct", f"{found[0].__name__}() failed: {error}", stage="initialize", hint=hint)
        raise
    if read is None:
        message = f"the manifest names no weights: {model_file} runs with the values that its __init__ sets"
        note("no-weights", message, stage="initialize", hint="name the serialized file, unless this is intended")
    else:
        fill(model, read())
    return model


def fill(model: Any, state: object) -> None:  # Any: the author's class
    """Load a state_dict into a model; if it does not fit, note the first tensors that don't."""
    with Explained(partial(_note_misfit, model, state)):
        model.load_state_dict(state)


def _note_misfit(model: object, state: object, _: Exception) -> None:
    if not isinstance(state, Mapping):
        message = f"the weights hold a {type(state).__name__}, not a state_dict"
        note("not-a-state-dict", message, stage="initialize", hint="save it as torch.save(model.state_dict(), path)")
        return
    if not isinstance(model, torch.nn.Module):
        return
    wanted, given = (
        {str(name): list(getattr(tensor, "shape", ())) for name, tensor in tensors.items()}
        for tensors in (model.state_dict(), state)
    )
    wrong = [name for name in wanted if name in given and wanted[name] != given[name]]
    missing = [name for name in wanted if name not in given]
    unknown = [name for name in given if name not in wanted]
    parts = []
    if wrong:
        shapes = f"{wrong[0]}: model {wanted[wrong[0]]}, file {given[wrong[0]]}"
        parts.append(f"{len(wrong)} of another shape ({shapes})")
    if missing:
        parts.append(f"{len(missing)} missing (first: {missing[0]})")
    if unknown:
        parts.append(f"{len(unknown)} unknown to the model (first: {unknown[0]})")
    nest = next((nest for nest in _NESTS if isinstance(state.get(nest), Mapping)), None)
    wrappers = [each for each in _PREFIXES if unknown and all(name.startswith(each) for name in unknown)]
    prefix = next((each for each in wrappers if unknown[0].removeprefix(each) in missing), None)
    hint = "pack the model file that these weights were trained with"
    if nest is not None:
        hint = f'this is a training checkpoint: torch.save(checkpoint["{nest}"], path) saves the state_dict alone'
    elif prefix is not None:
        hint = f'strip "{prefix}" from every name before saving: the model was wrapped when it was saved'
    message = f"the state_dict does not fit the model: {', '.join(parts) or 'torch refuses it'}"
    note("state-dict-misfit", message, stage="initialize", hint=hint)
