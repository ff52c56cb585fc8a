"""SOURCE, as commands take it: an archive as it is, or a project whose archive is built first when it must be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from marpack.archive.protocol import unseen
from marpack.errors import NoProjectError, UsageError
from marpack.project.paths import plain_refusals

if TYPE_CHECKING:
    from marpack.archive.protocol import Bar
    from marpack.findings import Finding
    from marpack.packing.plan import Built
    from marpack.project.schema import Project


class Resolved(Struct, frozen=True, kw_only=True):
    """What a SOURCE stands for."""

    path: Path  # the archive: a .mar, a .tar.gz or a model folder
    project: Project | None = None  # the project it was built from, where SOURCE is one
    built: Built | None = None  # what was built just now; None if the archive was up to date
    findings: tuple[Finding, ...] = ()  # warnings of that build


@plain_refusals()
def resolve(
    source: str | None,
    *,
    bar: Bar = unseen,
    created_on: str | None = None,
) -> Resolved:
    """Return the archive that a SOURCE stands for, building it first if it is a project's and missing or stale.

    Args:
        source: A .mar, a .tar.gz, a model folder or a project folder; None for the project in the current folder.
        bar: Shows how far a build is.
        created_on: The manifest's `createdOn` if something is built.

    Raises UsageError if there is nothing of that name, ProjectError if the project cannot be built.
    """
    path = Path(source if source is not None else ".")
    if path.is_file() and path.suffix not in {".yaml", ".yml"}:
        return Resolved(path=path)  # and nothing of what only projects need is imported
    from marpack.archive.protocol import MANIFEST_NAME  # noqa: PLC0415
    from marpack.project.load import load_project  # noqa: PLC0415
    from marpack.project.schema import FILE_NAME  # noqa: PLC0415

    if not path.exists():
        raise UsageError("there is no such file or folder", where=source, hint="name a .mar, a .tar.gz or a project")
    if path.name == FILE_NAME or (path.is_dir() and (path / FILE_NAME).is_file()):
        return _resolve_project(load_project(path), bar, created_on)
    if source is not None and (path.is_file() or (path / MANIFEST_NAME).is_file()):
        return Resolved(path=path)
    raise NoProjectError(
        f"this folder is neither a project (no {FILE_NAME}) nor a model folder (no {MANIFEST_NAME})",
        where=str(path),
        hint="name an archive, or go to the project's folder",
    )


def _resolve_project(project: Project, bar: Bar, created_on: str | None) -> Resolved:
    from marpack.packing.pack import plan_size  # noqa: PLC0415
    from marpack.project.planning import plan_project  # noqa: PLC0415
    from marpack.project.staleness import is_stale  # noqa: PLC0415
    from marpack.project.writing import write  # noqa: PLC0415

    draft = plan_project(project, check=False, created_on=created_on)
    if not is_stale(draft.plan):
        return Resolved(path=draft.plan.output, project=project)
    planned = plan_project(project, created_on=created_on)
    with bar("packing", plan_size(planned.plan)) as progress:
        built = write(planned, progress)
    return Resolved(path=planned.plan.output, project=project, built=built, findings=planned.findings)
