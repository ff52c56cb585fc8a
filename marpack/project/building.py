"""A project, built: plan it, then pack it."""

from collections.abc import Callable
from pathlib import Path

from marpack.packing.plan import Built
from marpack.project.load import load_project
from marpack.project.planning import plan_project
from marpack.project.writing import write


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
    return write(plan_project(load_project(Path(project)), output=output, strict=strict), progress)
