"""The manifest and the model config as the server reads them: JSON; YAML, batch size, seconds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SERVERS_TIMEOUT = 120.0  # seconds, for a batch and for loading alike, where the config says nothing
_INT32 = 1 << 31
_MAX_LENGTH = 1_000_000  # seconds


def get_yaml_config(yaml_file_path: str) -> Any:  # Any: whatever the YAML says; None for an empty file
    """Return a YAML file's content, read with the safe loader."""
    import yaml  # noqa: PLC0415 - an archive without a config need not wait for it

    with Path(yaml_file_path).open() as file:
        return yaml.safe_load(file)


def read_manifest(model_dir: str) -> dict[str, Any]:  # Any: JSON
    """Return the manifest as the plain dict that handlers see, read in the locale's encoding as on the server."""
    with Path(model_dir, "MAR-INF", "MANIFEST.json").open() as file:
        manifest: dict[str, Any] = json.load(file)  # Any: as above
    return manifest


class ConfigError(Exception):
    """A model config that the server refuses."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint or "give it at least one key, e.g. batchSize: 1, or leave it out of the archive"


def read_config(model_dir: str, config_file: Any) -> dict[str, Any]:  # Any: whatever the manifest says
    """Return the model config; raises ConfigError for what is no mapping, and for a name that is none."""
    if not isinstance(config_file, str):
        raise ConfigError(f"the manifest's configFile is {config_file!r}: the server cannot load the model")
    config = get_yaml_config(str(Path(model_dir, config_file)))
    if not isinstance(config, dict):
        # The frontend, which reads it before any worker does, cannot register the model.
        kind = "empty" if config is None else f"a {type(config).__name__}"
        raise ConfigError(f"{config_file} is {kind}, not a mapping: the server refuses to register the model")
    torchrun = config.get("torchrun")
    odd = [key for key in (*config, *(torchrun if isinstance(torchrun, dict) else ())) if not isinstance(key, str)]
    if odd:
        message = f"{config_file} has the key {odd[0]!r}, which is no text: the server refuses to register the model"
        raise ConfigError(message, hint="YAML takes on, yes and 1 for values: quote the key")
    return config


def batch_size_of(config: dict[str, Any]) -> int:
    """Return the config's batchSize, else 1."""
    return _whole(config, "batchSize") or 1


def seconds_of(config: Mapping[str, Any], key: str) -> float:
    """Return the config's responseTimeout or startupTimeout, else the server's default."""
    value = _whole(config, key)
    return _SERVERS_TIMEOUT if value is None else float(min(value, _MAX_LENGTH))


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number above 0, as Java's Integer holds it; None for anything else, which counts as not set."""
    value = config.get(key)
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _INT32
    return value if counts else None
