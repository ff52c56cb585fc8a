"""A planned archive, written; apart from what reads projects, which the original archiver's flags do without."""

from marpack.archive.protocol import Progress
from marpack.errors import BuildError
from marpack.packing.pack import pack
from marpack.packing.plan import Built
from marpack.project.planned import Planned


def write(planned: Planned, progress: Progress | None = None) -> Built:
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
