"""The command `marpack run`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.run_options import RunCommand, check, run_options
from marpack.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from marpack.cli.run_outlets import Outlets
    from marpack.gate.serving import Serving
    from marpack.worker.inputs import Input

_HELP = """Answer inputs as the server would.

\b
Examples:
  marpack run --input samples/*.png          the project in this folder
  marpack run digits.mar -i seven.png --json

SOURCE is a .mar, a .tar.gz, a model folder or a project, whose archive is built first when it is missing or stale.
The archive's handler runs in a process of its own: it is initialised once, then handles each input.
"""


@click.command(cls=RunCommand, help=_HELP)
@click.argument("source", required=False)
@run_options
def run(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Answer inputs as the server would."""
    check(options)
    if options["watch"]:
        from marpack.cli.run_watch import watch as act
    elif options["repeat"]:
        from marpack.cli.run_benchmark import benchmark as act
    else:
        act = answer
    click.get_current_context().exit(act(source, options))


def answer(source: str | None, options: dict[str, Any]) -> int:
    """Answer every input once; return the exit code."""
    from marpack.cli.run_inputs import inputs_of
    from marpack.cli.run_outlets import Outlets
    from marpack.cli.run_serving import open_serving
    from marpack.worker.client import LoadError
    from marpack.worker.journal import Journal

    with ExitStack() as stack:
        journal = stack.enter_context(Journal(options["resume"])) if options["resume"] else None
        inputs = inputs_of(options, journal)
        outlets = stack.enter_context(Outlets(options, journal))
        try:
            serving = stack.enter_context(open_serving(source, options, stack, on_findings=outlets.note))
        except LoadError as error:
            outlets.fail(error, source or ".")
            return error.exit_code
        return answer_all(serving, inputs, options, outlets)


def answer_all(serving: Serving, inputs: Iterator[Input], options: dict[str, Any], outlets: Outlets) -> int:
    """Answer inputs by what is loaded, telling each result; return the exit code."""
    from marpack.worker.client import LoadError
    from marpack.worker.runner import exchanges

    outlets.begin(serving)
    try:
        for exchange in exchanges(serving.pool, inputs, batch_size=options["batch_size"] or 1):
            result = outlets.show(exchange)
            if options["fail_fast"] and not result.ok:
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
