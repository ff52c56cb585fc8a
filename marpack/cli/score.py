"""The command `marpack score`: the rows of tables are answered, and the answers are new tables."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.completion import sources
from marpack.cli.score_options import ScoreCommand, parsed, score_options
from marpack.errors import ExitCode, InterruptError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marpack.archive.protocol import Archive
    from marpack.cli.options import Options
    from marpack.runner.client import LoadError
    from marpack.runner.session import PreparedModel
    from marpack.scoring.parts import OutputFolder
    from marpack.scoring.plan import ScorePlan
    from marpack.scoring.summary import ScoreSettings, ScoreSummary

_HELP = """Answer the rows of tables, as new tables.

\b
Examples:
  marpack score digits.mar --input scans/*.parquet --body png --keep id --output out
  marpack score --input t.csv --json age sex --type age=int --select p=probs[0]:float --output out

Each row is a request, its answer a row of the output, in the inputs' order. SOURCE is as for marpack run. Parts appear
whole or not at all; Ctrl-C keeps those that are whole, and the same command with --resume goes on.
"""
_GO_ON = "parts that are whole are kept: the same command with --resume goes on"


@click.command(cls=ScoreCommand, help=_HELP)
@click.argument("source", required=False, shell_complete=sources)
@score_options
def score(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Answer the rows of tables."""
    from marpack.api.settings import score_plan, score_settings

    given = parsed(options)
    plan = score_plan(given, compiled=not given["no_compile"])
    from marpack.render.score import ScoreBar

    settings = score_settings(given, ScoreBar(shown=sys.stderr.isatty()))
    try:
        code = _score(source, given, plan, settings)
    except KeyboardInterrupt:
        raise InterruptError("interrupted", where=given["output"], hint=_GO_ON) from None
    except OutputError as error:
        error.hint = error.hint or (f"{error.fix[:-1]}; {_GO_ON}" if _has_parts(given) else None)
        raise
    click.get_current_context().exit(code)


def _score(source: str | None, options: Options, plan: ScorePlan, settings: ScoreSettings) -> int:
    """Score all tables and tell what it adds up to; return the exit code, 1 where rows failed."""
    from marpack.runner.client import LoadError

    try:
        scored = _scored_on_ray if options["on"] == "ray" else _scored_here
        summary = scored(source, options, plan, settings)
    except LoadError as error:  # at the beginning, or of a worker that died and could not be started again
        return _tell_load_error(error, source or ".", options)
    _tell(summary, options)
    failed = summary.failed or summary.failed_before or summary.exceeded
    return ExitCode.SHORT if failed else ExitCode.OK


def _scored_here(source: str | None, options: Options, plan: ScorePlan, settings: ScoreSettings) -> ScoreSummary:
    from marpack.api.settings import score_environment
    from marpack.cli.run_output import tell_findings
    from marpack.cli.run_session import open_session
    from marpack.scoring import local

    with ExitStack() as stack:
        output: list[tuple[ScorePlan, OutputFolder]] = []

        def open_output(prepared: PreparedModel) -> None:
            output.append(_open_output(plan, options, prepared.archive, stack))

        session = stack.enter_context(
            open_session(
                source,
                options,
                stack,
                on_findings=tell_findings,
                on_prepared=open_output,
                further=score_environment(options["workers"]),
            )
        )
        summary = local.score(session.pool, *output[0], settings)
        if not summary.complete:
            session.pool.kill()  # and do not wait for what was sent ahead
    return summary


def _scored_on_ray(source: str | None, options: Options, plan: ScorePlan, settings: ScoreSettings) -> ScoreSummary:
    from marpack.api.settings import actor_model, ray_cluster
    from marpack.runner.session import Device

    cluster = ray_cluster(options, Device.parse(options["device"]))  # before anything is built
    from marpack.cli.run_output import tell_findings
    from marpack.cli.run_session import prepare_archive
    from marpack.scoring.on_ray import driver

    with ExitStack() as stack:
        stack.enter_context(_streams_of_its_own())
        prepared = prepare_archive(source, options, stack, tell_findings)
        output = _open_output(plan, options, prepared.archive, stack)
        return driver.score(cluster, actor_model(options, prepared), *output, settings)


@contextmanager
def _streams_of_its_own() -> Iterator[None]:
    """Keep stdout and stderr for the command.

    Whatever it is asked, Ray prints to stdout what becomes of its processes, and its native part logs to descriptor 2.
    """
    stderr = sys.stderr
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), os.fdopen(os.dup(2), "w", 1) as ours:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
        sys.stderr = ours
        try:
            yield
        finally:
            os.dup2(ours.fileno(), 2)
            sys.stderr = stderr


def _open_output(
    plan: ScorePlan, options: Options, archive: Archive, stack: ExitStack
) -> tuple[ScorePlan, OutputFolder]:
    """Return the plan with its archive's content digest, and the folder that the stack will close."""
    from msgspec.structs import replace

    from marpack.archive.index import content_identity
    from marpack.scoring.parts import OutputFolder

    plan = replace(plan, archive=content_identity(archive))
    folder = OutputFolder.open(options["output"], plan, resume=options["resume"])
    return plan, stack.enter_context(folder)


def _tell(summary: ScoreSummary, options: Options) -> None:
    from marpack.render.layout import page_width, show_page
    from marpack.render.output import show
    from marpack.render.score import summary_lines

    if options["as_json"]:
        show(summary)
    else:
        show_page(summary_lines(summary, options["output"], page_width()))


def _tell_load_error(error: LoadError, archive: str, options: Options) -> int:
    from marpack.render.console import talk
    from marpack.render.failure import Failure
    from marpack.render.output import show
    from marpack.render.run import show_load_error

    if options["as_json"]:
        show(Failure.of(error, archive))
        return error.exit_code
    show_load_error(error)
    if _has_parts(options):
        talk().print(f"  [dim]hint:[/]  {_GO_ON}")
    return error.exit_code


def _has_parts(options: Options) -> bool:
    return any(Path(options["output"]).glob("part-*"))
