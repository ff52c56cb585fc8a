"""What every command shares on a terminal: where talk goes, how an error and a finding look."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from marpack.errors import MarpackError
    from marpack.findings import Finding

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def talk() -> Console:
    """Return the console for progress, logs and errors: stderr, so that stdout holds results only."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


def page() -> Console:
    """Return the console for a command's result: stdout."""
    return Console(file=sys.stdout, highlight=False)


def show_error(error: MarpackError) -> None:
    """Print what, where and hint of one error, and the findings it sums up, on stderr."""
    console = talk()
    console.print(f"[bold red]error:[/] {escape(error.what)}")
    if error.where:
        console.print(f"  [dim]where:[/] {escape(error.where)}")
    findings = getattr(error, "findings", ())
    show_findings(findings, console)
    if hint := error.hint or (error.fix if not findings else None):
        console.print(f"  [dim]hint:[/]  {escape(hint)}")


def show_findings(findings: Iterable[Finding], console: Console) -> None:
    """Print findings, one block each: severity, code, place, sentence, hint."""
    for finding in findings:
        colour = _COLOURS[finding.severity]
        place = f"{escape(finding.where)}: " if finding.where else ""
        console.print(f"  [{colour}]{finding.severity}[/] {place}{escape(finding.message)} [dim]({finding.code})[/]")
        if finding.hint:
            console.print(f"    [dim]hint:[/] {escape(finding.hint)}")
