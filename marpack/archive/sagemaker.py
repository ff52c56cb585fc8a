"""SageMaker's layout: a model's files and `code/inference.py`, without the manifest and the handler of an archive."""

import hashlib
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
_MAX_HANDLER = 1 << 16  # bytes
_EARLIER = frozenset(  # the SHA-256 of each HANDLER that an earlier marpack added
    (
        "318191ee077bef43c0326c006d40f9b0291bbf00c12fc619fbe3d5867bbee5a9",
        "ad6728c292ed6869ee0edb769f88ecd443886a73d68fbbf6a701ba99feff37e7",
        "3676990afd4ff89df0827054cf75f9b6f6688ec8672dda3e2937ecf24b52ced1",
        "e5d6671bcdc3c1405e513f0626fae0d259c8809187d8271a56e90e663f630b6f",
        "5853f58390def91f19d3282a38b69309fe4eb283bd406a8d9497cdea473c81ed",
        "260961a8d77dcb7fe8d4b99930115d6379a548313ed2195adc44cae6f48b7e74",
        "97b97d5a11a8f2445d2a08a9d0696110602407679eee9f467ebb5741df1b383b",
        "9904e3052c57eeb3e0379a51b668ce358e53799023c4b9291364e834a4712e81",
    )
)


@cache
def handler_source() -> bytes:
    """Return the content of HANDLER."""
    return (Path(__file__).parents[1] / "worker" / "handlers" / "sagemaker.py").read_bytes()


def has_adapter(handler: str, open_member: Callable[[str], BinaryIO]) -> bool:
    """Return whether an archive's handler is HANDLER of this or an earlier marpack; any other file is the author's.

    `open_member` raises KeyError for an unknown name, OSError or ArchiveError for a member that cannot be read.
    """
    if handler != HANDLER:
        return False
    try:
        with open_member(HANDLER) as file:
            data = file.read(_MAX_HANDLER)
    except (KeyError, OSError, ArchiveError):
        return False
    return data == handler_source() or hashlib.sha256(data).hexdigest() in _EARLIER


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
