"""torchvision's operators, such as nms: torch finds them only after torchvision was imported."""

import importlib
import importlib.util
import re
from pathlib import Path

from marpack.torchserve.diagnostics import note
from marpack.weights.torch_zip import TorchZip
from marpack.weights.zip_entries import NotZipError

_CODE = ("code/", "models/", "serialized_exported_program.json", "data/aotinductor/")  # what names operators
_CALLS = re.compile(rb"\bops\.torchvision\.|\btorchvision::")  # and not the mere name of a class's module


def needed(path: Path) -> bool:
    """Say whether a TorchScript file, an exported program or a compiled package names torchvision."""
    try:
        with path.open("rb") as file:
            archive = TorchZip.read(file)
            return any(_CALLS.search(archive.open(name).read()) for name in archive.members if _names_operators(name))
    except (OSError, NotZipError):
        return False


def _names_operators(member: str) -> bool:
    return member.startswith(_CODE) and member.endswith((".py", ".json", ".cpp"))


def import_torchvision(path: Path) -> None:
    """Import torchvision if these weights need it; note it if it is not installed, or does not come up."""
    if not needed(path):
        return
    if importlib.util.find_spec("torchvision") is None:
        message = f"{path.name} uses torchvision's operators, and torchvision is not installed here"
        note("torchvision-missing", message, stage="initialize", hint="pip install torchvision")
        return
    try:
        importlib.import_module("torchvision")
    except Exception as error:  # noqa: BLE001 - a torchvision built for another torch fails in any way it likes
        hint = "install the torchvision that belongs to your torch"
        note("torchvision-broken", f"torchvision is installed but fails: {error}", stage="initialize", hint=hint)
