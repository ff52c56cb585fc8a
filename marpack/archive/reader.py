"""Opening an archive of any form, by its content and never by its name; a model folder is opened in place."""

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from fnmatch import fnmatchcase
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from msgspec import Struct

from marpack.archive.bytesource import BLOCK, CHECK_PATH, LocalFile
from marpack.archive.cache import Cache
from marpack.archive.protocol import (
    MANIFEST_NAME,
    MAX_DEPTH,
    Archive,
    ArchiveForm,
    Bar,
    Entry,
    Limits,
    Method,
    Progress,
    check_member_name,
    no_progress,
    quoted,
    require_files,
)
from marpack.archive.sagemaker import is_sagemaker_folder, missing_members
from marpack.archive.staging import extract_blocks, extraction_error, staged_folder, temporary_folder
from marpack.archive.zip_archive import ZipArchive
from marpack.errors import (
    DamagedArchiveError,
    ExtractionError,
    LimitExceededError,
    NotAnArchiveError,
    UnsafeArchiveError,
    UsageError,
    convert_os_errors,
    located,
)
from marpack.finding_codes import SAGEMAKER_LAYOUT
from marpack.findings import Finding

_GZIP = b"\x1f\x8b"


def open_archive(
    source: str | Path,
    *,
    limits: Limits | None = None,
    cache: Cache | None = None,
    bar: Bar = no_progress,
) -> Archive:
    """Open a .mar, a .tar.gz or a model folder, and check its contents; nothing in it is run or written.

    The source is a path, or an address (https, s3, …), read by range if possible. With a digest at the address's
    end, as `#sha256=…`, the whole archive is fetched and verified. The cache is for `materialize` and for fetched
    archives, by default this user's.

    Raises NotAnArchiveError, DamagedArchiveError, UnsafeArchiveError or LimitExceededError, naming source and member.
    """
    limits, cache = limits or Limits(), cache or Cache()
    if isinstance(source, str) and "://" in source:
        from marpack.archive.addresses import parse_address  # noqa: PLC0415 - local archives need no network
        from marpack.archive.cache import fetch_whole  # noqa: PLC0415 - as above

        address, sha256 = parse_address(source)
        if sha256 is None:
            from marpack.archive.remote import open_remote  # noqa: PLC0415 - as above

            remote = open_remote(address)
            with located(remote.where):
                if remote.read_at(0, min(2, remote.size)) == _GZIP:
                    hint = "Download it, and pass the file."
                    raise NotAnArchiveError("a .tar.gz cannot be read by range", hint=hint, code="no-ranges")
                return ZipArchive(remote.where, remote, limits=limits, cache=cache)
        source = fetch_whole(address, cache, sha256=sha256, maximum=limits.total, bar=bar)
    path = Path(source)
    with located(str(source)), ExitStack() as undo:
        with convert_os_errors(NotAnArchiveError, "the archive cannot be opened", where=str(source), hint=CHECK_PATH):
            is_folder = path.is_dir()  # raises for a folder above it that is not permitted, or a name that is too long
        if is_folder:
            return _FolderArchive(str(path), path, limits=limits)
        data = LocalFile(path)
        undo.callback(data.close)
        if data.size >= 2 and data.read_at(0, 2) == _GZIP:
            from marpack.archive.tar_archive import TarArchive  # noqa: PLC0415 - nearly every archive is a .mar

            archive: Archive = TarArchive(str(path), data, limits=limits, cache=cache)
        else:
            archive = ZipArchive(str(path), data, limits=limits, cache=cache)
        undo.pop_all()
        return archive


class _FolderArchive(Archive):
    """A folder that holds MAR-INF/; see `marpack.archive.protocol.Archive`.

    It is the user's own, so links in it are followed, as the server does, and nothing is copied. Files that a handler
    writes into it stay from run to run, as they do when a server serves the folder.
    """

    form = ArchiveForm.FOLDER

    def __init__(self, source: str, path: Path, *, limits: Limits) -> None:
        self.source = source
        with located(source):
            self._path = path.absolute() if is_sagemaker_folder(path) else _find_root(path.absolute(), source)
            sizes: dict[str, int] = {}
            for file, status in _list_files(self._path, source):
                name = file.relative_to(self._path).as_posix()
                check_member_name(name)
                if not stat.S_ISREG(status.st_mode):
                    what = f"the member {quoted(name)} is neither a file nor a folder"
                    raise UnsafeArchiveError(what, hint="Remove it from the folder.")
                sizes[name] = status.st_size
                if len(sizes) > limits.members:
                    hint = "Check that this is a model folder, or raise the limit with --max-members."
                    raise LimitExceededError(f"the folder has more than {limits.members} files", hint=hint)
            self._added = missing_members(sizes.keys())
        sizes |= {name: len(data) for name, data in self._added.items()}
        self._undo = ExitStack()  # deletes the copy
        entries = (
            Entry(name=name, size=size, compressed_size=size, method=Method.STORED) for name, size in sizes.items()
        )
        self.entries: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in entries})
        self.server_findings: tuple[Finding, ...] = (SAGEMAKER_LAYOUT.at(source),) if self._added else ()

    def open(self, name: str) -> BinaryIO:
        _ = self.entries[name]
        if name in self._added:
            return BytesIO(self._added[name])
        with _reading(f"the file {quoted(name)}", self.source):
            return (self._path / name).open("rb")

    def materialize(self) -> Path:
        """Return the folder; of SageMaker's layout a copy with the added members."""
        _ = self.manifest
        return self._copy if self._added else self._path

    @cached_property
    def _copy(self) -> Path:
        """A folder with all members; large files are links, if possible so that their real path is in it."""
        large = {name for name, entry in self.entries.items() if entry.size > BLOCK} - self._added.keys()
        with convert_os_errors(ExtractionError, "the files cannot be copied", where=self.source):
            copy = self._undo.enter_context(temporary_folder()) / "model"  # the folder above it is this user's only
            self.extract(copy, self.entries.keys() - large)
            for name in large:
                file, place = (self._path / name).resolve(), copy / name
                place.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(file, place)
                except OSError:  # another file system, or another owner
                    place.symlink_to(file)
        return copy

    def extract(self, folder: Path, names: Collection[str] | None = None, progress: Progress | None = None) -> None:
        for name in self.entries:
            if names is None or name in names:
                with self.open(name) as file:
                    extract_blocks(iter(partial(file.read, BLOCK), b""), folder, name, progress)

    def close(self) -> None:
        """Remove the folder of SageMaker's layout; files are open only while they are read."""
        self._undo.close()


def _find_root(path: Path, source: str) -> Path:
    """Return the folder that the server uses: if there is only one folder inside, that one.

    Raises NotAnArchiveError when that has no manifest, before anything else in it is read.
    """
    inside = _list_folder(path, source)
    found = inside[0] if len(inside) == 1 and inside[0].is_dir() else path
    if not (found / MANIFEST_NAME).exists():
        raise NotAnArchiveError(
            f"this folder is not a model archive: it has no {MANIFEST_NAME}",
            hint="To build an archive from a project: marpack build",
        )
    return found


def _reading(what: str, where: str) -> AbstractContextManager[None]:
    return convert_os_errors(DamagedArchiveError, f"{what} cannot be read", where=where, hint=CHECK_PATH)


def _list_folder(folder: Path, source: str) -> list[Path]:
    with _reading(f"the folder {quoted(folder.name)}", source):
        return sorted(folder.iterdir())


def _list_files(
    folder: Path, source: str, above: tuple[tuple[int, int], ...] = ()
) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield files in the order of their names; links are followed, but never in a circle."""
    here = folder.stat()
    if (here.st_dev, here.st_ino) in above or len(above) > MAX_DEPTH:
        what = f"the folder {quoted(folder.name)} is a link to a folder above it, or nested too deep"
        raise UnsafeArchiveError(what, hint="Remove the link, or nest the folders less deeply.")
    for path in _list_folder(folder, source):
        with _reading(f"the member {quoted(path.name)}", source):
            status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            yield from _list_files(path, source, (*above, (here.st_dev, here.st_ino)))
        else:
            yield path, status


class Unpacked(Struct, frozen=True, kw_only=True):
    """The files that `unpack` wrote."""

    source: str
    folder: str
    files: tuple[str, ...]  # names of the members, in the archive's order
    bytes: int  # size of all files
    findings: tuple[Finding, ...] = ()  # reasons why the server would refuse the archive's layout


def unpack(
    archive: Archive, folder: Path, *, only: Iterable[str] = (), replace: bool = False, bar: Bar = no_progress
) -> Unpacked:
    """Write an archive's members into a new folder, their CRCs checked.

    `only` has patterns (`*.py`, `data/*`) or folders' names: members that match none of them are left out. An existing
    folder stays unchanged unless it is empty, or if `replace` and it holds an unpacked archive.

    Raises UsageError when a pattern matches nothing, OutputExistsError, ExtractionError, and ArchiveError for problems
    of the archive; no folder is left then.
    """
    require_files(archive)  # report its problems before anything is written
    patterns = tuple(only)
    names = tuple(archive.entries)
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            hint = f"List the members: marpack inspect {archive.source}"
            what = f"no member matches {pattern!r}"
            raise UsageError(what, where=archive.source, hint=hint, code="no-matching-member")
    if patterns:
        names = tuple(name for name in names if any(_matches(name, pattern) for pattern in patterns))
    size = sum(archive.entries[name].size for name in names)
    empty = folder.is_dir() and not any(folder.iterdir())
    try:
        with (
            located(archive.source),
            staged_folder(folder, replace=replace or empty) as staged,
            bar("extracting", size) as progress,
        ):
            archive.extract(staged, names if patterns else None, progress)
    except OSError as error:
        raise extraction_error(f"the folder {folder.name}", error) from None
    return Unpacked(
        source=archive.source, folder=str(folder), files=names, bytes=size, findings=archive.server_findings
    )


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")
