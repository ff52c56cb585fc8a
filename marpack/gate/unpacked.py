"""`--unpacked`: a project's loose files as a model folder, linked, not packed."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marpack.archive.protocol import MANIFEST_NAME
from marpack.errors import UsageError
from marpack.packing.plan import Plan
from marpack.project.load import load_project
from marpack.project.planning import plan_project
from marpack.project.schema import FILE_NAME
from marpack.project.source import Resolved


@contextmanager
def unpacked(source: str | None) -> Iterator[Resolved]:
    """Lay a project out as the folder that its archive would be extracted to; the folder goes when it is left.

    A model folder is taken as it is. Raises UsageError for an archive, ProjectError for what is no sound project.
    """
    path = Path(source if source is not None else ".")
    if (path / MANIFEST_NAME).is_file() and not (path / FILE_NAME).is_file():
        yield Resolved(path=path)
        return
    if path.is_file() and path.name != FILE_NAME:
        hint = "name the project's folder, or leave --unpacked out"
        raise UsageError("--unpacked runs a project or a model folder, and this is a file", where=source, hint=hint)
    project = load_project(path)
    planned = plan_project(project)
    with tempfile.TemporaryDirectory(prefix=f"{project.name}-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()  # tracebacks tell the author's files by it
        lay_out(planned.plan, folder)
        yield Resolved(path=folder, project=project, findings=planned.findings)


def lay_out(plan: Plan, folder: Path) -> None:
    """Fill a folder with links to a plan's files, and with what the archiver would write."""
    for member in plan.members:
        place = folder / member.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(member.source, bytes):
            place.write_bytes(member.source)
        else:
            place.symlink_to(member.source.resolve())
    (folder / MANIFEST_NAME).parent.mkdir(exist_ok=True)
    (folder / MANIFEST_NAME).write_bytes(plan.manifest.to_json())
