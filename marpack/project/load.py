"""marpack.yaml → Project, with every problem in one go."""

from pathlib import Path

import msgspec

from marpack.errors import NoProjectError, ProjectError
from marpack.inspection.yaml_document import read_document
from marpack.project.paths import plain_refusals
from marpack.project.reading import Reading
from marpack.project.schema import FILE_NAME, Project, ProjectFile


@plain_refusals()
def load_project(folder: Path) -> Project:
    """Read the project that lies in a folder.

    Args:
        folder: The folder of marpack.yaml, or that file itself.

    Raises NoProjectError if there is none, ProjectError holding a finding for everything that is wrong with it.
    """
    file = folder / FILE_NAME if folder.is_dir() else folder
    if file.name != FILE_NAME or not file.is_file():
        raise _no_project(folder, file)
    document = read_document(file)
    if not isinstance(document.value, dict):
        actual = "is empty" if document.value is None else "is no mapping of keys to values"
        hint = "it needs at least name, version and handler, each as 'key: value'"
        raise ProjectError(f"the project file {actual}", where=str(file), hint=hint)
    reading = Reading(document)
    found = reading.struct(ProjectFile, document.value)
    if found is None or reading.findings:
        count = f"{len(reading.findings)} problems" if len(reading.findings) > 1 else "a problem"
        raise ProjectError(f"{file} has {count}", findings=tuple(reading.findings))
    values = msgspec.structs.asdict(found)
    return Project(**values, folder=file.parent, file=str(file), lines=document.lines)


def _no_project(folder: Path, file: Path) -> NoProjectError:
    if not folder.exists():
        return NoProjectError("there is no such folder", where=str(folder))
    if not folder.is_dir():
        return NoProjectError(
            f"this is no project: a project is a folder with a {FILE_NAME}, or that file", where=str(folder)
        )
    if file.exists():
        return NoProjectError(f"{FILE_NAME} is not a file", where=str(file))
    other = next((name for name in ("marpack.yml", "Marpack.yaml", "marpack.json") if (folder / name).is_file()), None)
    hint = f"rename {other} to {FILE_NAME}" if other else "marpack init makes one; or give torch-model-archiver's flags"
    return NoProjectError(f"there is no {FILE_NAME} in this folder", where=str(folder), hint=hint)
