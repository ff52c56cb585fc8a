"""The command `marpack run`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.completing import sources
from marpack.cli.run_options import RunCommand, check, run_options
from marpack.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from marpack.cli.run_outlets import Outlets
    from marpack.runner.process import WorkerProcess
    from marpack.runner.results import Exchange, Result
    from marpack.runner.session import Serving

_HELP = """Answer inputs as the server would.

\b
Examples:
  marpack run --input samples/*.png          the project in this folder
  marpack run digits.mar -i seven.png --json

SOURCE is a .mar, a .tar.gz, a model folder or a project, whose archive is built first when it is missing or stale.
The archive's handler runs in a process of its own: it is initialised once, then handles each input.
"""


@click.command(cls=RunCommand, help=_HELP)
@click.argument("source", required=False, shell_complete=sources)
@run_options
def run(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Answer inputs as the server would."""
    check(options)
    click.get_current_context().exit(_act(source, options))


def _act(source: str | None, options: dict[str, Any]) -> int:
    if options["watch"]:
        from marpack.cli.run_watch import watch

        return watch(source, options)
    if options["repeat"]:
        from marpack.cli.run_benchmark import benchmark

        return benchmark(source, options)
    return answer(source, options)


def answer(
    source: str | None,
    options: dict[str, Any],
    *,
    until: Callable[[], bool] = lambda: False,
    launch: Callable[[], WorkerProcess] | None = None,
) -> int:
    """Answer every input once; return the exit code.

    Args:
        source: As given.
        options: As given.
        until: Is asked after every answer whether to stop.
        launch: Starts a worker, if not as usual.
    """
    from marpack.cli.run_inputs import inputs_of
    from marpack.cli.run_outlets import Outlets
    from marpack.cli.run_record import finish, recorder_of
    from marpack.cli.run_serving import open_serving
    from marpack.runner.client import LoadError
    from marpack.runner.results import exchanges
    from marpack.runner.resume import Journal

    recorder = recorder_of(source, options) if options["record"] else None
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(options["resume"])) if options["resume"] else None
        inputs = inputs_of(options, journal)
        outlets = stack.enter_context(Outlets(options, journal))
        try:
            serving = stack.enter_context(open_serving(source, options, stack, on_findings=outlets.note, launch=launch))
        except LoadError as error:
            outlets.fail(error, source or ".")
            return error.exit_code
        outlets.begin(serving)
        answered = exchanges(serving.pool, inputs, batch_size=options["batch_size"] or 1)
        code = _answer_all(
            serving,
            answered if recorder is None else recorder.through(answered),
            outlets,
            lambda result: until() or (options["fail_fast"] and not result.ok),
        )
        return code if recorder is None else finish(recorder, code)


def _answer_all(
    serving: Serving, answered: Iterator[Exchange], outlets: Outlets, is_enough: Callable[[Result], bool]
) -> int:
    """Tell each result as it comes, and in the end what they add up to; return the exit code."""
    from marpack.cli.interrupts import Interrupts
    from marpack.runner.client import LoadError

    try:
        with Interrupts() as interrupts:
            for exchange in answered:
                if is_enough(interrupts.after(outlets.show, exchange)):
                    serving.pool.kill()  # and do not wait for what was sent ahead
                    return outlets.end(serving)
        serving.pool.close()
    except KeyboardInterrupt:  # what was answered is told all the same
        serving.pool.kill()
        return outlets.end(serving, code=ExitCode.INTERRUPTED)
    except LoadError as error:  # a worker that died could not be started again
        return outlets.end(serving, failure=error, code=error.exit_code)
    except BrokenPipeError:  # whoever read the results has seen enough
        serving.pool.kill()
        return outlets.abandon()
    return outlets.end(serving)
