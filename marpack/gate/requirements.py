"""A model's requirements against the packages installed here."""

from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion

from marpack.archive.protocol import Archive
from marpack.findings import Finding, Severity
from marpack.inspection.requirements import Line, Sort, read_lines

_MOST = 1 << 20  # bytes of one file


def unmet(archive: Archive) -> Iterator[Finding]:
    """Yield one finding per requirement that the environment does not meet, those of included files among them.

    Options and paths say nothing about packages and are passed over; so are requirements whose markers do not apply
    here. What pip could not read is for the static checks to tell.
    """
    for file, line in _lines(archive):
        message = _unmet(line)
        if message is not None:
            yield Finding(
                code="requirement-unmet",
                severity=Severity.ERROR,
                message=message,
                where=f"{archive.source}!{file}:{line.number}",
                hint=f"pip install '{line.text}'",
            )


def wanted(archive: Archive) -> int:
    """Return how many requirements an archive has."""
    return sum(line.sort is Sort.REQUIREMENT for _, line in _lines(archive))


def _lines(archive: Archive) -> Iterator[tuple[str, Line]]:
    """Yield every line of the requirements file and of those that it includes, with the file it stands in."""
    first = archive.manifest.model.requirements_file
    files = [first] if first else []
    for name in files:  # grows while it is walked
        if name not in archive.entries or archive.entries[name].size > _MOST:
            continue
        with archive.open(name) as file:
            lines = read_lines(file.read())
        for line in lines:
            yield name, line
            if line.sort is Sort.INCLUDE and line.text not in files:
                files.append(line.text)


def _unmet(line: Line) -> str | None:
    if line.sort is not Sort.REQUIREMENT or line.name is None:
        return None
    requirement = _parsed(line.text)
    if requirement is not None and requirement.marker is not None and not requirement.marker.evaluate():
        return None
    try:
        installed = metadata.version(line.name)
    except metadata.PackageNotFoundError:
        return f"{line.name} is not installed here"
    if requirement is None or _holds(requirement, installed):
        return None
    return f"{requirement.name} {installed} is installed here, the model asks for {requirement.specifier}"


def _parsed(text: str) -> Requirement | None:
    """Return a requirement, or None for one that is an address alone."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _holds(requirement: Requirement, installed: str | None) -> bool:
    try:
        return installed is None or requirement.specifier.contains(installed, prereleases=True)
    except InvalidVersion:  # one that no specifier can be held against
        return True
