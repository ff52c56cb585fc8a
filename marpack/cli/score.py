"""The command `marpack score`: rows of tables become requests, and their responses new tables."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Annotated

import click

from marpack.api.declaring import Option
from marpack.api.session_options import ScoreOptions
from marpack.cli.options import ARCHIVES, Command, command
from marpack.errors import ExitCode, InterruptError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from marpack.runner.client import LoadError

_HELP = """Score the rows of tables and write new tables.

\b
Examples:
  marpack score digits.mar -i scans/*.parquet --body png --keep id -o out
  marpack score -i t.csv --json age sex --type age=int -o out

Each row becomes a request, and its response a row of the output, in the inputs' order. SOURCE is as for marpack run.
Parts are written completely or not at all. After Ctrl-C, the same command with --resume continues.
"""
_RESUME = "Complete parts are kept: run the same command with --resume."
SUMMARY = "--json-summary"


class ScoreCommandOptions(ScoreOptions, frozen=True, kw_only=True):
    """The options of `marpack score` on the command line."""

    as_json: Annotated[
        bool,
        Option(
            "Write the summary as JSON; --json without columns does the same.",
            (SUMMARY,),
            group="Responses",
            daily=True,
        ),
    ] = False


class ScoreCommand(Command):
    """A command whose `--json` names the columns behind it and, without any, requests the summary."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace a `--json` without columns by `--json-summary`."""
        return super().parse_args(ctx, replace_json(args))


def replace_json(words: Sequence[str]) -> list[str]:
    """Return the words with `--json-summary` in place of a `--json` that no column follows."""
    following = [*words[1:], "-"]
    return [
        SUMMARY if word == "--json" and after.startswith("-") | after.endswith(ARCHIVES) else word
        for word, after in zip(words, following, strict=False)
    ]


@command(ScoreCommandOptions, cls=ScoreCommand, help=_HELP)
def score(options: ScoreCommandOptions) -> None:
    """Score the rows of tables."""
    from marpack.api import scoring
    from marpack.api.sessions import SessionExtras
    from marpack.cli.archive import print_result
    from marpack.cli.session import TerminalNotes, print_aside, show_notable
    from marpack.render.console import byte_bar, shows_progress
    from marpack.render.score import ScoreBar, score_page
    from marpack.runner.client import LoadError

    scoring.check_options(options)
    plan = scoring.score_plan(options)
    settings = scoring.score_settings(options, ScoreBar(shown=shows_progress()))
    notes = TerminalNotes(show_notable, env=options.env)
    extras = SessionExtras(bar=byte_bar, on_message=print_aside)
    try:
        with _own_streams() if options.on == "ray" else nullcontext():
            summary = scoring.score(options, plan, settings, notes, extras)
    except LoadError as error:  # when loading, or of a worker that died and could not be started again
        click.get_current_context().exit(_show_load_error(error, options))
    except KeyboardInterrupt:
        raise InterruptError("interrupted", where=options.output, hint=_RESUME) from None
    except OutputError as error:
        if _has_parts(options):
            error.hint = f"{error.hint} {_RESUME}"
        raise
    print_result(summary, lambda each: score_page(each, str(options.output)), as_json=options.as_json)
    failed = summary.failed or summary.failed_before or summary.exceeded
    click.get_current_context().exit(ExitCode.SHORT if failed else ExitCode.OK)


@contextmanager
def _own_streams() -> Iterator[None]:
    """Keep stdout and stderr for the command.

    Ray always prints messages about its processes to stdout, and its native part logs to descriptor 2.
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


def _show_load_error(error: LoadError, options: ScoreCommandOptions) -> int:
    from marpack.render.console import show, show_note
    from marpack.render.failure import Failure
    from marpack.render.run import show_load_error

    if options.as_json:
        show(Failure.of(error, os.fspath(options.source or ".")))
        return error.exit_code
    show_load_error(error)
    if _has_parts(options):
        show_note("  hint:", f" {_RESUME}")
    return error.exit_code


def _has_parts(options: ScoreCommandOptions) -> bool:
    from pathlib import Path

    return any(Path(str(options.output)).glob("part-*"))
