"""What every command shares on a terminal: where talk goes, how an error and a finding look."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from marpack.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from marpack.errors import MarpackError
    from marpack.findings import Finding

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def talk() -> Console:
    """Return the console for progress, logs and errors: stderr, so that stdout holds results only."""
    return Console(file=sys.stderr, highlight=False, emoji=False, soft_wrap=True)


def page() -> Console:
    """Return the console for a command's result: stdout."""
    return Console(file=sys.stdout, highlight=False, emoji=False)


def plain(text: str) -> str:
    """Return somebody else's text ready to print: no markup, and no character that a terminal would obey."""
    return escape(printable(text, keep="\n\t", stand_in="\N{REPLACEMENT CHARACTER}"))


def show_error(error: MarpackError, console: Console | None = None) -> None:
    """Print what, where and hint of one error, and the findings it sums up, on stderr."""
    console = console or talk()
    console.print(f"[bold red]error:[/] {plain(error.what)}")
    if error.where:
        console.print(f"  [dim]where:[/] {plain(error.where)}")
    findings = error.findings
    show_findings(findings, console)
    if hint := error.hint or (error.fix if not findings else None):
        console.print(f"  [dim]hint:[/]  {plain(hint)}")


def show_findings(findings: Iterable[Finding], console: Console) -> None:
    """Print findings, one block each: severity, code, place, sentence, hint."""
    for finding in findings:
        colour = _COLOURS[finding.severity]
        place = f"{plain(finding.where)}: " if finding.where else ""
        console.print(f"  [{colour}]{finding.severity}[/] {place}{plain(finding.message)} [dim]({finding.code})[/]")
        if finding.hint:
            console.print(f"    [dim]hint:[/] {plain(finding.hint)}", soft_wrap=True)  # commands are copied whole
