"""Messages on the terminal of commands that find, build and load an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marpack.api.sessions import SessionNotes
from marpack.render.console import waiting

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from marpack.archive.protocol import Archive
    from marpack.findings import Finding
    from marpack.project.source import ResolvedSource

_PRINTED_NOTES = ("requirement-unmet", "program")


class TerminalNotes(SessionNotes):
    """Shows the origin of an archive and that its model is loading, and passes on findings."""

    def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
        """Show the archive's origin; see `SessionNotes`."""
        show_origin(resolved)
        super().opened(resolved, archive)

    def loading(self) -> AbstractContextManager[object]:
        """Show a status while the model is loaded."""
        return waiting("loading the model")


def show_notable(findings: Iterable[Finding]) -> None:
    """Print warnings, unmet requirements and programs on stderr; the other notes are for `build` and --verbose."""
    from marpack.findings import Severity
    from marpack.render.console import STDERR, show_findings

    shown = [each for each in findings if each.severity is not Severity.NOTE or each.code in _PRINTED_NOTES]
    show_findings(findings if STDERR.verbose else shown)


def print_aside(text: str) -> None:
    """Print a message about progress on stderr."""
    from marpack.render.console import show_note

    show_note(text)


def show_origin(resolved: ResolvedSource) -> None:
    """Print on stderr that the archive was built, or the address that it was fetched from."""
    if resolved.built is None and resolved.reference is None:
        return
    from marpack.render.console import show_note

    made = f"built {resolved.built.path}" if resolved.built is not None else f"using {resolved.reference}"
    show_note(made)
