"""The frozen Plan of an archive, complete before a byte is written; and carrying it out, whole or not at all."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from io import BytesIO, FileIO
from pathlib import Path
from stat import S_ISREG
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from marpack.archive.copying import Copier
from marpack.archive.index import Index, Metadata, Vendored, index_digest
from marpack.archive.manifest import Manifest
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME, Progress, check_member_names
from marpack.archive.staging import staged_file, staged_folder
from marpack.archive.writers import FolderWriter, Writer, ZipWriter
from marpack.errors import BuildError, OutputExistsError, describe_os_error, is_disk_full
from marpack.version import __version__


class Format(StrEnum):
    """The original archiver's names for the forms of an archive."""

    DEFAULT = "default"
    ZIP_STORE = "zip-store"
    TGZ = "tgz"
    NO_ARCHIVE = "no-archive"


class Role(StrEnum):
    """The kind of a member, in the order of the archive; weights are first, aligned to pages."""

    WEIGHTS = "weights"
    FILE = "file"
    META = "meta"  # under MAR-INF/, last


_ORDER = {Role.WEIGHTS: 0, Role.FILE: 1, Role.META: 2}


class PlannedMember(Struct, frozen=True):
    """One member to write."""

    name: str  # inside the archive, with "/"
    source: Path | bytes  # a file on disk, or content made while planning
    role: Role = Role.FILE

    @property
    def order(self) -> tuple[int, str]:
        """The place of the member in the archive."""
        return _ORDER[Role.META if self.name.startswith("MAR-INF/") else self.role], self.name


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


class Built(Struct, frozen=True, kw_only=True):
    """The result of a build."""

    path: Path
    size: int  # bytes on disk
    content_digest: str  # "sha256:…" of MAR-INF/marpack.json
    members: int
    seconds: float


class OpenedSource:
    """A member's bytes, to be read once from the start."""

    def __init__(self, raw: FileIO | BytesIO, size: int, where: str, progress: Progress | None) -> None:
        self._raw = raw
        self.size = size  # bytes
        self._where = where
        self._progress = progress

    def readinto(self, block: memoryview, /) -> int:
        """Fill the block from its start and return the number of bytes; raises BuildError at the end of the file."""
        try:
            count = self._raw.readinto(block)
        except OSError as error:
            raise _unreadable(error, self._where) from error
        if not count:
            raise _changed(self._where)
        if self._progress:
            self._progress(count)
        return count


def size_of(source: Path | bytes) -> int:
    """Return a source's size in bytes; raises BuildError if the file does not exist."""
    return len(source) if isinstance(source, bytes) else _stat(source).st_size


@contextmanager
def opened(source: Path | bytes, progress: Progress | None = None) -> Iterator[OpenedSource]:
    """Open a source for one reading.

    Raises BuildError for a file that cannot be read, and at the end for one that has changed since it was opened.
    """
    if isinstance(source, bytes):
        yield OpenedSource(BytesIO(source), len(source), "", progress)
        return
    _stat(source)  # before it is opened: opening a FIFO would wait for a writer
    try:
        file = FileIO(source)
    except OSError as error:
        raise _unreadable(error, str(source)) from error
    with file:
        before = os.fstat(file.fileno())
        yield OpenedSource(file, before.st_size, str(source), progress)
        after = os.fstat(file.fileno())
        if any(getattr(after, key) != getattr(before, key) for key in ("st_size", "st_mtime_ns", "st_ctime_ns")):
            raise _changed(str(source))


def _stat(path: Path) -> os.stat_result:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(error, str(path)) from error
    if not S_ISREG(status.st_mode):
        raise BuildError("it is not a regular file", where=str(path), hint="pack files only")
    return status


def _unreadable(error: OSError, where: str) -> BuildError:
    what, hint = f"the file cannot be read: {describe_os_error(error)}", "check the path and its permissions"
    return BuildError(what, where=where, hint=hint, code="unreadable-file")


def _changed(where: str) -> BuildError:
    hint = "build again when no program writes to it"
    return BuildError("the file changed while it was being packed", where=where, hint=hint, code="changed-file")


def plan_size(plan: Plan) -> int:
    """Return the bytes of the plan's members: the total of the progress of `pack`.

    Raises BuildError for a file that does not exist.
    """
    return sum(size_of(member.source) for member in plan.members)


def pack(plan: Plan, progress: Progress | None = None) -> Built:
    """Write the archive of a plan, in a folder that may be new; it appears when it is complete, or not at all.

    Args:
        plan: The plan.
        progress: Called with the number of bytes of each read.

    Raises OutputExistsError, UnsafeArchiveError for names that no archive may have, and BuildError for a source that
    cannot be read or changes, and for an output that cannot be written.
    """
    started = time.perf_counter()
    check_member_names([*(member.name for member in plan.members), MANIFEST_NAME, INDEX_NAME])
    output = Path(os.path.realpath(plan.output))
    for member in plan.members if plan.output.exists() else ():
        if isinstance(member.source, Path) and Path(os.path.realpath(member.source)).is_relative_to(output):
            what = f"the output would replace {member.source}, which goes into it"
            raise OutputExistsError(what, where=str(plan.output), hint="choose another output")
    try:
        with Copier() as copier, _writer(plan, copier) as writer:
            digest = _write(plan, writer, progress)
    except OSError as error:
        hint = "choose another output, or change its permissions"
        if is_disk_full(error):
            hint = f"free about {plan_size(plan) / 1e6:,.1f} MB, or choose another output"
        what = f"the output cannot be written: {describe_os_error(error)}"
        raise BuildError(what, where=str(plan.output), hint=hint, code="unwritable-output") from error
    written = plan.output.rglob("*") if plan.output.is_dir() else [plan.output]
    return Built(
        path=plan.output,
        size=sum(each.stat().st_size for each in written if each.is_file()),
        content_digest=digest,
        members=len(plan.members) + 2,
        seconds=time.perf_counter() - started,
    )


@contextmanager
def _writer(plan: Plan, copier: Copier) -> Iterator[Writer]:
    if plan.format is Format.NO_ARCHIVE:
        with staged_folder(plan.output, replace=plan.replace) as folder:
            yield FolderWriter(folder, copier)
        return
    with staged_file(plan.output, replace=plan.replace) as file:
        if plan.format is not Format.TGZ:
            yield ZipWriter(file, copier)
            return
        from marpack.archive.writers import TarWriter  # noqa: PLC0415 - few archives are .tar.gz

        yield TarWriter(file, copier, root=plan.manifest.model.name)


def _write(plan: Plan, writer: Writer, progress: Progress | None) -> str:
    """Write every member, weights first, then MANIFEST.json and marpack.json; return the content digest."""
    entries = []
    for member in sorted(plan.members, key=lambda member: member.order):
        with opened(member.source, progress) as source:
            entries.append(writer.add(member.name, source, source.size, aligned=member.role is Role.WEIGHTS))
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
    writer.add(INDEX_NAME, BytesIO(index), len(index))
    writer.finish()
    return index_digest(index)
