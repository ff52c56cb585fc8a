"""The command `marpack check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from marpack.cli.check_options import check_options, is_across, manner_of
from marpack.cli.completing import sources
from marpack.cli.run_options import RunCommand

if TYPE_CHECKING:
    from marpack.gate.candidate import Manner
    from marpack.gate.check import Choice
    from marpack.gate.verdicts import GateReport

_HELP = """Say whether an archive may be deployed.

\b
Examples:
  marpack check                              the project in this folder
  marpack check new.mar --against old.mar    do both answer alike?

SOURCE is a .mar, a .tar.gz, a model folder or a project, whose archive is built first when it is missing or stale.
Integrity, static findings and pickles come first; only an archive that passes them is loaded. Then its packed samples
are replayed: alone, in batches, in other forms and orders. The exit code is 0 if it may be deployed; else that of the
first check that failed: 3 where the archive is damaged or unsafe, 4 where its handler does not load, otherwise 1.
"""


@click.command(cls=RunCommand, help=_HELP)
@click.argument("source", required=False, shell_complete=sources)
@check_options
def check(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Say whether an archive may be deployed."""
    if is_across(options):
        from marpack.cli.across import across

        code = across(source, options)
    else:
        code = _gate(source, options)
    click.get_current_context().exit(code)


def _gate(source: str | None, options: dict[str, Any]) -> int:
    from marpack.gate.check import Choice
    from marpack.render.output import expect_writable

    choice = Choice.of(options["only"], options["skip"])
    manner = manner_of(options, device=options["device"], compiled=options["compile"])
    for name in ("report", "junit", "sarif"):
        expect_writable(options[name], option=f"--{name}")
    report = _examine(source, manner, choice, quiet=options["as_json"])
    _write(report, options)
    return report.exit_code


def _examine(source: str | None, manner: Manner, choice: Choice, *, quiet: bool) -> GateReport:
    from rich.markup import escape

    from marpack.gate.candidate import Subject
    from marpack.gate.check import check as examine
    from marpack.project.source import resolve
    from marpack.render.check import CheckLines
    from marpack.render.console import talk
    from marpack.render.progress import byte_bar

    resolved = resolve(source, bar=byte_bar)
    if resolved.built is not None:
        talk().print(f"[dim]built {escape(str(resolved.built.path))}[/]")
    lines = None if quiet else CheckLines(str(resolved.path))
    try:
        with Subject(resolved, manner) as subject:
            return examine(subject, choice, lines)
    finally:
        if lines is not None:
            lines.stop()


def _write(report: GateReport, options: dict[str, Any]) -> None:
    """Write the report in every form that was asked for, and the verdict on stdout."""
    from marpack.render.output import write_whole

    if options["report"]:
        from marpack.render.check_files import check_page

        write_whole(options["report"], check_page(report), option="--report")
    if options["junit"]:
        from marpack.render.check_files import junit

        write_whole(options["junit"], junit(report), option="--junit")
    if options["sarif"]:
        from marpack.render.check_files import sarif

        write_whole(options["sarif"], sarif(report), option="--sarif")
    if options["as_json"]:
        from marpack.render.output import show

        show(report)
    else:
        from marpack.render.check import show_verdict

        show_verdict(report)
