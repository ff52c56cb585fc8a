"""What an export starts from: an archive's facts, read without running it, and the options."""

import ast
import re
from collections.abc import Container
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct
from packaging.tags import sys_tags

from marpack.archive.index import index_of
from marpack.archive.protocol import Archive, ArchiveForm
from marpack.archive.sagemaker import HANDLER, has_adapter
from marpack.errors import UsageError
from marpack.inspection.inspect import inspect
from marpack.inspection.lint.source import MAX_SOURCE, Broken, parse, walk
from marpack.inspection.members import read_text
from marpack.inspection.requirements import Line, LineKind, beside, read_requirements
from marpack.serving.settings import ModelSettings
from marpack.torchserve.server_modules import canonical

_SUFFIXES = {ArchiveForm.MAR: ".mar", ArchiveForm.TGZ: ".tar.gz"}
_FILES = (LineKind.INCLUDE, LineKind.CONSTRAINT)
_MAX_NAME = 53  # characters: Kubernetes allows 63, and controllers append suffixes


class ExportOptions(Struct, frozen=True, kw_only=True):
    """The options of marpack export."""

    device: str = "cpu"  # cpu or cuda
    wheel: Path | None = None  # marpack's own; None: made from the installed files
    lock: Path | None = None  # requirements with hashes, as an earlier export wrote them
    resolve: bool = True  # ask pip for those hashes unless there is a lock
    image: str | None = None  # the image's name, with its registry
    storage_uri: str | None = None  # the archive's address for the platform: s3://…, gs://…, oci+native://…
    role: str | None = None  # the ARN of SageMaker's execution role


class Image(Struct, frozen=True, kw_only=True):
    """The packages of an image."""

    wheel: tuple[str, bytes]  # marpack's: its name and its bytes
    requirements: tuple[str, ...]  # torch's, then the archive's
    index: str | None  # torch's, beside the default index
    lock: bytes | None  # every package with its hash
    unlocked: str = ""  # the reason if the lock is missing


class Export(Struct, frozen=True, kw_only=True):
    """An archive to export; every text in it is untrusted until a template has quoted it."""

    archive: Path
    file: str  # the archive's name in the folder: letters, digits, dashes; .mar or .tar.gz
    slug: str  # the model's name for Kubernetes and SageMaker
    name: str  # the model's
    envelope: str | None
    content_digest: str | None  # of the archive's MAR-INF/marpack.json
    requirements: tuple[str, ...]  # of requirements.txt and of the files that it includes, without options
    requirements_file: str  # its name in the archive
    left_out: tuple[str, ...]  # other lines: files of the archive, pip's options, invalid lines
    config: dict[str, Any]  # Any: the model config, as its YAML says
    settings: ModelSettings  # workers, batch size, delay in ms, timeouts in s, as the server applies them
    needs_trust: bool  # its weights load only with --trust-pickle
    used: frozenset[str]  # last names that the archive's own Python files call, import and derive from
    foreign: tuple[str, ...]  # vendored wheels for other Pythons than this one, which images also have
    options: ExportOptions
    image: Image | None = None  # for targets with an image of marpack's


Content = bytes | Path  # a file's bytes, or the file to copy


# The folder of a target: its files by name, with "/", and the commands of its README.
Folder = tuple[dict[str, Content], tuple[str, str, str]]


def read_export(archive: Archive, path: Path, options: ExportOptions) -> Export:
    """Return an archive's facts for an export.

    Raises UsageError for a model folder, ArchiveError for an archive that cannot be opened safely.
    """
    if archive.form not in _SUFFIXES:
        hint = "Pack it first: marpack build"
        what = "a model folder cannot be exported: only an archive has one digest"
        raise UsageError(what, where=str(path), hint=hint, code="archive-required")
    facts = inspect(archive)
    model = archive.manifest.model
    slug = slug_of(model.name)
    config = facts.config.value if facts.config and isinstance(facts.config.value, dict) else {}
    packages = facts.vendored.packages if facts.vendored else ()
    requirements, left_out = _read_requirements(archive)
    foreign = {module for package in packages for module in package.modules}
    foreign |= {PurePath(HANDLER).stem} if has_adapter(model.handler, archive.open) else set()
    here = {(tag.interpreter, tag.abi) for tag in sys_tags()}  # on every machine
    return Export(
        archive=path,
        file=slug + _SUFFIXES[archive.form],
        slug=slug,
        name=model.name,
        envelope=model.envelope,
        content_digest=facts.content_digest,
        requirements=requirements,
        requirements_file=model.requirements_file or "",
        left_out=left_out,
        config=config,
        settings=ModelSettings().with_config(config),
        needs_trust=facts.pickles.needs_trust_pickle,
        used=_used_names(archive, foreign),
        foreign=tuple(each.file for each in packages if not {(tag.interpreter, tag.abi) for tag in each.tags} & here),
        options=options,
    )


def slug_of(name: str) -> str:
    """Return a name that Kubernetes and SageMaker accept: lower-case letters, digits and dashes, 53 at most."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_MAX_NAME].strip("-")
    if slug[:1].isdigit():
        slug = f"model-{slug}"[:_MAX_NAME].strip("-")
    return slug or "model"


def _read_requirements(archive: Archive) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requirements of an archive, and the lines that no image can install."""
    first, index = archive.manifest.model.requirements_file, index_of(archive)
    if not first:  # vendored packages require packages of the server's, which marpack's images lack
        return (index.vendored.server if index and index.vendored else ()), ()
    read = list(read_requirements(first, lambda name: read_text(archive, name)))
    names = {line.name for _, line in read if line.name}

    def is_limit(line: Line) -> bool:
        # For a required distribution, a line of a constraints file is one more requirement.
        return line.sort is LineKind.LIMIT and canonical(re.split(r"[^\w.-]", line.text, maxsplit=1)[0]) in names

    lines = [line.text for _, line in read if line.sort is LineKind.REQUIREMENT or is_limit(line)]
    carried = {LineKind.REQUIREMENT, *_FILES}
    left_out = [line.text for _, line in read if line.sort not in carried and not is_limit(line)]
    named = [(line.text, beside(file, line.text)) for file, line in read if line.sort in _FILES]
    left_out += [text for text, name in named if read_text(archive, name) is None]
    return tuple(dict.fromkeys(lines)), tuple(dict.fromkeys(left_out))


def _used_names(archive: Archive, foreign: Container[str]) -> frozenset[str]:
    """Return the last names that Python files call, import and derive classes from, without `foreign` modules."""
    found: set[str] = set()
    for name, entry in archive.entries.items():
        if not name.endswith(".py") or entry.size > MAX_SOURCE or name.partition("/")[0].removesuffix(".py") in foreign:
            continue
        with archive.open(name) as file:
            tree = parse(file.read())
        for node in () if isinstance(tree, Broken) else walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.update(alias.name.rpartition(".")[2] for alias in node.names)
            used = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
            found.update(
                ast.unparse(each).rpartition(".")[2] for each in used if isinstance(each, ast.Attribute | ast.Name)
            )
    return frozenset(found)
