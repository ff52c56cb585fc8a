"""SageMaker's layout: a model's files and `code/inference.py`, without the manifest and the handler of an archive."""

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import BinaryIO

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.archive.protocol import MANIFEST_NAME, check_member_names, folded
from marpack.errors import ArchiveError, UnsafeArchiveError

SCRIPT = "code/inference.py"
HANDLER = "sagemaker_handler.py"  # calls the functions of SCRIPT
REQUIREMENTS = "code/requirements.txt"
_META = MANIFEST_NAME.partition("/")[0]


@cache
def handler_source() -> bytes:
    """Return the content of HANDLER."""
    return (Path(__file__).parents[1] / "worker" / "handlers" / "sagemaker.py").read_bytes()


def has_adapter(handler: str, open_member: Callable[[str], BinaryIO]) -> bool:
    """Return whether an archive's handler is HANDLER, byte for byte; another file of that name is the author's.

    `open_member` raises KeyError for an unknown name, OSError or ArchiveError for a member that cannot be read.
    """
    if handler != HANDLER:
        return False
    try:
        with open_member(HANDLER) as file:
            return file.read(len(handler_source()) + 1) == handler_source()
    except (KeyError, OSError, ArchiveError):
        return False


def is_sagemaker_folder(folder: Path) -> bool:
    """Return whether a folder has SageMaker's layout; with MAR-INF, it is an archive of TorchServe."""
    return (folder / SCRIPT).is_file() and not (folder / _META).exists()


def missing_members(names: Collection[str], folders: Collection[str] = ()) -> dict[str, bytes]:
    """Return the manifest and the handler that a SageMaker model lacks; nothing for every other archive.

    Raises UnsafeArchiveError if a file or a folder of the model has the handler's name.
    """
    if SCRIPT not in names or any(folded(name).partition("/")[0] == folded(_META) for name in (*names, *folders)):
        return {}
    if HANDLER in names:
        what = f"the member {HANDLER} has the name of the handler that marpack adds to SageMaker's layout"
        raise UnsafeArchiveError(what, hint="Rename the member.")
    check_member_names([*names, HANDLER, MANIFEST_NAME], folders)
    requirements = REQUIREMENTS if REQUIREMENTS in names else None
    # In AWS's images, the name of every model is "model".
    model = ManifestModel(name="model", version="1.0", handler=HANDLER, requirements_file=requirements)
    return {HANDLER: handler_source(), MANIFEST_NAME: Manifest(model=model).to_json()}
