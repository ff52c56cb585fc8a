"""Archives: a probe's members packed into a `.mar`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from conformance.probe import Probe


def manifest_of(probe: Probe) -> dict[str, Any]:
    """Return the manifest, with a handler.py unless the probe says otherwise."""
    model = {"modelName": probe.name, "modelVersion": "1.0", "handler": "handler.py", **probe.model}
    return {"createdOn": "01/01/2025 00:00:00", "runtime": "python", "model": model, "archiverVersion": "0.12.0"}


def members_of(probe: Probe, folder: Path) -> dict[str, bytes]:
    """Return every member but the manifest; weights are made in the folder."""
    contents = dict(probe.files) | (dict(probe.make(folder)) if probe.make else {})
    return {name: _bytes(content) for name, content in contents.items()}


def pack(probe: Probe, folder: Path) -> Path:
    """Write a probe's archive into a folder and return its path."""
    path = folder / f"{probe.name}.mar"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members_of(probe, folder).items():
            archive.writestr(name, content)
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest_of(probe)))
    return path


def _bytes(content: str | bytes | Path) -> bytes:
    if isinstance(content, Path):
        return content.read_bytes()
    return content.encode() if isinstance(content, str) else content
