"""The frozen Plan of an archive, complete before a byte is written; its output; and carrying it out."""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from io import BytesIO, FileIO
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace as changed

from marpack.archive import sagemaker
from marpack.archive.copying import Copier
from marpack.archive.index import Index, Metadata, Vendored, index_digest
from marpack.archive.manifest import Manifest
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME, Progress, check_member_names
from marpack.archive.staging import staged_file, staged_folder
from marpack.archive.writers import FolderWriter, TarWriter, Writer, ZipWriter
from marpack.errors import (
    BuildError,
    OutputExistsError,
    ProjectError,
    UsageError,
    convert_os_errors,
    describe_os_error,
    is_disk_full,
)
from marpack.version import __version__


class Format(StrEnum):
    """The names for the forms of an archive, which are the original archiver's."""

    DEFAULT = "default"
    ZIP_STORE = "zip-store"
    TGZ = "tgz"
    NO_ARCHIVE = "no-archive"
    SAGEMAKER = "sagemaker"  # not the original's: a model.tar.gz for AWS's images

    @property
    def suffix(self) -> str:
        """The suffix of an archive's file; "" for a folder."""
        return {Format.TGZ: ".tar.gz", Format.SAGEMAKER: ".tar.gz", Format.NO_ARCHIVE: ""}.get(self, ".mar")


class Role(StrEnum):
    """The kind of a member, in the order of the archive; weights are first, aligned to pages."""

    WEIGHTS = "weights"
    FILE = "file"
    META = "meta"  # under MAR-INF/, last


class PlannedMember(Struct, frozen=True):
    """One member to write."""

    name: str  # inside the archive, with "/"
    source: Path | bytes  # a file on disk, or content made while planning
    role: Role = Role.FILE

    @property
    def size(self) -> int:
        """The bytes of the content; raises BuildError for an unreadable file."""
        return len(self.source) if isinstance(self.source, bytes) else _stat(self.source).st_size

    def open(self) -> BinaryIO:
        """Open the content; raises OSError for an unreadable file."""
        return BytesIO(self.source) if isinstance(self.source, bytes) else self.source.open("rb")


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that writing needs, without problems."""

    manifest: Manifest
    members: tuple[PlannedMember, ...]  # without MANIFEST.json and marpack.json, which the writer makes
    output: Path  # the .mar, .tar.gz or folder
    format: Format = Format.DEFAULT
    replace: bool = False  # an existing output may be replaced
    samples: tuple[dict[str, Any], ...] = ()  # Any: the author's expectations as JSON, for marpack.json
    target: str = "torchserve"  # for marpack.json
    metadata: Metadata | UnsetType = UNSET  # for marpack.json
    vendored: Vendored | UnsetType = UNSET  # for marpack.json
    source_commit: str | None = None  # for marpack.json: 40 or 64 lower-case hexadecimal digits

    @property
    def packed(self) -> tuple[PlannedMember, ...]:
        """The members that the format includes: AWS's images need no manifest, samples and handler."""
        if self.format is not Format.SAGEMAKER:
            return self.members
        packed = {member.name: member for member in self.members if not member.name.startswith("MAR-INF/")}
        packed.pop(self.manifest.model.handler, None)
        requirements = packed.pop(self.manifest.model.requirements_file or "", None)
        if requirements and sagemaker.REQUIREMENTS not in packed:
            packed[sagemaker.REQUIREMENTS] = changed(requirements, name=sagemaker.REQUIREMENTS)
        return tuple(packed.values())

    @property
    def size(self) -> int:
        """The bytes of all members, the total of the progress of `pack`; raises BuildError for an unreadable file."""
        return sum(member.size for member in self.packed)


class Built(Struct, frozen=True, kw_only=True):
    """The result of a build."""

    path: Path
    size: int  # bytes on disk
    content_digest: str  # "sha256:…" of MAR-INF/marpack.json
    members: int
    seconds: float


def choose_output(output: str | Path | None, chosen: Format | None, *, name: str, folder: Path) -> tuple[Path, Format]:
    """Return the archive's path and format, each from the other if only one is given; raises UsageError.

    `output` is a path for the archive, or a folder (existing, or with a final slash) to put it in.
    """
    form = chosen or Format.DEFAULT
    if output is None:
        return folder / f"{name}{form.suffix}", form
    path, text = Path(output), str(output)
    if text.endswith(("/", os.sep)) or (path.is_dir() and not path.name.endswith((".mar", ".tar.gz"))):
        return (path if form is Format.NO_ARCHIVE else path / f"{name}{form.suffix}"), form
    if chosen is None and path.name.endswith(".tar.gz"):
        form = Format.TGZ
    if not path.name.endswith(form.suffix) or (not form.suffix and path.suffix == ".mar"):
        what = f"the output of format {form} ends in {form.suffix or 'no suffix'}, not {path.name}"
        hint = "Name a .mar, a .tar.gz or a folder."
        raise UsageError(what, where=f"--output {text}", hint=hint, code="wrong-suffix")
    return path, form


def check_output(plan: Plan) -> None:
    """Refuse an output that would overwrite other files.

    Raises OutputExistsError if it exists and may not be replaced, ProjectError if an archive cannot be there.
    """
    output, is_model_folder, what = plan.output, plan.format is Format.NO_ARCHIVE, None
    files = {member.name: member for member in plan.members}
    has_adapter = sagemaker.has_adapter(plan.manifest.model.handler, lambda name: files[name].open())
    if plan.format is Format.SAGEMAKER and not (sagemaker.SCRIPT in files and has_adapter):
        message = f"the format sagemaker requires {sagemaker.SCRIPT} and the unchanged handler {sagemaker.HANDLER}"
        raise ProjectError(message, where=str(output), hint="To begin with both: marpack init --from model.tar.gz")
    blocker = next((parent for parent in output.parents if parent.exists()), None)
    if blocker is not None and not blocker.is_dir():
        what = f"{blocker} is a file, so nothing can be written below it"
    elif not os.path.lexists(output):
        return
    elif is_model_folder and not output.is_dir():
        what = "the output is a file; this format needs a folder"
    elif source := _replaced_source(plan):
        what = f"the output would replace {source}, which goes into the archive"
    elif is_model_folder and any(output.iterdir()) and not (output / MANIFEST_NAME).is_file():
        what = f"the folder is not a model folder (it has no {MANIFEST_NAME}), so it is not replaced"
    elif not is_model_folder and not output.is_file():
        what = "the output is a folder or a special file; an archive is a regular file"
    if what:
        raise ProjectError(what, where=str(output), hint="Choose another output.")
    if not plan.replace:
        raise OutputExistsError("the output exists", where=str(output), hint="Pass --force to replace it.")


def _replaced_source(plan: Plan) -> Path | None:
    """Return a source that is the output, or in it."""
    output = Path(os.path.realpath(plan.output))
    sources = (member.source for member in plan.members if isinstance(member.source, Path))
    return next((path for path in sources if Path(os.path.realpath(path)).is_relative_to(output)), None)


class _Source:
    """A member's bytes, to be read once from the start."""

    def __init__(self, raw: FileIO | BytesIO, where: str, progress: Progress | None) -> None:
        self._raw, self._where, self._progress = raw, where, progress

    def readinto(self, block: memoryview, /) -> int:
        """Fill the block from its start and return the number of bytes; raises BuildError at the end of the file."""
        with _reading(self._where):
            count = self._raw.readinto(block)
        if not count:
            raise _changed(self._where)
        if self._progress:
            self._progress(count)
        return count


@contextmanager
def _open(source: Path | bytes, progress: Progress | None) -> Iterator[tuple[_Source, int]]:
    """Open a source for one reading, with its size in bytes.

    Raises BuildError for a file that cannot be read, and at the end for one that has changed since it was opened.
    """
    if isinstance(source, bytes):
        yield _Source(BytesIO(source), "", progress), len(source)
        return
    _stat(source)  # before it is opened: opening a FIFO would wait for a writer
    with _reading(str(source)):
        file = FileIO(source)
    with file:
        before = os.fstat(file.fileno())
        yield _Source(file, str(source), progress), before.st_size
        after = os.fstat(file.fileno())
    if any(getattr(after, key) != getattr(before, key) for key in ("st_size", "st_mtime_ns", "st_ctime_ns")):
        raise _changed(str(source))


def _stat(path: Path) -> os.stat_result:
    with _reading(str(path)):
        status = path.stat()
    if not S_ISREG(status.st_mode):
        raise BuildError("the source is not a regular file", where=str(path), hint="Pack regular files only.")
    return status


def _reading(where: str) -> AbstractContextManager[None]:
    """Return a context in which an OSError becomes a BuildError about a file to pack."""
    what, hint = "the file cannot be read", "Check the path and its permissions."
    return convert_os_errors(BuildError, what, where=where, hint=hint, code="unreadable-file")


def _changed(where: str) -> BuildError:
    hint = "Build again when no program writes to it."
    return BuildError("the file changed while it was being packed", where=where, hint=hint, code="changed-file")


def pack(plan: Plan, progress: Progress | None = None) -> Built:
    """Write the archive of a plan, in a folder that may be new; it appears when it is complete, or not at all.

    `progress` is called with the number of bytes of each read.

    Raises OutputExistsError, UnsafeArchiveError for names that no archive may have, and BuildError for a source that
    cannot be read or changes, and for an output that cannot be written.
    """
    started = time.perf_counter()
    check_member_names([*(member.name for member in plan.members), MANIFEST_NAME, INDEX_NAME])
    if plan.output.exists() and (source := _replaced_source(plan)):
        what = f"the output would replace {source}, which goes into it"
        raise OutputExistsError(what, where=str(plan.output), hint="Choose another output.")
    is_folder = plan.format is Format.NO_ARCHIVE
    staged: AbstractContextManager[Path | BinaryIO] = (staged_folder if is_folder else staged_file)(
        plan.output, replace=plan.replace
    )
    try:
        with Copier() as copier, staged as place:
            if isinstance(place, Path):
                writer: Writer = FolderWriter(place, copier)
            elif plan.format in {Format.TGZ, Format.SAGEMAKER}:
                root = f"{plan.manifest.model.name}/" if plan.format is Format.TGZ else ""
                writer = TarWriter(place, copier, root=root)
            else:
                writer = ZipWriter(place, copier)
            digest, count = _write(plan, writer, progress)
            # Another build may replace the output as soon as it is complete.
            if isinstance(place, Path):
                size = sum(each.stat().st_size for each in place.rglob("*") if each.is_file())
            else:
                size = place.seek(0, os.SEEK_END)
    except OSError as error:
        hint = "Choose another output, or change its permissions."
        if is_disk_full(error):
            hint = f"Free about {plan.size / 1e6:,.1f} MB, or choose another output."
        what = f"the output cannot be written: {describe_os_error(error)}"
        raise BuildError(what, where=str(plan.output), hint=hint, code="unwritable-output") from error
    return Built(
        path=plan.output,
        size=size,
        content_digest=digest,
        members=count,
        seconds=time.perf_counter() - started,
    )


def _write(plan: Plan, writer: Writer, progress: Progress | None) -> tuple[str, int]:
    """Write every member, weights first, then MANIFEST.json and marpack.json; return content digest and member count.

    SageMaker's format lacks these two; its content digest is that of the marpack.json that lists its members.
    """

    def place(member: PlannedMember) -> tuple[int, str]:
        role = Role.META if member.name.startswith("MAR-INF/") else member.role
        return list(Role).index(role), member.name

    entries = []
    for member in sorted(plan.packed, key=place):
        with _open(member.source, progress) as (source, size):
            entries.append(writer.add(member.name, source, size, aligned=member.role is Role.WEIGHTS))
    if plan.format is not Format.SAGEMAKER:
        manifest = plan.manifest.to_json()
        entries.append(writer.add(MANIFEST_NAME, BytesIO(manifest), len(manifest)))
    commit = {"source_commit": plan.source_commit} if plan.source_commit else {}
    index = Index(
        members=tuple(entries),
        samples=plan.samples,
        provenance={"builder": f"marpack {__version__}", **commit},
        metadata=plan.metadata,
        vendored=plan.vendored,
        target=plan.target,
    ).to_json()
    if plan.format is not Format.SAGEMAKER:
        entries.append(writer.add(INDEX_NAME, BytesIO(index), len(index)))
    writer.finish()
    return index_digest(index), len(entries)
