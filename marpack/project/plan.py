"""What goes into an archive, from where, under which name: decided before a byte is written."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from io import BytesIO, FileIO
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from msgspec import UNSET, Struct, UnsetType

from marpack.archive.copying import Copier
from marpack.archive.index import Index, Member, Metadata, Vendored, index_digest
from marpack.archive.manifest import Manifest
from marpack.archive.names import check_member_names
from marpack.archive.protocol import INDEX_NAME, MANIFEST_NAME, Progress
from marpack.archive.staging import staged_file, staged_folder
from marpack.archive.writers import FolderWriter, Writer, ZipWriter
from marpack.errors import BuildError, OutputExistsError, is_disk_full
from marpack.version import __version__


class Format(StrEnum):
    """The original archiver's names for the forms of an archive."""

    DEFAULT = "default"
    ZIP_STORE = "zip-store"
    TGZ = "tgz"
    NO_ARCHIVE = "no-archive"


class Role(StrEnum):
    """Why a member is in the archive; weights lie first in the file, aligned to pages."""

    WEIGHTS = "weights"
    FILE = "file"
    META = "meta"  # under MAR-INF/, last


class PlannedMember(Struct, frozen=True):
    """One member to write."""

    name: str  # inside the archive, with "/"
    source: Path | bytes  # a file on disk, or content made while planning
    role: Role = Role.FILE


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that writing needs; nothing in it can be wrong any more."""

    manifest: Manifest
    members: tuple[PlannedMember, ...]  # without MANIFEST.json and marpack.json, which the writer makes
    output: Path  # the .mar, .tar.gz or folder
    format: Format = Format.DEFAULT
    replace: bool = False  # an existing output may be replaced
    samples: tuple[dict[str, Any], ...] = ()  # Any: user's expectations, JSON as it stands; listed in marpack.json
    target: str = "torchserve"  # recorded in marpack.json
    metadata: Metadata | UnsetType = UNSET  # likewise
    vendored: Vendored | UnsetType = UNSET  # likewise
    source_commit: str | None = None  # likewise: 40 or 64 lower-case hexadecimal digits


class Built(Struct, frozen=True, kw_only=True):
    """What was written."""

    path: Path
    size: int  # bytes on disk
    content_digest: str  # "sha256:…" of MAR-INF/marpack.json
    members: int
    seconds: float


_ORDER = {Role.WEIGHTS: 0, Role.FILE: 1, Role.META: 2}


class OpenedSource:
    """A member's bytes, to be read once from the start."""

    def __init__(self, raw: FileIO | BytesIO, size: int, where: str, progress: Progress | None) -> None:
        self._raw = raw
        self.size = size  # bytes
        self._where = where
        self._progress = progress

    def readinto(self, block: memoryview, /) -> int:
        """Fill the block from its start and return how many bytes came; raises BuildError if none can."""
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
    """Return a source's size in bytes; raises BuildError if there is no such file."""
    return len(source) if isinstance(source, bytes) else _stat(source).st_size


@contextmanager
def opened(source: Path | bytes, progress: Progress | None = None) -> Iterator[OpenedSource]:
    """Open a source for one reading.

    Raises BuildError for what is no readable file, and at the end for a file that was changed meanwhile.
    """
    if isinstance(source, bytes):
        yield OpenedSource(BytesIO(source), len(source), "", progress)
        return
    _stat(source)  # before it is opened: opening a FIFO would wait for somebody to write into it
    try:
        file = FileIO(source)
    except OSError as error:
        raise _unreadable(error, str(source)) from error
    with file:
        before = os.fstat(file.fileno())
        yield OpenedSource(file, before.st_size, str(source), progress)
        if _version(os.fstat(file.fileno())) != _version(before):
            raise _changed(str(source))


def _stat(path: Path) -> os.stat_result:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(error, str(path)) from error
    if not S_ISREG(status.st_mode):
        raise BuildError("it is no regular file", where=str(path), hint="pack files only")
    return status


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _unreadable(error: OSError, where: str) -> BuildError:
    return BuildError(
        f"the file cannot be read: {error.strerror}",
        where=where,
        hint="check the path and its permissions",
        code="unreadable-file",
    )


def _changed(where: str) -> BuildError:
    return BuildError(
        "the file was changed while it was being packed",
        where=where,
        hint="build again once nothing writes to it",
        code="changed-file",
    )


def plan_size(plan: Plan) -> int:
    """Return how many bytes the plan's members have together: what `pack` reports as progress, all in all.

    Raises BuildError for a file that is not there.
    """
    return sum(size_of(member.source) for member in plan.members)


def pack(plan: Plan, progress: Progress | None = None) -> Built:
    """Write the archive of a plan, in a folder that may be new; it appears when it is complete, or not at all.

    Args:
        plan: What to write, and where.
        progress: Is called with the number of bytes just read, again and again.

    Raises OutputExistsError, UnsafeArchiveError for names no archive may hold, and BuildError for a source that cannot
    be read or changes meanwhile, and for an output that cannot be written.
    """
    started = time.perf_counter()
    check_member_names([*(member.name for member in plan.members), MANIFEST_NAME, INDEX_NAME])
    _spare_inputs(plan)
    try:
        with Copier() as copier, _writer(plan, copier) as writer:
            digest = _write(plan, writer, progress)
    except OSError as error:
        raise _unwritable(error, plan) from error
    return Built(
        path=plan.output,
        size=_disk_size(plan.output),
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
        yield _tar_writer(plan, copier, file) if plan.format is Format.TGZ else ZipWriter(file, copier)


def _tar_writer(plan: Plan, copier: Copier, file: BinaryIO) -> Writer:
    from marpack.archive.writers import TarWriter  # noqa: PLC0415 - few archives are any more

    return TarWriter(file, copier, root=plan.manifest.model.name)


def _write(plan: Plan, writer: Writer, progress: Progress | None) -> str:
    """Write every member, weights first and what describes them last; return its content digest."""
    entries = []
    for member in sorted(plan.members, key=_place):
        with opened(member.source, progress) as source:
            entries.append(writer.add(member.name, source, source.size, aligned=member.role is Role.WEIGHTS))
    entries.append(_add(writer, MANIFEST_NAME, plan.manifest.to_json()))
    commit = {"source_commit": plan.source_commit} if plan.source_commit else {}
    index = Index(
        members=tuple(entries),
        samples=plan.samples,
        provenance={"builder": f"marpack {__version__}", **commit},
        metadata=plan.metadata,
        vendored=plan.vendored,
        target=plan.target,
    ).to_json()
    _add(writer, INDEX_NAME, index)
    writer.finish()
    return index_digest(index)


def _add(writer: Writer, name: str, content: bytes) -> Member:
    return writer.add(name, BytesIO(content), len(content))


def _place(member: PlannedMember) -> tuple[int, str]:
    rank = _ORDER[Role.META if member.name.startswith("MAR-INF/") else member.role]
    return rank, member.name


def _spare_inputs(plan: Plan) -> None:
    """Refuse to replace what goes into the archive."""
    if not plan.output.exists():
        return
    output = Path(os.path.realpath(plan.output))
    for member in plan.members:
        if isinstance(member.source, Path):
            source = Path(os.path.realpath(member.source))
            if output in (source, *source.parents):
                raise OutputExistsError(
                    f"the output would replace {member.source}, which is to go into it",
                    where=str(plan.output),
                    hint="choose another output",
                )


def _unwritable(error: OSError, plan: Plan) -> BuildError:
    hint = "choose another output, or mend its permissions"
    if is_disk_full(error):
        hint = f"make room for about {plan_size(plan) / 1e6:,.1f} MB, or choose another output"
    return BuildError(
        f"the output cannot be written: {error.strerror}", where=str(plan.output), hint=hint, code="unwritable-output"
    )


def _disk_size(path: Path) -> int:
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size
