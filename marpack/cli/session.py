"""Messages on the terminal of commands that find, build and load an archive."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

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


def project_above() -> str | None:
    """Return the project of which the current folder is a subfolder, and say so on stderr; None if there is none."""
    from pathlib import Path

    from marpack.project.source import find_project
    from marpack.render.console import STDERR, show_lines, visible

    try:
        found = find_project(Path.cwd(), Path.home())
    except (OSError, RuntimeError):  # a folder cannot be read or was removed, or there is no home
        return None
    if found is None:
        return None
    path = os.path.relpath(found, Path.cwd().resolve())
    if not STDERR.quiet:
        show_lines([click.style(f"using the project in {visible(path)}", dim=True)], err=True)
    return path


def show_notable(findings: Iterable[Finding]) -> None:
    """Print warnings, unmet requirements and programs on stderr; the other notes are for `build` and --verbose."""
    from marpack.findings import Severity
    from marpack.render.console import STDERR, show_findings

    shown = [each for each in findings if each.severity is not Severity.NOTE or each.code in _PRINTED_NOTES]
    show_findings(findings if STDERR.verbose else shown)


def print_aside(text: str) -> None:
    """Print a message about progress on stderr."""
    from marpack.render.console import talk

    talk().print(text, markup=False, style="dim")


def show_origin(resolved: ResolvedSource) -> None:
    """Print on stderr that the archive was built, or its address in a registry."""
    if resolved.built is None and resolved.reference is None:
        return
    from marpack.render.console import plain, talk

    made = f"built {resolved.built.path}" if resolved.built is not None else f"using {resolved.reference}"
    talk().print(f"[dim]{plain(made)}[/]")
