"""An archive's CycloneDX 1.6 bill of materials: the model, its files and its requirements.

The same archive gives the same bytes: the document contains no time, no path and no random number.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import UUID, uuid5

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from marpack.archive.copying import file_digest
from marpack.archive.index import Metadata
from marpack.archive.protocol import INDEX_NAME, Archive, ArchiveForm, Progress
from marpack.errors import DamagedArchiveError, UsageError, convert_os_errors
from marpack.inspection.facts import Inspection, WeightsFacts
from marpack.inspection.members import UNFIT, is_remote, read_text
from marpack.inspection.requirements import Line, LineKind, beside, read_requirements
from marpack.json_text import to_json
from marpack.project.schema import canonical_license, contact, is_web_address
from marpack.torchserve.labels import LABELS_NAME
from marpack.version import __version__

_NAMESPACE = UUID("7b0a1f0e-4c1d-5d0f-9a63-6a2f6e1c8d51")
_MODEL = "model"  # the reference of what the document is about
_MAX_REQUIREMENTS = 1 << 20  # bytes of one file
_MAX_LINES = 5_000  # requirements: no environment has as many, and each becomes a component
_Json = dict[str, Any]  # Any: JSON


def check_output(archive: Archive, output: Path) -> None:
    """Raise UsageError for an output that would replace the archive, or become part of it."""
    if is_remote(archive):
        return
    source, place = Path(os.path.realpath(archive.source)), Path(os.path.realpath(output))
    if source == place or source in place.parents:
        what = "the SBOM would be written into the archive"
        raise UsageError(what, where=str(output), hint="Name another file.", code="output-in-archive")


def sbom(archive: Archive, facts: Inspection, progress: Progress | None = None) -> bytes:
    """Return the document of an open archive and the results of `inspect`: JSON in UTF-8, its keys sorted.

    Raises DamagedArchiveError for an archive that differs from the one that was built.
    """
    if any(finding.code in UNFIT for finding in facts.findings):
        what = "the archive differs from the one that was built, so it gets no SBOM"
        hint = f"Show the differences: marpack inspect --verify {facts.source}"
        raise DamagedArchiveError(what, where=facts.source, hint=hint, code="content-mismatch")
    lines = _requirements(archive)
    listed = list(islice(lines, _MAX_LINES))
    # The first line beyond the limit only shows where the list was cut.
    listed += [(file, replace(line, sort=LineKind.WRONG)) for file, line in islice(lines, 1)]
    file = file_of(archive)
    with convert_os_errors(DamagedArchiveError, "the archive cannot be read", where=str(file)):
        sha256 = file_digest(file, progress) if file else None
    vendored = facts.vendored.packages if facts.vendored else ()
    libraries = [_library(file, line) for file, line in listed if _names(line)]
    libraries += [
        {
            "type": "library",
            "bom-ref": f"vendored:{package.name}",
            "name": package.name,
            "version": package.version,
            "purl": _purl("pypi", package.name, package.version),
            "hashes": _hashes(package.sha256),
            "properties": _properties([("wheel", package.file)]),
        }
        for package in vendored
    ]
    document: _Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "marpack", "version": __version__}]},
            "component": _model(facts, listed, sha256),
        },
        "components": libraries,
        "dependencies": [{"ref": _MODEL, "dependsOn": [library["bom-ref"] for library in libraries]}],
        # Every file is listed; dependencies of the requirements and the server's image are not.
        "compositions": [
            {"aggregate": "complete", "assemblies": [_MODEL]},
            {"aggregate": "incomplete", "dependencies": [_MODEL]},
        ],
    }
    serial = uuid5(_NAMESPACE, hashlib.sha256(to_json(document)).hexdigest())
    return to_json(document | {"serialNumber": f"urn:uuid:{serial}"}, indent=True) + b"\n"


def file_of(archive: Archive) -> Path | None:
    """Return the file of an archive; None for a folder and for a remote archive."""
    return None if is_remote(archive) or archive.form is ArchiveForm.FOLDER else Path(archive.source)


def _requirements(archive: Archive) -> Iterator[tuple[str, Line]]:
    """Yield the archive's requirements, and the lines that cannot be resolved to one."""

    def read(name: str) -> bytes | None:
        data = read_text(archive, name)
        return data if data is not None and len(data) <= _MAX_REQUIREMENTS else None

    first = archive.manifest.model.requirements_file
    if first and read(first) is None:
        yield first, Line(0, LineKind.INCLUDE, first)
    for file, line in read_requirements(first, read) if first else ():
        is_read = line.sort is LineKind.INCLUDE and read(beside(file, line.text)) is not None
        if not is_read and line.sort not in (LineKind.OPTION, LineKind.CONSTRAINT, LineKind.LIMIT):
            yield file, line


def _names(line: Line) -> bool:
    return line.sort is LineKind.REQUIREMENT and bool(line.name)


def _model(facts: Inspection, requirements: list[tuple[str, Line]], sha256: str | None) -> _Json:
    """Return the component that describes the model; an author may have written anything into its metadata.

    `sha256` is of the archive's file; None for a folder and for a remote archive.
    """
    model, metadata = facts.manifest["model"], facts.metadata or Metadata()
    properties = [
        ("content_digest", facts.content_digest),
        ("builder", facts.provenance.get("builder")),
        ("source_commit", facts.provenance.get("source_commit")),
        ("target", facts.target),
        ("handler", facts.handler.entry_point),
        ("hash", None if sha256 else "left out: the archive is a folder, or was not fetched whole"),
        *(  # without its text, which may contain a password or a private path
            ("requirement_not_listed", f"{file}:{line.number}" if line.number else file)
            for file, line in requirements
            if not _names(line)
        ),
    ]
    parsed = [(author, contact(author)) for author in metadata.authors]
    authors = [{"name": parts[0], "email": parts[1]} if parts else {"name": author} for author, parts in parsed]
    homepage = metadata.homepage if metadata.homepage and is_web_address(metadata.homepage) else None
    weights = next((item for item in facts.weights if item.member == model.get("serializedFile")), None)
    parameters = _model_parameters(weights) if weights else {}
    return {
        "type": "machine-learning-model",
        "bom-ref": _MODEL,
        "name": model["modelName"],
        "purl": _purl("generic", model["modelName"], model.get("modelVersion")),
        "components": list(_members(facts)),
        "properties": _properties(properties),
    } | _present(
        {
            "licenses": [_license(metadata.license)] if metadata.license else None,
            "authors": [_present(author) for author in authors],
            "description": metadata.description,
            "externalReferences": [{"type": "website", "url": _ascii(homepage)}] if homepage else None,
            "version": model.get("modelVersion"),
            "hashes": _hashes(sha256),
            "modelCard": {"modelParameters": parameters} if parameters else None,
        }
    )


def _license(text: str) -> _Json:
    known = canonical_license(text)
    if known is None or (known.startswith("LicenseRef-") and " " not in known):
        return {"license": {"name": known or text}}
    return {"expression": known} if set(known) & set(" (+") else {"license": {"id": known}}


def _members(facts: Inspection) -> Iterator[_Json]:
    weights = {item.member: item for item in facts.weights}
    for member in facts.members:
        component: _Json = {"type": "file", "bom-ref": f"member:{member.name}", "name": member.name}
        if member.name == LABELS_NAME:
            component |= {"type": "data", "data": [{"type": "definition", "name": LABELS_NAME}]}
        digest = member.sha256
        if member.name == INDEX_NAME and facts.content_digest:
            digest = facts.content_digest.removeprefix("sha256:")
        properties: list[tuple[str, str | None]] = [("size", str(member.size))]
        if found := weights.get(member.name):
            properties.append(("format", found.kind.value))
            if found.tensors:
                dtypes = ", ".join(f"{dtype} ({count})" for dtype, count in found.dtypes.items())
                properties += [
                    ("parameters", str(found.parameters)),
                    ("tensors", str(found.tensors)),
                    ("dtypes", dtypes),
                ]
        yield component | _present({"hashes": _hashes(digest)}) | {"properties": _properties(properties)}


def _model_parameters(weights: WeightsFacts) -> _Json:
    """Return the model card's inputs and outputs, as the weights themselves describe them."""
    described: dict[str, list[str]] = {}
    for name, ports in (("inputs", weights.inputs), ("outputs", weights.outputs)):
        shapes = ("" if port.shape is None else f" [{', '.join(map(str, port.shape))}]" for port in ports)
        described[name] = [
            f"{port.name}: {port.dtype or 'unknown'}{shape}" for port, shape in zip(ports, shapes, strict=True)
        ]
    forward = next((method for method in weights.methods if method.name == "forward"), None)
    if forward and not described["inputs"]:
        arguments, _, result = forward.signature.rpartition(" -> ")
        described = {"inputs": [arguments.removeprefix("(").removesuffix(")")], "outputs": [result]}
    return {key: [{"format": text} for text in texts if text] for key, texts in described.items() if any(texts)}


def _library(file: str, line: Line) -> _Json:
    """Return one requirement; it has a version only if it pins one."""
    component: _Json = {"type": "library", "bom-ref": f"requirement:{file}:{line.number}", "name": line.name}
    try:
        requirement = Requirement(line.text)
    except InvalidRequirement:  # an address by itself
        return component | _distribution(line.text)
    if requirement.url:
        return component | _distribution(requirement.url)
    pins = {each.version for each in requirement.specifier if each.operator in ("==", "===")}
    version = pins.pop() if len(pins) == 1 and not any("*" in pin for pin in pins) else None
    component["purl"] = _purl("pypi", line.name or "", version)
    component["properties"] = _properties([("requirement", line.text)])
    return component | _present({"version": version})


def _distribution(address: str) -> _Json:
    """Return a distribution's source, without the secrets that its address may contain."""
    kind = "vcs" if "+" in address.partition("://")[0] else "distribution"
    try:
        parts = urlsplit(address.partition("+")[2] if kind == "vcs" else address)
        host = parts.netloc.rpartition("@")[2]
        shown = urlunsplit(parts._replace(netloc=host, query="", fragment=""))
    except ValueError:
        return {}
    return {"externalReferences": [{"type": kind, "url": _ascii(shown)}]} if is_web_address(shown) else {}


def _purl(kind: str, name: str, version: str | None) -> str:
    return f"pkg:{kind}/{quote(name, safe='')}" + (f"@{quote(version, safe='')}" if version else "")


def _hashes(sha256: str | None) -> list[_Json]:
    return [{"alg": "SHA-256", "content": sha256}] if sha256 else []


def _properties(facts: Iterable[tuple[str, str | None]]) -> list[_Json]:
    return [{"name": f"marpack:{name}", "value": value} for name, value in facts if value]


def _present(values: _Json) -> _Json:
    return {key: value for key, value in values.items() if value}


def _ascii(address: str) -> str:
    return quote(address, safe="%/:?#&=+,;@!$'()*~")
