"""MAR-INF/MANIFEST.json: what the server knows about a model."""

from typing import Any

from msgspec import Struct

# Key in the file → field here; the server's spelling is camelCase.
_MODEL_KEYS = {
    "modelName": "name",
    "modelVersion": "version",
    "serializedFile": "serialized_file",
    "modelFile": "model_file",
    "handler": "handler",
    "requirementsFile": "requirements_file",
    "configFile": "config_file",
    "envelope": "envelope",
    "description": "description",
}
_TOP_KEYS = {
    "createdOn": "created_on",
    "runtime": "runtime",
    "archiverVersion": "archiver_version",
}


class Model(Struct, frozen=True, kw_only=True):
    """The manifest's `model` object; `extra` holds the keys this version does not know, unchanged."""

    name: str
    handler: str
    version: str | None = None
    serialized_file: str | None = None
    model_file: str | None = None
    requirements_file: str | None = None
    config_file: str | None = None
    envelope: str | None = None
    description: str | None = None
    extra: dict[str, Any] = {}  # Any: whatever JSON the archive's author wrote


class Manifest(Struct, frozen=True, kw_only=True):
    """The manifest as a value; unknown keys survive a round trip (contract §1)."""

    model: Model
    runtime: str = "python"
    created_on: str | None = None
    archiver_version: str | None = None
    extra: dict[str, Any] = {}  # Any: whatever JSON the archive's author wrote

    @classmethod
    def from_json(cls, data: bytes, *, where: str = "MAR-INF/MANIFEST.json") -> "Manifest":
        """Parse a manifest's bytes.

        Raises ManifestError naming the key that is missing or of the wrong type.
        """
        raise NotImplementedError

    def to_json(self) -> bytes:
        """Return the file's bytes: two-space indented UTF-8 JSON, keys in the server's order."""
        raise NotImplementedError
