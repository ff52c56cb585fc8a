"""The manifest as a part of its archive: read within bounds, and pointing only at what is there."""

from collections.abc import Mapping
from typing import BinaryIO, Protocol

from marpack.archive.manifest import MAX_BYTES, Manifest
from marpack.archive.names import check_member_name, shown
from marpack.archive.protocol import MANIFEST_NAME, Entry
from marpack.errors import ManifestError, UnsafeArchiveError

_AGAIN = "build the archive again: marpack build"


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

    Raises ManifestError if it is missing, malformed, or names a file that is not in the archive.
    """
    where = f"{archive.source}!{MANIFEST_NAME}"
    entry = archive.entries.get(MANIFEST_NAME)
    if entry is None:
        raise ManifestError(f"the archive has no {MANIFEST_NAME}", where=archive.source, hint=_AGAIN)
    if entry.size > MAX_BYTES:
        raise ManifestError(f"the manifest has {entry.size} bytes; {MAX_BYTES} is the most", where=where)
    with archive.open(MANIFEST_NAME) as file:
        manifest = Manifest.from_json(file.read(MAX_BYTES + 1), where=where)
    for key, name in pointers(manifest).items():
        _check(key, name, archive.entries, where)
    return manifest


def pointers(manifest: Manifest) -> dict[str, str]:
    """Return the files a manifest points at, by their keys; a handler that is no `.py` file is not one of them.

    Of a handler's path the server imports the base name, wherever it says the file is (contract §2).
    """
    model = manifest.model
    handler = model.handler.partition(":")[0]
    named = {
        "serializedFile": model.serialized_file,
        "modelFile": model.model_file,
        "handler": handler if handler.endswith(".py") else None,
        "requirementsFile": model.requirements_file,
        "configFile": model.config_file,
    }
    return {key: name for key, name in named.items() if name}


def _check(key: str, name: str, entries: Mapping[str, Entry], where: str) -> None:
    place = f"{where}: model.{key}"
    try:
        check_member_name(name)
    except UnsafeArchiveError:
        raise ManifestError(
            f"model.{key} points outside the archive: {shown(name)}", where=place, hint=_AGAIN
        ) from None
    found = name.rpartition("/")[2] if key == "handler" else name
    if found not in entries:
        raise ManifestError(
            f"model.{key} points at {shown(name)}, which is not in the archive", where=place, hint=_AGAIN
        )
