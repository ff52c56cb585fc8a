"""Notes on why weights do not load; and torchvision's operators, which some weights need."""

import importlib
import importlib.util
import os
import pickle
import re
import sys
import traceback
from pathlib import Path

from marpack.archive.zip_format import NotZipError
from marpack.errors import MarpackError, describe_os_error
from marpack.weights.contents import TorchZip, detect
from marpack.weights.kind import FORMATS, SERVED, WeightsFormat
from marpack.worker.notes import attempt, note

_SUFFIXES = (".py", ".json", ".cpp")
_CODE = ("code/", "models/", "serialized_exported_program.json", "data/aotinductor/")  # what names operators
_CALLS = re.compile(rb"\bops\.torchvision\.|\btorchvision::")  # and not the mere name of a class's module
_OWN_LOADERS = {  # an author's call: format that it refuses → hint
    ("torch.jit._serialization", "load"): {
        WeightsFormat.STATE_DICT: "Build the model in your handler, and call model.load_state_dict(torch.load(path)).",
        WeightsFormat.PICKLED_MODULE: "Save TorchScript instead: torch.jit.script(model).save(path)",
    },
    ("torch.serialization", "load"): {
        WeightsFormat.PICKLED_MODULE: (
            "Save model.state_dict() instead, or pass weights_only=False if you trust the file as you trust code."
        )
    },
}
_BY_SUFFIX = {**SERVED, ".pth": WeightsFormat.TORCHSCRIPT}  # which authors call so, and the server does not know
_OTHERWISE = "Save TorchScript as .pt, load the weights in your handler's initialize, or set target: marpack."
_DAMAGED = "Compare size and digest with the file that it was copied from."


def needs_torchvision(path: Path) -> bool:
    """Return whether a TorchScript file, an exported program or a compiled package calls torchvision's operators."""
    try:
        with path.open("rb") as file:
            archive = TorchZip(file)
            names = [name for name in archive.members if name.startswith(_CODE) and name.endswith(_SUFFIXES)]
            return any(_CALLS.search(archive.open(name).read()) for name in names)
    except (OSError, NotZipError):
        return False


def import_torchvision(path: Path) -> None:
    """Import torchvision if these weights need it; note it if it is not installed, or fails."""
    if not needs_torchvision(path):
        return
    if importlib.util.find_spec("torchvision") is None:
        message = f"{path.name} uses torchvision's operators, and torchvision is not installed here"
        note("torchvision-missing", message, stage="initialize", hint="Install it: pip install torchvision")
        return
    failure = attempt(lambda: importlib.import_module("torchvision"))
    if isinstance(failure, Exception):  # one that was built for another torch raises anything
        hint = "Install the torchvision version for your torch."
        note("torchvision-broken", f"torchvision is installed but fails: {failure}", stage="initialize", hint=hint)


def kind_of(path: Path) -> WeightsFormat:
    """Return the format of a weights file by its content."""
    with path.open("rb") as file:
        return detect(file)


def hint_without_loader(path: Path) -> str:
    """Return a hint for weights that the server has no loader for."""
    return (FORMATS[kind_of(path)].as_model or _OTHERWISE) if path.is_file() else "Pack the weights with the archive."


def note_cause(weights: str | None, model_file: str, error: Exception) -> None:
    """Note the format of a weights file that does not load, if it is not the format that its use needs."""
    if weights is None or isinstance(error, MarpackError):  # which says so itself
        return
    path = Path(weights)
    try:
        kind = kind_of(path)
    except OSError as missing:
        message = f"{path.name} cannot be read: {describe_os_error(missing)}"
        hint = "Use the weights' name in the archive as serializedFile in the manifest."
        note("weights-missing", message, stage="initialize", hint=hint)
        return
    if "torchvision" not in sys.modules and needs_torchvision(path):
        message = f"{path.name} uses torchvision's operators, which torch knows only once torchvision is imported"
        hint = "Import torchvision in your handler: the server's base_handler does not import it."
        note("torchvision-operators", message, stage="initialize", hint=hint)
    wanted = WeightsFormat.STATE_DICT if model_file else _BY_SUFFIX.get(path.suffix)
    noted = kind is WeightsFormat.PICKLED_MODULE and isinstance(error, pickle.UnpicklingError)  # with its globals
    if wanted is None or kind is wanted or noted:
        return
    hints = {WeightsFormat.TORCHSCRIPT: FORMATS[kind].as_model, WeightsFormat.STATE_DICT: FORMATS[kind].as_state}
    otherwise = _DAMAGED if kind is WeightsFormat.UNKNOWN else f"Save it as {wanted}, or use the suffix of its format."
    message = f"the format of {path.name} ({path.stat().st_size} bytes) is {kind}, and its use here needs {wanted}"
    note("weights-format", message, stage="initialize", hint=hints.get(wanted) or otherwise)


def note_own_load(error: Exception) -> None:
    """Note the format of a file that the author's own torch.jit.load or torch.load refused."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        hints = _OWN_LOADERS.get((str(frame.f_globals.get("__name__")), frame.f_code.co_name))
        path = frame.f_locals.get("f")
        if hints is None or not isinstance(path, str | os.PathLike) or not Path(path).is_file():
            continue
        if (kind := kind_of(Path(path))) in hints:
            message = f"{Path(path).name} is {FORMATS[kind].title}"
            note("weights-format", message, stage="initialize", hint=hints[kind])
