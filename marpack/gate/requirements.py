"""A model's requirements.txt against the packages installed here."""

from collections.abc import Iterable, Iterator
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement

from marpack.findings import Finding, Severity


def unmet(lines: Iterable[str], *, file: str = "requirements.txt") -> Iterator[Finding]:
    """Yield one finding per requirement that the environment does not meet.

    Lines that are options, addresses or paths say nothing about packages and are passed over; so are requirements
    whose markers do not apply here.
    """
    for line in lines:
        requirement = _parsed(line)
        if requirement is None or (requirement.marker and not requirement.marker.evaluate()):
            continue
        message = _unmet(requirement)
        if message is not None:
            yield Finding(
                code="requirement-unmet",
                severity=Severity.ERROR,
                message=message,
                where=f"{file}: {line}",
                hint=f"pip install '{requirement}'",
            )


def _parsed(line: str) -> Requirement | None:
    text = line.split(" #", maxsplit=1)[0].strip()
    try:
        return Requirement(text) if text and not text.startswith(("#", "-", ".", "/")) else None
    except InvalidRequirement:
        return None


def _unmet(requirement: Requirement) -> str | None:
    try:
        installed = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed here"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"{requirement.name} {installed} is installed here, the model asks for {requirement.specifier}"
