"""The manifest as a part of its archive: read within bounds, and pointing only at what is there."""

from collections.abc import Mapping
from typing import BinaryIO, Protocol

from marpack.archive.manifest import MAX_BYTES, Manifest
from marpack.archive.names import check_member_name, shown
from marpack.archive.protocol import MANIFEST_NAME, Entry
from marpack.errors import ManifestError, UnsafeArchiveError

_REBUILD = "build the archive again: marpack build"


class Members(Protocol):
    """What reading a manifest needs of an archive."""

    @property
    def source(self) -> str:
        """Where the archive was opened from."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every file by its name."""

    def open(self, name: str) -> BinaryIO:
        """Open one file."""


def read_manifest(archive: Members) -> Manifest:
    """Read an archive's manifest.

    Raises ManifestError if it is missing, malformed, or points outside the archive.
    """
    where = f"{archive.source}!{MANIFEST_NAME}"
    entry = archive.entries.get(MANIFEST_NAME)
    if entry is None:
        raise ManifestError(f"the archive has no {MANIFEST_NAME}", where=archive.source, hint=_REBUILD)
    if entry.size > MAX_BYTES:
        raise ManifestError(f"the manifest has {entry.size} bytes; {MAX_BYTES} is the most", where=where)
    with archive.open(MANIFEST_NAME) as file:
        manifest = Manifest.from_json(file.read(MAX_BYTES + 1), where=where)
    for key, name in pointers(manifest).items():
        _check_inside(key, name, where)
    return manifest


def require_files(archive: Members, manifest: Manifest) -> None:
    """Raise ManifestError if the manifest names a file that is not in the archive.

    The server loads such an archive all the same, if its handler never opens the file: so running one does not ask.
    """
    where = f"{archive.source}!{MANIFEST_NAME}"
    for key, name in pointers(manifest).items():
        if name not in archive.entries:
            message = f"model.{key} points at {shown(name)}, which is not in the archive"
            raise ManifestError(message, where=f"{where}: model.{key}", hint=_REBUILD)


def pointers(manifest: Manifest) -> dict[str, str]:
    """Return the files a manifest points at, by their keys; a handler that is no `.py` file is not one of them.

    Of a handler's path the server imports the base name, wherever it says the file is (contract §2).
    """
    model = manifest.model
    handler = model.handler.partition(":")[0]
    named = {
        "serializedFile": model.serialized_file,
        "modelFile": model.model_file,
        "handler": handler.rpartition("/")[2] if handler.endswith(".py") else None,
        "requirementsFile": model.requirements_file,
        "configFile": model.config_file,
    }
    return {key: name for key, name in named.items() if name}


def _check_inside(key: str, name: str, where: str) -> None:
    try:
        check_member_name(name)
    except UnsafeArchiveError:
        raise ManifestError(
            f"model.{key} points outside the archive: {shown(name)}", where=f"{where}: model.{key}", hint=_REBUILD
        ) from None
