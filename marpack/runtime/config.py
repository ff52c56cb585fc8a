"""model-config.yaml as handlers get it."""

from pathlib import Path
from typing import Any


def get_yaml_config(yaml_file_path: str) -> Any:  # Any: whatever the YAML says; None for an empty file
    """Return a YAML file's content, read with the safe loader."""
    import yaml  # noqa: PLC0415 - an archive without a config need not wait for it

    with Path(yaml_file_path).open() as file:
        return yaml.safe_load(file)
