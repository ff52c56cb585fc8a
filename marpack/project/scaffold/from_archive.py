"""An archive → the project that rebuilds it: the same members, by name and bytes."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from marpack import finding_codes as codes
from marpack.archive.index import Index, Metadata, index_of
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME, MODEL_NAME, Archive
from marpack.archive.sagemaker import REQUIREMENTS
from marpack.findings import Finding
from marpack.project.members import LEFT_BEHIND, EntryPoint
from marpack.project.planning import SAMPLES
from marpack.project.scaffold.template import render
from marpack.project.scaffold.write_files import Source
from marpack.project.schema import FILE_NAME, valid_metadata
from marpack.torchserve.labels import LABELS_NAME

_META = "MAR-INF/"
_APART = "members/"  # for members with a name that the project itself needs
_BLOCK = 1 << 20  # bytes


class ArchiveProject(Struct, frozen=True, kw_only=True):
    """A project to write, and the facts of the archive that it cannot express."""

    name: str
    files: dict[str, Source]  # marpack.yaml among them
    members: frozenset[str]  # of a rebuilt archive
    generated: tuple[str, ...]  # samples that marpack generated, not confirmed since
    findings: tuple[Finding, ...]


def read_project(archive: Archive) -> ArchiveProject:
    """Return the project of an archive, which must stay open: its members are read when they are written.

    Raises ManifestError for a manifest that is missing or malformed, DamagedArchiveError for such an index.
    """
    manifest, index = archive.manifest, index_of(archive) or Index(members=())
    name = manifest.model.name if MODEL_NAME.fullmatch(manifest.model.name) else "model"
    taken = {FILE_NAME, f"{name}.mar"}
    places = {
        member: f"{_APART}{member}" if member in taken or member.startswith(("samples/", _APART)) else member
        for member in archive.entries
        if not member.startswith(_META)
    }
    values = {"name": name} | _values(archive, index, places)
    places |= {member: _sample_place(member) for member in archive.entries if member.startswith(SAMPLES)}

    def copy(member: str, path: Path) -> None:
        with archive.open(member) as data, path.open("wb") as file:
            shutil.copyfileobj(data, file, _BLOCK)

    files: dict[str, Source] = {FILE_NAME: render(f"{FILE_NAME}.j2", values)}
    digests = {_sample_place(member.name): f"sha256:{member.sha256}" for member in index.members}
    unchanged = [each for each in values["samples"] if digests.get(each["input"]) == each.get("generated", "")]
    return ArchiveProject(
        name=name,
        files=files | {place: partial(copy, member) for member, place in places.items()},
        members=frozenset(places),
        generated=tuple(sample["input"] for sample in unchanged),
        findings=tuple(_losses(archive, index, name)),
    )


def _sample_place(name: str) -> str:
    return f"samples/{name.removeprefix(SAMPLES)}"


def _values(archive: Archive, index: Index, places: dict[str, str]) -> dict[str, Any]:  # Any: YAML
    """Return the keys of marpack.yaml; those of files that are missing are None."""
    model, labels = archive.manifest.model, None
    if LABELS_NAME in archive.entries:
        with archive.open(LABELS_NAME) as data, suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # A build packs a JSON object unchanged.
            labels = LABELS_NAME if isinstance(msgspec.json.decode(data.read()), dict) else None
    named = {
        "weights": model.serialized_file,
        "model_file": model.model_file,
        "labels": labels,
        "requirements": model.requirements_file,
        "config_file": model.config_file,
    }
    # A project packs these files at the archive's root, also the requirements of SageMaker's layout.
    at_root = {key: member for key, member in named.items() if member and ("/" not in member or member == REQUIREMENTS)}
    paths = {key: places.get(at_root[key]) if key in at_root else None for key in named}
    entry = EntryPoint.parse(model.handler, Path())
    handler, file = model.handler, entry.file.name if entry.file else None
    if file is not None:
        handler = places.get(file, file) + entry.manifest.removeprefix(file)
    rest = [member for member in places if member not in (*at_root.values(), file) or member == REQUIREMENTS]
    samples = [each for each in index.samples if str(each.get("input")) in archive.entries]
    return {
        **paths,
        "version": model.version or "1.0",
        "handler": handler,
        "built_in": False,  # no comment on the handler
        "kind": None,
        "batch_size": None,
        "target": index.target if index.target != "torchserve" else None,
        "files": list(_file_entries(rest, places)),
        "metadata": msgspec.to_builtins(valid_metadata(index.metadata or Metadata())),
        "samples": [{**sample, "input": _sample_place(sample["input"])} for sample in samples],
    }


def _file_entries(members: list[str], places: dict[str, str]) -> Iterator[str | dict[str, str]]:
    """Yield the entries of `files` for these members: a folder if it is packed whole, otherwise each file."""
    folders: dict[str, list[str]] = {}
    for name in members:
        folders.setdefault(name.partition("/")[0] if "/" in name else "", []).append(name)
    for folder, names in folders.items():
        steps = {step for name in names for step in name.split("/")}
        is_whole = not steps & LEFT_BEHIND and not any(step.startswith(".") for step in steps)
        if folder and is_whole and all(places[name] == name for name in names):
            yield f"{folder}/"
        else:
            yield from (name if places[name] == name else {"from": places[name], "to": name} for name in names)


def _losses(archive: Archive, index: Index, name: str) -> Iterator[Finding]:
    """Yield the facts of the manifest and in MAR-INF/ that a project cannot express."""
    manifest, model = archive.manifest, archive.manifest.model
    given = index.metadata or Metadata()
    kept = valid_metadata(given)
    invalid = [key for key in Metadata.__struct_fields__ if getattr(kept, key) != getattr(given, key)]
    dropped = [key for key in ("envelope", "description") if getattr(model, key) is not None]
    dropped += [*model.extra, *manifest.extra]
    others = [each for each in archive.entries if each.startswith(_META) and not each.startswith(SAMPLES)]
    others = [each for each in others if each not in {MANIFEST_NAME, INDEX_NAME}]
    commit = index.provenance.get("source_commit")
    losses = (
        (name != model.name, codes.NAME_NOT_CARRIED_OVER.at(name=model.name, used=name)),
        (not model.version, codes.VERSION_NOT_CARRIED_OVER.at()),
        (manifest.runtime != "python", codes.RUNTIME_NOT_CARRIED_OVER.at(runtime=manifest.runtime)),
        (dropped, codes.NOT_CARRIED_OVER.at(keys=", ".join(dropped))),
        (others, codes.MEMBERS_NOT_CARRIED_OVER.at(names=", ".join(others[:3]))),
        (invalid, codes.METADATA_NOT_CARRIED_OVER.at(keys=" and ".join(invalid))),
        (index.vendored, codes.VENDORED_NOT_CARRIED_OVER.at()),
        (commit, codes.COMMIT_NOT_CARRIED_OVER.at(commit=commit)),
    )
    yield from (finding for is_lost, finding in losses if is_lost)
    for key, file in manifest.files.items():
        if "/" in file and file != REQUIREMENTS:
            yield codes.PLACE_NOT_CARRIED_OVER.at(key=key, file=file)
