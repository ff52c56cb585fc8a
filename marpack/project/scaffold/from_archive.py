"""An archive → the project that rebuilds it: the same members, by name and bytes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from marpack.archive.index import Index, Metadata, index_of
from marpack.archive.manifest import Manifest
from marpack.archive.names import MODEL_NAME
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME, Archive
from marpack.findings import Finding, Severity
from marpack.project import metadata
from marpack.project.members import LEFT_BEHIND, EntryPoint
from marpack.project.planning import SAMPLES
from marpack.project.scaffold.template import render
from marpack.project.scaffold.write_files import Source
from marpack.project.schema import FILE_NAME
from marpack.torchserve.labels import LABELS_NAME

_META = "MAR-INF/"
_APART = "members/"  # where a member goes whose name the project needs itself


class Reclaimed(Struct, frozen=True, kw_only=True):
    """A project to write, and what of the archive cannot be said in it."""

    name: str
    files: dict[str, Source]  # marpack.yaml among them
    members: frozenset[str]  # that a rebuild must have
    generated: tuple[str, ...]  # samples that prove nothing
    findings: tuple[Finding, ...]


def reclaim(archive: Archive) -> Reclaimed:
    """Return the project of an archive, which must stay open: its members are read only when they are written.

    Raises ManifestError for a manifest that is missing or malformed, DamagedArchiveError for an index that is.
    """
    manifest = archive.manifest
    index = index_of(archive) or Index(members=())
    kept = [name for name in archive.entries if not name.startswith(_META)]
    name = manifest.model.name if MODEL_NAME.fullmatch(manifest.model.name) else "model"
    places = {member: _place_of(member, name) for member in kept}
    project = {"name": name} | _project(manifest, index, places, archive)
    project["files"] = list(_files(places, manifest, project))
    places |= {member: _sample_place(member) for member in archive.entries if member.startswith(SAMPLES)}
    files: dict[str, Source] = {FILE_NAME: render(f"{FILE_NAME}.j2", project)}
    files |= {place: partial(archive.open, member) for member, place in places.items()}
    findings = (*_losses(manifest, archive, project), *_unsaid(index))
    return Reclaimed(
        name=name, files=files, members=frozenset(places), generated=tuple(_generated(index)), findings=findings
    )


def _project(manifest: Manifest, index: Index, places: dict[str, str], archive: Archive) -> dict[str, Any]:  # Any: YAML
    """Return the keys of marpack.yaml but the name, `files` still empty; one whose file is not there is left out."""
    model = manifest.model
    labels = LABELS_NAME if LABELS_NAME in places and _is_object(archive, LABELS_NAME) else None
    return {
        "version": model.version or "1.0",
        "weights": _named(model.serialized_file, places),
        "model_file": _named(model.model_file, places),
        "handler": _handler(model.handler, places),
        "built_in": False,  # it says no more than the name does
        "kind": None,
        "batch_size": None,
        "labels": _named(labels, places),
        "requirements": _named(model.requirements_file, places),
        "target": index.target if index.target != "torchserve" else None,
        "files": [],
        "config_file": _named(model.config_file, places),
        "metadata": msgspec.to_builtins(metadata.sound(index.metadata or Metadata())),
        "samples": [_sample(sample) for sample in index.samples if sample.get("input") in archive.entries],
    }


def _named(member: str | None, places: dict[str, str]) -> str | None:
    """Return where the file lies that the manifest names; a project can name only what has no folder in the archive."""
    return places.get(member) if member and "/" not in member else None


def _handler(text: str, places: dict[str, str]) -> str:
    """Return the handler as marpack.yaml names it: where its file lies, and its function."""
    entry = EntryPoint.parse(text, Path())
    if entry.file is None:
        return text
    name = entry.file.name
    return places.get(name, name) + entry.manifest.removeprefix(name)


def _is_object(archive: Archive, name: str) -> bool:
    """Say whether a member is a JSON object, which is packed as it stands."""
    with archive.open(name) as file:
        try:
            return isinstance(msgspec.json.decode(file.read()), dict)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False


def _sample(sample: dict[str, Any]) -> dict[str, Any]:  # Any: an expectation
    return {**sample, "input": _sample_place(sample["input"])}


def _generated(index: Index) -> Iterator[str]:
    """Yield the samples that are still as `marpack init` generated them."""
    digests = {member.name: f"sha256:{member.sha256}" for member in index.members}
    for sample in index.samples:
        name = sample.get("input")
        if isinstance(name, str) and "generated" in sample and digests.get(name) == sample["generated"]:
            yield _sample_place(name)


def _sample_place(name: str) -> str:
    return f"samples/{name.removeprefix(SAMPLES)}"


def _place_of(name: str, model: str) -> str:
    """Return where a member goes: under its own name, unless that is the project's or the built archive's."""
    taken = {FILE_NAME, f"{model}.mar"}
    return f"{_APART}{name}" if name in taken or name.startswith(("samples/", _APART)) else name


def _files(places: dict[str, str], manifest: Manifest, project: dict[str, Any]) -> Iterator[Any]:  # Any: YAML
    """Yield the entries of `files`: every member that no other key brings, whole folders where they are whole."""
    handler = EntryPoint.parse(manifest.model.handler, Path()).file
    brought = {project[key] for key in ("weights", "model_file", "labels", "requirements", "config_file")}
    rest = [name for name in places if places[name] not in brought and name != (handler and handler.name)]
    folders: dict[str, list[str]] = {}
    for name in rest:
        folders.setdefault(name.partition("/")[0] if "/" in name else "", []).append(name)
    for folder, names in folders.items():
        if folder and all(_is_plain(name) and places[name] == name for name in names):
            yield f"{folder}/"
        else:
            yield from (name if places[name] == name else {"from": places[name], "to": name} for name in names)


def _is_plain(name: str) -> bool:
    """Say whether a folder under `files` would bring a file along."""
    return not any(part.startswith(".") or part in LEFT_BEHIND for part in name.split("/"))


def _losses(manifest: Manifest, archive: Archive, project: dict[str, Any]) -> Iterator[Finding]:
    """Yield what the archive says that a project cannot."""
    model = manifest.model
    if project["name"] != model.name:
        yield _lost(f"'{model.name}' is no model name, so the project's is '{project['name']}'")
    if not model.version:
        yield _lost(f"the archive has no version, so the project's is {project['version']}")
    if manifest.runtime != "python":
        yield _lost(f"the runtime '{manifest.runtime}' of the manifest becomes 'python'")
    dropped = [key for key in ("envelope", "description") if getattr(model, key) is not None]
    dropped += [*model.extra, *manifest.extra]
    if dropped:
        yield _lost(f"the manifest's {', '.join(dropped)} cannot be said in {FILE_NAME}")
    named = {"serializedFile": model.serialized_file, "modelFile": model.model_file, "configFile": model.config_file}
    for key, name in (named | {"requirementsFile": model.requirements_file}).items():
        if name and "/" in name:
            yield _lost(f"the manifest's {key} is {name}, which lies in a folder")
    others = [name for name in archive.entries if name.startswith(_META)]
    others = [name for name in others if name not in {MANIFEST_NAME, INDEX_NAME} and not name.startswith(SAMPLES)]
    if others:
        yield _lost(f"{', '.join(others[:3])} under {_META} is left out: the server ignores it")


def _unsaid(index: Index) -> Iterator[Finding]:
    """Yield what is recorded beside the members that a project cannot say."""
    said = index.metadata or Metadata()
    kept = metadata.sound(said)
    lost = [name for name in Metadata.__struct_fields__ if getattr(kept, name) != getattr(said, name)]
    if lost:
        yield _lost(f"the {' and '.join(lost)} in {INDEX_NAME} cannot be said in {FILE_NAME}")
    if index.vendored:
        yield _lost("the packages that it vendors become plain files of the project's")
    if commit := index.provenance.get("source_commit"):
        yield _lost(f"the archive was built from commit {commit}: build --source-commit says so again")


def _lost(message: str) -> Finding:
    return Finding(code="not-carried-over", severity=Severity.WARNING, message=message)
