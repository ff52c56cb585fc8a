"""A project, built: plan it, then pack it."""

from collections.abc import Callable
from pathlib import Path

from marpack.errors import BuildError
from marpack.packing.pack import pack
from marpack.packing.plan import Built
from marpack.project.load import load_project
from marpack.project.planned import Planned
from marpack.project.planning import plan_project


def build_project(
    project: str | Path = ".",
    *,
    output: str | Path | None = None,
    strict: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Built:
    """Build a project's archive.

    Args:
        project: The folder of a marpack.yaml, or that file itself.
        output: The archive's path, or a folder to put it in; `<name>.mar` beside marpack.yaml if None.
        strict: Whether warnings stop the build too.
        progress: Is called with the number of bytes just read, again and again.

    Raises ProjectError holding every finding that stops the build, BuildError if the archive cannot be written.
    """
    return build(plan_project(load_project(Path(project)), output=output, strict=strict), progress)


def build(planned: Planned, progress: Callable[[int], None] | None = None) -> Built:
    """Write a plan's archive, making the folder it goes into.

    Args:
        planned: From `plan_project` or `plan_flags`.
        progress: Is called with the number of bytes just read, again and again.

    Raises BuildError, OutputExistsError.
    """
    folder = planned.plan.output.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"the output's folder cannot be made: {error.strerror}", where=str(folder)) from error
    return pack(planned.plan, progress)
