"""An archive's requirements, as far as they can be installed somewhere else."""

from msgspec import Struct

from marpack.archive.protocol import Archive
from marpack.inspection.requirements import LineKind, read_requirements
from marpack.inspection.text_members import read_text


class Requirements(Struct, frozen=True):
    """The lines of requirements.txt and of what it includes."""

    lines: tuple[str, ...] = ()  # each one requirement, without options
    file: str = ""  # requirements.txt's name in the archive
    left_out: tuple[str, ...] = ()  # files of the archive, options of pip's, what pip would not take


def requirements_of(archive: Archive) -> Requirements:
    """Return the requirements of an archive; what is no requirement by itself is told apart."""
    first = archive.manifest.model.requirements_file
    if not first:
        return Requirements()
    read = list(read_requirements(first, lambda name: read_text(archive, name)))
    lines = [line.text for _, line in read if line.sort is LineKind.REQUIREMENT]
    carried = (LineKind.REQUIREMENT, LineKind.INCLUDE)
    left_out = [line.text for _, line in read if line.sort not in carried]
    return Requirements(tuple(dict.fromkeys(lines)), first, tuple(dict.fromkeys(left_out)))
