"""What `marpack check` shows: a line per check as it is done, its findings below, the verdict at the end."""

import sys

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from marpack.gate.verdicts import Checked, GateReport, Verdict
from marpack.render.console import page, show_findings

_MARKS = {Verdict.PASSED: ("✓", "green"), Verdict.FAILED: ("✗", "red"), Verdict.SKIPPED: ("-", "dim")}
_NAME = 16


def show_checked(checked: Checked) -> None:
    """Print one check: mark, name, what was seen, and why it failed."""
    console = page()
    mark, colour = _MARKS[checked.verdict]
    if checked.verdict is Verdict.FAILED and not checked.closes:
        colour = "yellow"
    room = max(console.width - _NAME - 4, 20)
    reason = checked.reason if len(checked.reason) <= room else f"{checked.reason[: room - 1]}…"
    line = Text.assemble(
        (f"{mark} ", colour), (checked.name.ljust(_NAME), "bold"), (reason, "" if mark != "-" else "dim")
    )
    console.print(line, soft_wrap=True)
    if checked.verdict is Verdict.FAILED:
        show_findings(checked.findings, console)
    sys.stdout.flush()


def show_verdict(report: GateReport) -> None:
    """Print whether the archive may be deployed."""
    console: Console = page()
    counts = {verdict: sum(each.verdict is verdict for each in report.checks) for verdict in Verdict}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    verdict = "[bold green]may be deployed[/]" if report.deployable else "[bold red]must not be deployed[/]"
    console.print(
        f"{escape(report.archive)} {verdict} [dim]({told}, {report.seconds:.1f} s, target {report.target})[/]"
    )
