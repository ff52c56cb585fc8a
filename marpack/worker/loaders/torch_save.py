"""torch.save files, read with weights_only=True: tensors and plain containers, and no code."""

import os
import pickle
import zipfile
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint

from marpack.protocol.diagnostics import Explained, note
from marpack.worker.loaders.registry import Job

File = str | os.PathLike[str] | IO[bytes]
_SHOWN = 5
_ZIP = b"PK\x03\x04"


def read(path: File, map_location: torch.device | str | None, *, trust: bool = False) -> Any:
    """Load a torch.save file to a device, mapped instead of read where its layout allows.

    Args:
        path: The file: text, a path, or an open file.
        map_location: As torch.load takes it.
        trust: Run the code that the pickle asks for; the user's explicit word for these very bytes.

    Raises UnpicklingError for a pickle that needs more than tensors, after noting which names it asks for.
    """
    if torch.device(map_location or "cpu").type == "xla":
        map_location = None  # as on the server: read where it was saved, and moved with the model
    with Explained(partial(_note_globals, path)):
        return torch.load(path, map_location=map_location, weights_only=not trust, mmap=_mappable(path))


def _mappable(path: object) -> bool:
    """Say whether torch takes the file for a zip, and every record lies in it as it does in memory."""
    if not isinstance(path, str | os.PathLike):
        return False
    with Path(path).open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP or not zipfile.is_zipfile(path):
            return False
    with zipfile.ZipFile(path) as archive:
        return all(record.compress_type == zipfile.ZIP_STORED for record in archive.infolist())


def _note_globals(path: object, error: Exception) -> None:
    if not isinstance(error, pickle.UnpicklingError) or not isinstance(path, str | os.PathLike):
        return
    try:
        names = sorted(get_unsafe_globals_in_checkpoint(path))
    except (RuntimeError, ValueError, pickle.UnpicklingError):  # not a zip, or not a pickle at all
        return
    if not names:
        return
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    note(
        "pickle-needs-code",
        f"{Path(path).name} is a pickle that would import and call {shown}; weights_only=True refuses it",
        stage="initialize",
        hint="save model.state_dict() instead; or, for weights you trust as you trust code, run with --trust-pickle",
    )


def load_job(job: Job) -> Any:
    """Load a torch.save file to the device."""
    return read(str(job.path), job.device, trust=job.trust_pickle)
