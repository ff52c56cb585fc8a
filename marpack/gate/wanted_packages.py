"""The requirements.txt of an archive: its text, and what of it this environment does not meet."""

from collections.abc import Iterator

from msgspec.structs import replace

from marpack.archive.protocol import Archive
from marpack.findings import Finding, Severity
from marpack.gate.requirements import unmet

_MOST = 1 << 20  # bytes


def requirements_text(archive: Archive) -> str | None:
    """Return the text of the file that the manifest names, or None where there is none."""
    name = archive.manifest.model.requirements_file
    if name is None or name not in archive.entries or archive.entries[name].size > _MOST:
        return None
    with archive.open(name) as file:
        return file.read().decode("utf-8", "replace")


def requirement_notes(archive: Archive) -> Iterator[Finding]:
    """Yield one note per requirement that this environment does not meet."""
    for finding in unmet(archive):
        hint = f"{finding.hint}, or run with --env isolated"
        yield replace(finding, severity=Severity.NOTE, hint=hint)
