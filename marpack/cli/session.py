"""How commands show on the terminal that they find, build and load an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marpack.api.sessions import SessionNotes
from marpack.render.console import byte_bar, waiting

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from marpack.archive.cache import Cache
    from marpack.archive.protocol import Archive
    from marpack.findings import Finding
    from marpack.project.source import ResolvedSource

_PRINTED_NOTES = ("requirement-unmet", "program")


class TerminalNotes(SessionNotes):
    """Shows what was built and that the model is loaded, and passes on findings."""

    def opened(self, resolved: ResolvedSource, archive: Archive) -> None:
        """Show what was built or fetched; see `SessionNotes`."""
        tell_built(resolved)
        super().opened(resolved, archive)

    def loading(self) -> AbstractContextManager[object]:
        """Show a status while the model is loaded."""
        return waiting("loading the model")


def tell_findings(findings: Iterable[Finding]) -> None:
    """Print warnings, unmet requirements and programs on stderr; `build` prints its other notes itself."""
    from marpack.findings import Severity
    from marpack.render.console import show_findings

    shown = [each for each in findings if each.severity is not Severity.NOTE or each.code in _PRINTED_NOTES]
    show_findings(shown)


def tell_aside(text: str) -> None:
    """Print a message about progress on stderr."""
    from marpack.render.console import talk

    talk().print(text, markup=False, style="dim")


def cache_of() -> Cache:
    """Return the cache of extracted archives, which shows the progress of an extraction."""
    from marpack.api.operations import cache_of

    return cache_of(byte_bar)


def tell_built(resolved: ResolvedSource) -> None:
    """Print on stderr what was built, or which archive of a registry was fetched."""
    if resolved.built is None and resolved.reference is None:
        return
    from marpack.render.console import plain, talk

    made = f"built {resolved.built.path}" if resolved.built is not None else f"this is {resolved.reference}"
    talk().print(f"[dim]{plain(made)}[/]")
