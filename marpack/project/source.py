"""SOURCE of a command → an archive: given, fetched, or built from a project when it is stale; or its loose files.

Modules that only projects need are imported late, so that running an archive does not wait for them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISLNK
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.index import index_of
from marpack.archive.protocol import MANIFEST_NAME, Limits, no_progress
from marpack.archive.reader import open_archive
from marpack.archive.sagemaker import SCRIPT, is_sagemaker_folder
from marpack.archive.staging import temporary_folder
from marpack.errors import ArchiveError, NoProjectError, UsageError, refuse_unusable_paths, shortened
from marpack.weights.kind import SUFFIXES

if TYPE_CHECKING:
    from marpack.archive.cache import Cache
    from marpack.archive.protocol import Bar
    from marpack.findings import Finding
    from marpack.project.plan import Built, Plan
    from marpack.project.schema import Project

_WEIGHTS = frozenset(SUFFIXES) - {".bin"}
_SCHEMES = ("https", "http", "s3")
_SMALL = 1 << 20  # bytes: files up to this size are compared by digest, larger ones by size and time


class ResolvedSource(Struct, frozen=True, kw_only=True):
    """The archive of a SOURCE."""

    path: Path  # the archive: a .mar, a .tar.gz or a model folder
    project: Project | None = None  # the project it was built from, if SOURCE is one
    built: Built | None = None  # None if the archive was up to date
    findings: tuple[Finding, ...] = ()  # warnings of that build
    reference: str | None = None  # the address of a fetched archive, with its digest if that was known


@refuse_unusable_paths()
def resolve(  # noqa: PLR0913 - each has a default
    source: str | None,
    *,
    bar: Bar = no_progress,
    cache: Cache | None = None,
    maximum: int | None = None,
    digest: str | None = None,
    trust_url: bool | None = False,
    allow_outside: bool = False,
    build_in: Path | None = None,
) -> ResolvedSource:
    """Return the archive of a SOURCE, building a project's archive first if it is missing or stale.

    Args:
        source: A .mar, a .tar.gz, a model folder, a project folder, or an address (https, s3), which is fetched into
            the cache; None for the project in the current folder.
        maximum: Bytes of a fetched archive; None: the general limit.
        digest: "sha256:<hex>" of the file at an address.
        trust_url: Whether to accept an https or s3 address without a digest; None: the caller has no such option.
        allow_outside: Whether a project may pack files from outside its folder.
        build_in: The folder for a built archive; None: as the project says.

    Raises UsageError, ProjectError if the project cannot be built, ArchiveError for a fetched file.
    """
    most = Limits().total if maximum is None else maximum
    if digest is not None:
        from marpack.archive.addresses import with_digest  # noqa: PLC0415 - as the docstring says

        source = with_digest(source, digest)
    path = Path(source if source is not None else ".")
    if source is not None and "://" in source and not path.exists():
        return _resolve_address(source, bar, cache, most, trusted=trust_url)
    if path.is_file() and path.suffix in _WEIGHTS:
        hint = f"Start a project with it, and build an archive: marpack init --weights {path}"
        raise UsageError("this is a weights file, not an archive", where=source, hint=hint, code="weights-not-archive")
    if path.is_file() and is_archive(path):
        return ResolvedSource(path=path)  # and no module that only projects need is imported
    from marpack.project.schema import FILE_NAME  # noqa: PLC0415 - as the docstring says

    if not path.exists():
        hint = "Check the path: name a .mar, a .tar.gz or a project."
        raise UsageError("the file or folder does not exist", where=source, hint=hint, code="source-not-found")
    if path.name == FILE_NAME or (path.is_dir() and (path / FILE_NAME).is_file()):
        return _resolve_project(path, bar, cache, allow_outside=allow_outside, build_in=build_in)
    if source is not None and (path.is_file() or _is_model_folder(path)):
        return ResolvedSource(path=path)
    what = f"this folder is neither a project (no {FILE_NAME}) nor a model folder (no {MANIFEST_NAME} and no {SCRIPT})"
    raise NoProjectError(what, where=str(path), hint="Name an archive, or go to the project's folder.")


def find_project(folder: Path, home: Path) -> Path | None:
    """Return the nearest folder above a folder with a project, within its repository or the home folder.

    None if the folder itself is a project or a model folder. The path of `folder` is followed to its real one. Projects
    of other users are not used: in a shared folder, anyone could put one above.
    """
    from marpack.project.schema import FILE_NAME  # noqa: PLC0415 - as above

    real, home = folder.resolve(), home.resolve()
    if (real / FILE_NAME).exists() or _is_model_folder(real):
        return None
    upwards = (real, *real.parents)
    ends = (number for number, each in enumerate(upwards) if each == home or (each / ".git").exists())
    for each in upwards[1 : next(ends, 0) + 1]:
        if os.path.lexists(each / FILE_NAME):
            return each if _is_own(each) and _is_own(each / FILE_NAME) else None
    return None


def _is_own(path: Path) -> bool:
    """Return whether a file or a folder, which is not a link, belongs to this user."""
    status = path.lstat()
    return not S_ISLNK(status.st_mode) and (os.name == "nt" or status.st_uid == os.geteuid())


def _resolve_address(
    source: str, bar: Bar, cache: Cache | None, maximum: int, *, trusted: bool | None
) -> ResolvedSource:
    from marpack.archive.addresses import is_exposed, parse_address, public_address  # noqa: PLC0415 - as above
    from marpack.archive.cache import Cache, fetch_whole  # noqa: PLC0415 - as the docstring says

    address, sha256 = parse_address(source)
    where, scheme = public_address(address), address.partition("://")[0].lower()
    if scheme not in _SCHEMES:
        what = f"archives are run from https and s3 addresses, not from {shortened(scheme, 20)}:"
        raise UsageError(what, where=where, hint="Download it, and name the file.")
    hint = f"Name the file's SHA-256: {where}#sha256=…"
    if sha256 is None and is_exposed(address):
        raise UsageError("plain http does not protect the archive from changes", where=where, hint=hint)
    if sha256 is None and not trusted:
        hint += "" if trusted is None else ". Or accept any content: --trust-url"
        what = "the content of the address can change, and its code would run"
        raise UsageError(what, where=where, hint=hint, code="unpinned-address")
    path = fetch_whole(address, cache or Cache(), sha256=sha256, maximum=maximum, bar=bar)
    return ResolvedSource(path=path, reference=f"{where}#sha256={sha256}" if sha256 else where)


def is_archive(path: Path) -> bool:
    """Return whether a path is an archive, not a project: a file, or a model folder."""
    if path.is_file():
        return path.suffix not in {".yaml", ".yml"}
    from marpack.project.schema import FILE_NAME  # noqa: PLC0415 - as above

    return _is_model_folder(path) and not (path / FILE_NAME).is_file()


def _is_model_folder(path: Path) -> bool:
    return (path / MANIFEST_NAME).is_file() or is_sagemaker_folder(path)


def _resolve_project(
    path: Path, bar: Bar, cache: Cache | None, *, allow_outside: bool, build_in: Path | None
) -> ResolvedSource:
    from marpack.project.load import load_project  # noqa: PLC0415 - as above
    from marpack.project.plan import pack  # noqa: PLC0415 - as above
    from marpack.project.planning import plan_project  # noqa: PLC0415 - as above

    project = load_project(path)
    draft = plan_project(project, check=False, cache=cache, bar=bar, allow_outside=allow_outside)
    if not is_stale(draft.plan):
        return ResolvedSource(path=draft.plan.output, project=project)
    output = build_in and build_in / draft.plan.output.name
    planned = plan_project(project, output=output, cache=cache, bar=bar, allow_outside=allow_outside)
    with bar("packing", planned.plan.size) as progress:
        built = pack(planned.plan, progress)
    return ResolvedSource(path=planned.plan.output, project=project, built=built, findings=planned.findings)


def is_stale(plan: Plan) -> bool:
    """Return whether the plan's output is missing, damaged, or differs from the plan.

    `createdOn` and the commit, which only a build sets, do not count. Large files count as changed when they
    are no older than the archive.
    """
    try:
        written = plan.output.stat().st_mtime_ns
        with open_archive(plan.output) as archive:
            index, manifest = index_of(archive), archive.manifest
    except (OSError, ArchiveError):
        return True
    if index is None or replace(manifest, created_on=None) != replace(plan.manifest, created_on=None):
        return True
    if any(getattr(index, key) != getattr(plan, key) for key in ("samples", "target", "metadata", "vendored")):
        return True
    packed = {member.name: member for member in index.members if member.name != MANIFEST_NAME}
    if packed.keys() != {member.name for member in plan.members}:
        return True
    for source, recorded in ((member.source, packed[member.name]) for member in plan.members):
        if isinstance(source, Path) and (status := source.stat()).st_size > _SMALL:
            newest = max(status.st_mtime_ns, status.st_ctime_ns)  # an older file may have been moved here
            if status.st_size != recorded.size or newest >= written:
                return True
        else:
            data = source if isinstance(source, bytes) else source.read_bytes()
            if hashlib.sha256(data).hexdigest() != recorded.sha256:
                return True
    return False


@contextmanager
def unpacked(
    source: str | None, cache: Cache | None = None, *, allow_outside: bool = False
) -> Iterator[ResolvedSource]:
    """Give a folder with a project's files, as its archive would be extracted; it is removed at the end.

    A model folder is used itself. Raises UsageError for an archive, ProjectError for an invalid project.
    """
    from marpack.project.load import load_project  # noqa: PLC0415 - as above
    from marpack.project.planning import plan_project  # noqa: PLC0415 - as above
    from marpack.project.schema import FILE_NAME  # noqa: PLC0415 - as above

    path = Path(source if source is not None else ".")
    if path.is_dir() and is_archive(path):
        yield ResolvedSource(path=path)
        return
    if path.is_file() and path.name != FILE_NAME:
        what, hint = "--unpacked requires a project or a model folder", "Name a folder, or leave out --unpacked."
        raise UsageError(what, where=source, hint=hint, code="source-not-a-folder")
    project = load_project(path)
    planned = plan_project(project, cache=cache, allow_outside=allow_outside)
    with temporary_folder() as folder:
        sources = {member.name: member.source for member in planned.plan.members}
        for member, data in (sources | {MANIFEST_NAME: planned.plan.manifest.to_json()}).items():
            place = folder / member
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(data, bytes):
                place.write_bytes(data)
            else:
                place.symlink_to(data.resolve())
        yield ResolvedSource(path=folder, project=project, findings=planned.findings)
