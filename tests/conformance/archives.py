"""Archives: a probe as a `.mar`, packed by marpack itself wherever marpack would pack such a thing."""

import json
import zipfile
from pathlib import Path

from conformance.probe import Probe

from marpack.archive.manifest import Manifest
from marpack.project.plan import Plan, PlannedMember, Role
from marpack.project.plan import pack as marpack_pack


def pack(probe: Probe, folder: Path) -> Path:
    """Write a probe's archive into a folder and return its path."""
    if probe.archive is not None:
        return probe.archive(folder)
    path = folder / f"{probe.name}.mar"
    if probe.manifest is not None:
        return _odd(probe, probe.manifest, path)
    model = {"modelName": probe.name, "modelVersion": "1.0", "handler": "handler.py", **probe.model}
    manifest = {"createdOn": "01/01/2025 00:00:00", "runtime": "python", "model": model, "archiverVersion": "0.12.0"}
    members = [PlannedMember(name, _source(content)) for name, content in probe.files.items()]
    made = probe.make(folder) if probe.make else {}
    members += [PlannedMember(name, weights, Role.WEIGHTS) for name, weights in made.items()]
    marpack_pack(Plan(manifest=Manifest.from_json(json.dumps(manifest).encode()), members=tuple(members), output=path))
    return path


def _odd(probe: Probe, manifest: bytes, path: Path) -> Path:
    # marpack would not write such a manifest.
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in probe.files.items():
            archive.writestr(name, _bytes(content))
        archive.writestr("MAR-INF/MANIFEST.json", manifest)
    return path


def _source(content: str | bytes | Path) -> bytes | Path:
    return content.encode() if isinstance(content, str) else content


def _bytes(content: str | bytes | Path) -> bytes:
    source = _source(content)
    return source.read_bytes() if isinstance(source, Path) else source
