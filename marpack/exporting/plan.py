"""What an export starts from: an archive's facts, read without running it, and what was asked for."""

import ast
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from packaging.tags import sys_tags

from marpack.archive.index import index_of
from marpack.archive.protocol import Archive, ArchiveForm
from marpack.errors import UsageError
from marpack.exporting.lock import Lock
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.inspection.lint.source import MAX_SOURCE, Broken, parse, walk
from marpack.inspection.members import read_text
from marpack.inspection.pickles import PickleVerdict
from marpack.inspection.requirements import Line, LineKind, beside, read_requirements
from marpack.protocol.targets import Target
from marpack.serving.settings import ModelSettings
from marpack.torchserve.distributions import canonical

_SUFFIXES = {ArchiveForm.MAR: ".mar", ArchiveForm.TGZ: ".tar.gz"}
_FILES = (LineKind.INCLUDE, LineKind.CONSTRAINT)
_NAME = 53  # characters: what Kubernetes leaves of its 63 to those who add a suffix


class ExportOptions(Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    device: str = "cpu"  # cpu or cuda
    wheel: Path | None = None  # marpack's own; None: made from the installed files
    lock: Path | None = None  # requirements with hashes, as an export before has written them
    resolve: bool = True  # ask pip for those hashes where there is no lock
    image: str | None = None  # the image's name, with its registry
    storage_uri: str | None = None  # where the archive lies for the platform: s3://…, gs://…, oci+native://…
    role: str | None = None  # the ARN of the role that SageMaker acts in


class Image(Struct, frozen=True, kw_only=True):
    """What an image installs."""

    wheel: tuple[str, bytes]  # marpack's: its name and its bytes
    requirements: tuple[str, ...]  # torch's, then the archive's
    index: str | None  # where torch comes from; None: where all else does
    lock: Lock


class Requirements(Struct, frozen=True):
    """The lines of requirements.txt and of what it includes."""

    lines: tuple[str, ...] = ()  # each one requirement, without options
    file: str = ""  # requirements.txt's name in the archive
    left_out: tuple[str, ...] = ()  # files of the archive, options of pip's, what pip would not take


class Export(Struct, frozen=True, kw_only=True):
    """An archive to be exported; every text in it is somebody else's until a template has quoted it."""

    archive: Path
    file: str  # the archive's name in the folder: letters, digits, dashes; .mar or .tar.gz
    slug: str  # the model's name as Kubernetes and SageMaker take it
    name: str  # the model's
    version: str | None
    handler: str  # the manifest's: "handler.py:function", "image_classifier"
    envelope: str | None
    target: Target  # whose behaviour the author asked for
    content_digest: str | None  # of the archive's MAR-INF/marpack.json
    requirements: Requirements
    config: dict[str, Any]  # Any: the model config, whatever YAML the author wrote
    settings: ModelSettings  # workers, batch size, delay in ms, timeouts in s, as the server would have them
    needs_trust: bool  # its weights load with --trust-pickle alone
    used: frozenset[str]  # what the archive's own Python files call, import and derive from, by its last name
    foreign: tuple[str, ...]  # wheels that it vendors for other Pythons than this one, which images have, too
    options: ExportOptions
    image: Image | None = None  # of targets that have one of their own


def read_export(archive: Archive, path: Path, options: ExportOptions) -> Export:
    """Return what an archive is exported as.

    Raises UsageError for a model folder, ArchiveError for what is no archive that can be opened safely.
    """
    if archive.form not in _SUFFIXES:
        hint = "pack it first: marpack build, or marpack init --from DIR"
        what = "a model folder is not exported: only an archive has one digest"
        raise UsageError(what, where=str(path), hint=hint, code="archive-required")
    facts = inspect(archive)
    model = archive.manifest.model
    slug = slug_of(model.name)
    config = _config(facts)
    packages = facts.vendored.packages if facts.vendored else ()
    here = {(tag.interpreter, tag.abi) for tag in sys_tags()}  # on whatever machine
    return Export(
        archive=path,
        file=slug + _SUFFIXES[archive.form],
        slug=slug,
        name=model.name,
        version=model.version,
        handler=model.handler,
        envelope=model.envelope,
        target=Target.MARPACK if facts.target == Target.MARPACK else Target.TORCHSERVE,
        content_digest=facts.content_digest,
        requirements=_requirements_of(archive),
        config=config,
        settings=ModelSettings().tuned(config),
        needs_trust=facts.pickles.verdict is not PickleVerdict.SAFE,
        used=_used_names(archive, {module for package in packages for module in package.modules}),
        foreign=tuple(each.file for each in packages if not {(tag.interpreter, tag.abi) for tag in each.tags} & here),
        options=options,
    )


def _requirements_of(archive: Archive) -> Requirements:
    """Return the requirements of an archive; what is no requirement by itself is told apart."""
    first, index = archive.manifest.model.requirements_file, index_of(archive)
    if not first:  # what an archive brings along asks for packages of the server's, which no image of ours has
        return Requirements(index.vendored.server if index and index.vendored else ())
    read = list(read_requirements(first, lambda name: read_text(archive, name)))
    names = {line.name for _, line in read if line.name}
    # A limit on a required package is carried as another requirement with the same name. Other limits are left out.
    lines = [line.text for _, line in read if line.sort is LineKind.REQUIREMENT or _limits(line, names)]
    carried = {LineKind.REQUIREMENT, LineKind.INCLUDE, LineKind.CONSTRAINT}
    left_out = [line.text for _, line in read if line.sort not in carried and not _limits(line, names)]
    named = [(line.text, beside(file, line.text)) for file, line in read if line.sort in _FILES]
    left_out += [text for text, name in named if read_text(archive, name) is None]
    return Requirements(tuple(dict.fromkeys(lines)), first, tuple(dict.fromkeys(left_out)))


def _limits(line: Line, names: Container[str]) -> bool:
    """Say whether a line of a constraints file bounds one of the distributions."""
    return line.sort is LineKind.LIMIT and canonical(re.split(r"[^\w.-]", line.text, maxsplit=1)[0]) in names


def slug_of(name: str) -> str:
    """Return a name as Kubernetes and SageMaker both take it: small letters, digits and dashes, 53 at most."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_NAME].strip("-")
    if slug[:1].isdigit():
        slug = f"model-{slug}"[:_NAME].strip("-")
    return slug or "model"


def _config(facts: Inspection) -> dict[str, Any]:  # Any: as above
    value = facts.config.value if facts.config else None
    return {key: each for key, each in value.items() if isinstance(key, str)} if isinstance(value, dict) else {}


def _used_names(archive: Archive, vendored: Container[str]) -> frozenset[str]:
    """Return the names that the archive's own Python files use, vendored packages left out."""
    found: set[str] = set()
    for name, entry in archive.entries.items():
        is_own = name.partition("/")[0].removesuffix(".py") not in vendored
        if is_own and name.endswith(".py") and entry.size <= MAX_SOURCE:
            with archive.open(name) as file:
                tree = parse(file.read())
            if not isinstance(tree, Broken):
                found.update(_names_in(tree))
    return frozenset(found)


def _names_in(tree: ast.Module) -> Iterator[str]:
    """Yield the last names of what a module calls, imports and derives classes from."""
    for node in walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
        used = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
        for each in used:
            if isinstance(each, ast.Attribute):
                yield each.attr
            elif isinstance(each, ast.Name):
                yield each.id
