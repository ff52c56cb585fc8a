"""The class that an eager model's file defines, and the model made of it (contract §2)."""

import importlib
from pathlib import Path
from typing import Any

from marpack.errors import HandlerError
from marpack.torchserve.diagnostics import note
from marpack.torchserve.ts_util import list_classes_from_module


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
