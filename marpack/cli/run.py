"""The command `marpack run`: answer the inputs, watch for changes, record samples."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.completion import sources
from marpack.cli.run_options import RunCommand, check, run_options
from marpack.errors import ExitCode, MarpackError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from marpack.cli.run_output import RunOutput
    from marpack.gate.recording import Recorder
    from marpack.runner.process import WorkerProcess
    from marpack.runner.results import AnsweredInput, Result
    from marpack.runner.session import Session
    from marpack.runner.watching import Watch

_HELP = """Answer inputs as the server would.

\b
Examples:
  marpack run --input samples/*.png          the project in this folder
  marpack run digits.mar -i seven.png --json

SOURCE is a .mar, a .tar.gz, a model folder or a project, whose archive is built first when it is missing or stale.
The archive's handler runs in a process of its own: it is initialised once, then handles each input.
"""
_LOOK = 0.1  # seconds between two looks for changes while answers come
_FILES_ONLY = ("recorded", "form", "content_type", "headers", "explain", "describe", "envelope")
_HINT = "a sample is the bytes of a file, sent as marpack run --input sends it"


@click.command(cls=RunCommand, help=_HELP)
@click.argument("source", required=False, shell_complete=sources)
@run_options
def run(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Answer inputs as the server would."""
    check(options)
    click.get_current_context().exit(_act(source, options))


def _act(source: str | None, options: dict[str, Any]) -> int:
    if options["watch"]:
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
    from marpack.cli.run_options import inputs_of
    from marpack.cli.run_output import RunOutput
    from marpack.cli.run_session import open_session
    from marpack.runner.client import LoadError
    from marpack.runner.results import answered_inputs
    from marpack.runner.resume import ResultsLog

    recorder = recorder_of(source, options) if options["record"] else None
    with ExitStack() as stack:
        results_log = stack.enter_context(ResultsLog(options["resume"])) if options["resume"] else None
        inputs = inputs_of(options, results_log)
        output = stack.enter_context(RunOutput(options, results_log))
        try:
            session = stack.enter_context(open_session(source, options, stack, on_findings=output.note, launch=launch))
        except LoadError as error:
            output.fail(error, source or ".")
            return error.exit_code
        output.begin(session)
        answered = answered_inputs(session.pool, inputs, batch_size=options["batch_size"] or 1)
        code = _answer_all(
            session,
            answered if recorder is None else recorder.through(answered),
            output,
            lambda result: until() or (options["fail_fast"] and not result.ok),
        )
        return code if recorder is None else finish(recorder, code)


def _answer_all(
    session: Session, answered: Iterator[AnsweredInput], output: RunOutput, is_enough: Callable[[Result], bool]
) -> int:
    """Tell each result as it comes, and in the end what they add up to; return the exit code."""
    from marpack.cli.main import Interrupts
    from marpack.runner.client import LoadError

    try:
        with Interrupts() as interrupts:
            for answered_input in answered:
                if is_enough(interrupts.after(output.show, answered_input)):
                    session.pool.kill()  # and do not wait for what was sent ahead
                    return output.end(session)
        session.pool.close()
    except KeyboardInterrupt:  # what was answered is told all the same
        session.pool.kill()
        return output.end(session, code=ExitCode.INTERRUPTED)
    except LoadError as error:  # a worker that died could not be started again
        return output.end(session, failure=error, code=error.exit_code)
    except BrokenPipeError:  # whoever read the results has seen enough
        session.pool.kill()
        return output.abandon()
    return output.end(session)


def watch(source: str | None, options: dict[str, Any]) -> int:
    """Answer every input, again and again, until Ctrl-C; return the exit code of an interruption.

    torch stays imported in a process that the workers are forked from.
    """
    from marpack.runner.forking import ForkServer
    from marpack.runner.session import Device
    from marpack.runner.watching import Watch

    device = Device.parse(options["device"])
    watched = Watch(_paths(source, options), without=_outputs(options))
    with ForkServer.start(environment=device.environment(), max_memory=options["max_memory"]) as server:
        try:
            since = None
            while True:
                changed = _round(source, options, watched, server.launch, since)
                since = time.monotonic()
                _tell_changes(changed)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED


def _round(source: str | None, options: dict[str, Any], watched: Watch, launch: Any, since: float | None) -> list[str]:
    """Answer every input once, and return what changed thereafter; a change meanwhile ends it early."""
    from marpack.render.console import show_error, talk

    pending: list[str] = []
    looked = time.monotonic()

    def has_changed() -> bool:
        nonlocal looked
        if time.monotonic() - looked > _LOOK:
            pending.extend(watched.changed())
            looked = time.monotonic()
        return bool(pending)

    try:
        if answer(source, options, until=has_changed, launch=launch) == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
    except MarpackError as error:
        if since is None and error.exit_code is ExitCode.USAGE and not _is_project(source):
            raise
        show_error(error)
    if pending:
        return pending
    reported = "" if since is None else f"{time.monotonic() - since:.2f} s after the change, "
    talk().print(f"[dim]{reported}waiting for the next one; Ctrl-C ends[/]")
    return watched.wait()


def _is_project(source: str | None) -> bool:
    return Path(source or ".").is_dir()


def _tell_changes(changed: list[str]) -> None:
    from marpack.render.console import talk

    names = ", ".join(os.path.relpath(path) for path in changed[:3])
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    talk().rule(f"{names}{more} changed at {time.strftime('%H:%M:%S')}", style="dim")


def _paths(source: str | None, options: dict[str, Any]) -> list[Path]:
    """Return what is watched: the source, and the files that are inputs."""
    named = [Path(name) for name in options["inputs"]]
    fields = (field.partition("=")[2] for field in options["form"])
    named += [Path(value[1:]) for value in fields if value.startswith("@")]
    named += [Path(options["recorded"])] if options["recorded"] else []
    return [Path(source or "."), *(path for path in named if path.is_file())]


def _outputs(options: dict[str, Any]) -> list[Path]:
    return [Path(options["report"])] if options["report"] else []


def recorder_of(source: str | None, options: dict[str, Any]) -> Recorder:
    """Return what records the answers; without inputs, those to the project's samples are asked for.

    Raises UsageError for options that no sample can keep, ProjectError if the source is no project.
    """
    from pathlib import Path

    from marpack.gate.recording import Recorder
    from marpack.project.load import load_project

    wrong = next((name for name in _FILES_ONLY if options[name]), None)
    if wrong is not None:
        raise UsageError(f"--record does not go with --{_spelt(wrong)}", hint=_HINT)
    project = load_project(Path(source if source is not None else "."))
    if not options["inputs"] and not options["data"]:
        options["inputs"] = tuple(_path(project.folder, sample.input) for sample in project.samples)
    if not options["inputs"] and not options["data"]:
        raise UsageError("there is nothing to record", where=project.file, hint="name inputs: --record --input FILE…")
    return Recorder(project)


def _path(folder: Path, name: str) -> str:
    """Return the path of a sample, spelt so that it stands for a file and nothing else."""
    path = str(folder / name)
    return f"./{path}" if path.startswith(("-", "@")) else path


def _spelt(name: str) -> str:
    return {"recorded": "requests", "headers": "header"}.get(name, name).replace("_", "-")


def finish(recorder: Recorder, code: int) -> int:
    """Write what was recorded, tell it on stderr, and return the exit code: 1 if something could not be recorded."""
    from rich.markup import escape

    from marpack.gate.recording import SavedSample
    from marpack.render.console import talk

    recorder.write()
    console = talk()
    for recorded in recorder.done:
        if recorded.kept is SavedSample.REFUSED:
            console.print(f"[red]not recorded[/] {escape(recorded.sample)}: {escape(recorded.reason)}")
    counts = [f"{sum(item.kept is kept for item in recorder.done)} {kept}" for kept in SavedSample]
    console.print(f"[dim]samples:[/] {', '.join(count for count in counts if not count.startswith('0 ')) or 'none'}")
    refused = any(recorded.kept is SavedSample.REFUSED for recorded in recorder.done)
    recordable = code in (ExitCode.OK, ExitCode.SHORT)  # a 400 falls short of nothing here: it is what is expected
    return code if not recordable else ExitCode.SHORT if refused else ExitCode.OK
