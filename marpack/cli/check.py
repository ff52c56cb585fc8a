"""The command `marpack check`, and its two-way comparisons."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.check_options import check_options, check_options_of, is_across, pair_of
from marpack.cli.completion import sources
from marpack.cli.run_options import RunCommand
from marpack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from marpack.cli.options import Options
    from marpack.findings import Finding
    from marpack.gate.against import Comparison, VariantRunner
    from marpack.gate.candidate import CheckOptions
    from marpack.gate.check import CheckSelection
    from marpack.gate.verdicts import GateReport
    from marpack.runner.inputs import Input
    from marpack.runner.session import Session

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
_Way = tuple[str | None, str, str, "str | None"]  # source, name, device, compiled


@click.command(cls=RunCommand, help=_HELP)
@click.argument("source", required=False, shell_complete=sources)
@check_options
def check(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Say whether an archive may be deployed."""
    answer = across if is_across(options) else _gate
    click.get_current_context().exit(answer(source, options))


def _gate(source: str | None, options: Options) -> int:
    from marpack.gate.check import CheckSelection
    from marpack.render.output import expect_writable

    choice = CheckSelection.of(options["only"], options["skip"])
    settings = check_options_of(options, device=options["device"], compiled=options["compile"])
    for name in ("report", "junit", "sarif"):
        expect_writable(options[name], option=f"--{name}")
    report = _examine(source, settings, choice, quiet=options["as_json"])
    _write(report, options)
    return report.exit_code


def _examine(source: str | None, settings: CheckOptions, choice: CheckSelection, *, quiet: bool) -> GateReport:
    from rich.markup import escape

    from marpack.gate.candidate import Candidate
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
        with Candidate(resolved, settings) as candidate:
            return examine(candidate, choice, lines)
    finally:
        if lines is not None:
            lines.stop()


def _write(report: GateReport, options: Options) -> None:
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


def across(source: str | None, options: Options) -> int:
    """Compare, show, and return the exit code: 0 if every input is answered alike, else 1."""
    from marpack.gate.against import VariantRunner
    from marpack.runner.session import misplaced

    ways = _ways(source, options)
    manners = [check_options_of(options, device=device, compiled=compiled) for _, _, device, compiled in ways]
    if options["inputs"]:
        from marpack.runner.sources import check_sources

        check_sources(options["inputs"])
    with ExitStack() as stack:
        servings = [
            stack.enter_context(_serving(way[0], settings)) for way, settings in zip(ways, manners, strict=True)
        ]
        odd = (
            misplaced(device, session.loaded.device) for session, (_, _, device, _) in zip(servings, ways, strict=True)
        )
        comparing = VariantRunner(servings[0], servings[1], (ways[0][1], ways[1][1]), options["tolerance"])
        comparison = _run(comparing, _inputs(servings, options), tuple(filter(None, odd)), options)
    _show(comparison, options)
    if comparison.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if comparison.alike else ExitCode.SHORT


def _ways(source: str | None, options: Options) -> tuple[_Way, _Way]:
    device, compiled = options["device"], options["compile"]
    if options["against"] is not None:
        other = options["against"]
        return (source, source or ".", device, compiled), (other, other, device, compiled)
    if "," in device:
        one, two = pair_of(device, "device")
        return (source, one, one, compiled), (source, two, two, compiled)
    one, two = pair_of(compiled, "compile")
    names = {"on": "compiled", "off": "not compiled"}
    return (source, names.get(one, one), device, one), (source, names.get(two, two), device, two)


def _serving(source: str | None, settings: CheckOptions) -> Session:
    from marpack.runner.session import Session

    return Session.open(
        source, options=settings.load, target=settings.target, settings=settings.settings, cache=settings.cache
    )


def _inputs(servings: list[Session], options: Options) -> Callable[[], Iterable[Input]]:
    """Return what makes the inputs, from the first one on each time: those named, else the samples of the first."""
    from marpack.gate.sample_runner import packed_samples
    from marpack.runner.inputs import RequestDefaults, file_inputs
    from marpack.runner.sources import paths_of
    from marpack.torchserve.messages import MAX_BODY

    shape = RequestDefaults(max_request_size=options["max_request_size"] or MAX_BODY)
    if options["inputs"]:
        return lambda: file_inputs(paths_of(options["inputs"]), shape)
    for session in servings:
        inputs = [sample.input for sample in packed_samples(session.archive, shape).samples]
        if inputs:
            return lambda: inputs
    raise UsageError("there is nothing to compare", hint="no samples are packed; name inputs: --input FILE…")


def _run(
    comparing: VariantRunner,
    inputs: Callable[[], Iterable[Input]],
    findings: tuple[Finding, ...],
    options: Options,
) -> Comparison:
    from marpack.render.check import AcrossLines

    lines = None if options["as_json"] else AcrossLines()
    interrupted = False
    try:
        for compared in comparing.run(inputs):
            if lines is not None:
                lines.show(compared)
    except KeyboardInterrupt:
        interrupted = True  # what was compared is told all the same
    return comparing.comparison(findings=findings, interrupted=interrupted)


def _show(comparison: Comparison, options: Options) -> None:
    if options["as_json"]:
        from marpack.render.output import show

        show(comparison)
    else:
        from marpack.render.check import show_comparison

        show_comparison(comparison)
