"""The command `marpack run`: answer the inputs, time them, watch for changes, record samples."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.completion import sources
from marpack.cli.run_options import RunCommand, check, run_options
from marpack.errors import ExitCode, MarpackError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from marpack.cli.options import Options
    from marpack.cli.run_output import RunOutput
    from marpack.gate.recording import NewProject, Recorder, RecordingSummary
    from marpack.runner.benchmark import BenchmarkFigures
    from marpack.runner.client import Worker
    from marpack.runner.inputs import Input
    from marpack.runner.pool import SpareWorkers
    from marpack.runner.results import AnsweredInput, Result
    from marpack.runner.resume import ResultsLog
    from marpack.runner.session import PreparedModel, Session
    from marpack.runner.watching import Watch

_HELP = """Answer inputs as the server would.

\b
Examples:
  marpack run --input samples/*.png          the project in this folder
  marpack run digits.mar -i seven.png --json

SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3, oci), which is fetched, or a project, whose archive
is built first when it is missing or stale.
The archive's handler runs in a process of its own: it is initialised once, then handles each input.
"""
_LOOK = 0.1  # seconds between two looks for changes while answers come
_MAX_COUNT = 10_000  # inputs of a benchmark: they are all held in memory


@click.command(cls=RunCommand, help=_HELP)
@click.argument("source", required=False, shell_complete=sources)
@run_options
def run(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Answer inputs as the server would."""
    check(options)
    act = watch if options["watch"] else benchmark if options["repeat"] else answer
    click.get_current_context().exit(act(source, options))


def answer(
    source: str | None,
    options: Options,
    *,
    until: Callable[[], bool] = lambda: False,
    launch: Callable[[], Worker] | None = None,
) -> int:
    """Answer every input once; return the exit code.

    `until` is asked after every answer whether to stop; `launch` returns a worker that waits for a model.
    """
    from marpack.cli.run_options import inputs_of
    from marpack.cli.run_output import RunOutput
    from marpack.cli.run_session import open_session
    from marpack.runner.client import LoadError
    from marpack.runner.results import answered_inputs

    with ExitStack() as stack:
        recorder = recorder_of(source, options, stack) if options["record"] else None
        results_log = _open_results_log(options, stack)
        inputs = inputs_of(options)

        def skip_answered(prepared: PreparedModel) -> None:
            nonlocal inputs
            if results_log is not None:
                inputs = _skip_answered(inputs, results_log, prepared, options)

        output = stack.enter_context(RunOutput(options, results_log))
        try:
            opened = open_session(
                source, options, stack, on_findings=output.note, launch=launch, on_prepared=skip_answered
            )
            session = stack.enter_context(opened)
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


def _open_results_log(options: Options, stack: ExitStack) -> ResultsLog | None:
    if not options["resume"]:
        return None
    from marpack.runner.resume import ResultsLog

    return stack.enter_context(ResultsLog(options["resume"], unchecked=options["resume_unchecked"]))


def _skip_answered(
    inputs: Iterator[Input], results_log: ResultsLog, prepared: PreparedModel, options: Options
) -> Iterator[Input]:
    """Return the inputs without a result, having compared those before the first one with the file's results.

    Raises ResumeMismatchError if the file is of another run or of other inputs.
    """
    from marpack.runner.resume import RunDigests

    in_process = bool(options["in_process"] or options["pdb"])
    given = {name: options[name] for name in ("env", "max_request_size")}
    results_log.begin(RunDigests.of(prepared, in_process=in_process, **given))
    left = results_log.unanswered(inputs)
    return chain(list(islice(left, 1)), left) if results_log.answered else left


def _answer_all(
    session: Session, answered: Iterator[AnsweredInput], output: RunOutput, is_enough: Callable[[Result], bool]
) -> int:
    """Tell each result as it comes, and in the end what they add up to; return the exit code."""
    from marpack.cli.interrupts import INTERRUPTS
    from marpack.runner.client import LoadError

    try:
        for answered_input in answered:
            if is_enough(INTERRUPTS.after(output.show, answered_input)):
                session.pool.kill()  # and do not wait for requests that were sent ahead
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


def watch(source: str | None, options: Options) -> int:
    """Answer every input, again and again, until Ctrl-C; return the exit code of an interruption.

    The next round's worker imports torch while this round's answers.
    """
    from marpack.runner.client import Worker
    from marpack.runner.pool import SpareWorkers
    from marpack.runner.session import Device
    from marpack.runner.watching import Watch

    environment = Device.available(options["device"]).environment()
    watched = Watch(_paths(source, options), without=[Path(options["report"])] if options["report"] else ())
    spawn = partial(Worker.spawn, environment=environment, max_memory=options["max_memory"], preload=True)
    with SpareWorkers(spawn, options["workers"]) as spares:
        try:
            since = None
            while True:
                changed = _round(source, options, watched, spares, since)
                since = time.monotonic()
                _tell_changes(changed)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED


def _round(
    source: str | None, options: Options, watched: Watch, spares: SpareWorkers, since: float | None
) -> list[str]:
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
        if answer(source, options, until=has_changed, launch=spares.take) == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
    except MarpackError as error:
        if since is None and error.exit_code is ExitCode.USAGE and not Path(source or ".").is_dir():
            raise
        show_error(error)
    if pending:
        return pending
    reported = "" if since is None else f"{time.monotonic() - since:.2f} s after the change, "
    talk().print(f"[dim]{reported}waiting for the next one; Ctrl-C ends[/]")
    return watched.wait(_expect_reader)


def _expect_reader() -> None:
    """Raise BrokenPipeError once nobody reads stdout any more."""
    import select

    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # that the other end is closed is told unasked
    if poll.poll(0):
        raise BrokenPipeError


def _tell_changes(changed: list[str]) -> None:
    from marpack.render.console import talk

    names = ", ".join(os.path.relpath(path) for path in changed[:3])
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    talk().rule(f"{names}{more} changed at {time.strftime('%H:%M:%S')}", style="dim")


def _paths(source: str | None, options: Options) -> list[Path]:
    """Return what is watched: the source, and the files that are inputs."""
    named = [Path(name) for name in options["inputs"]]
    fields = (field.partition("=")[2] for field in options["form"])
    named += [Path(value[1:]) for value in fields if value.startswith("@")]
    named += [Path(options["recorded"])] if options["recorded"] else []
    return [Path(source or "."), *(path for path in named if path.is_file())]


def benchmark(source: str | None, options: Options) -> int:
    """Time the inputs; return the exit code, 1 where some fell short or memory grows."""
    from marpack.cli.run_options import inputs_of
    from marpack.cli.run_output import RunOutput
    from marpack.cli.run_session import open_session
    from marpack.runner.client import LoadError

    output = RunOutput(options)
    inputs = _held(inputs_of(options))
    try:
        with ExitStack() as stack:
            session = stack.enter_context(open_session(source, options, stack, on_findings=output.note))
            figures = _measure(session, inputs, options, output)
    except LoadError as error:
        output.fail(error, source or ".")
        return error.exit_code
    except KeyboardInterrupt:  # caught outside, so that a worker that does not answer is killed
        return ExitCode.INTERRUPTED
    short = any(pace.short for pace in figures.paces) or figures.findings
    return ExitCode.SHORT if short else ExitCode.OK


def _held(inputs: Iterable[Input]) -> list[Input]:
    held = list(islice(inputs, _MAX_COUNT + 1))
    if len(held) > _MAX_COUNT:
        raise UsageError(f"a benchmark takes at most {_MAX_COUNT:,} inputs", hint="it repeats them: name fewer")
    unread = next((item for item in held if item.refused is not None), None)
    if unread is not None:
        what = unread.why.message if unread.why else "the server refuses this request"
        raise UsageError(what, where=unread.name, hint="a benchmark needs every input")
    return held


def _measure(session: Session, inputs: list[Input], options: Options, output: RunOutput) -> BenchmarkFigures:
    from msgspec.structs import asdict

    from marpack.inspection.members import model_config
    from marpack.render.output import show
    from marpack.render.run import BenchmarkReport, show_columns, show_pace, show_rest
    from marpack.runner.benchmark import BenchmarkPlan, measure, sizes_up_to
    from marpack.torchserve.model_config import batch_size_of

    # As far as the server would go, unless the user says otherwise; larger ones than the inputs would never be full.
    largest = options["batch_size"] or batch_size_of(model_config(session.archive))
    sizes = sizes_up_to(min(largest, len(inputs) * options["repeat"]))
    warmup = 1 if options["warmup"] is None else options["warmup"]
    plan = BenchmarkPlan(sizes=sizes, repeat=options["repeat"], warmup=warmup)
    if options["as_json"]:
        figures = measure(session.pool, inputs, plan)
        show(BenchmarkReport(**asdict(output.head_of(session)), figures=figures))
        return figures
    show_columns()
    figures = measure(session.pool, inputs, plan, show_pace)
    show_rest(figures)
    return figures


def recorder_of(source: str | None, options: Options, stack: ExitStack) -> Recorder | NewProject:
    """Return what records the answers: in the project, or of an archive in a new one.

    Without inputs, the answers to the project's samples are asked for. Raises UsageError if there are none,
    ProjectError if the source is no project, ArchiveError for an archive that cannot become one.
    """
    from marpack.archive.reader import open_archive
    from marpack.gate.recording import NewProject, Recorder
    from marpack.project.load import load_project
    from marpack.project.source import is_archive

    if source is not None and is_archive(Path(source)):
        _expect_inputs(options, source)
        return NewProject(stack.enter_context(open_archive(source)))
    project = load_project(Path(source if source is not None else "."))
    if not options["inputs"] and not options["data"]:
        options["inputs"] = tuple(_path(project.folder, sample.input) for sample in project.samples)
    _expect_inputs(options, project.file)
    return Recorder(project)


def _expect_inputs(options: Options, where: str) -> None:
    if not options["inputs"] and not options["data"]:
        raise UsageError(
            "there is nothing to record",
            where=where,
            hint="name inputs: --record --input FILE…",
            code="nothing-to-record",
        )


def _path(folder: Path, name: str) -> str:
    """Return the path of a sample, spelt so that it stands for a file and nothing else."""
    path = str(folder / name)
    return f"./{path}" if path.startswith(("-", "@")) else path


def finish(recorder: Recorder | NewProject, code: int) -> int:
    """Write what was recorded, tell it on stderr, and return the exit code: 1 if something could not be recorded."""
    from marpack.gate.recording import NewProject, SavedSample

    recorder.write()
    _tell_samples(recorder.done)
    if isinstance(recorder, NewProject):
        _tell_project(recorder)
    refused = any(recorded.kept is SavedSample.REFUSED for recorded in recorder.done)
    recordable = code in (ExitCode.OK, ExitCode.SHORT)  # a 400 falls short of nothing here: it is what is expected
    return code if not recordable else ExitCode.SHORT if refused else ExitCode.OK


def _tell_samples(done: list[RecordingSummary]) -> None:
    from msgspec import to_builtins
    from rich.markup import escape

    from marpack.gate.recording import SavedSample
    from marpack.project.yaml_edits import flow
    from marpack.render.console import talk
    from marpack.render.layout import clean, fit

    console = talk()
    for recorded in done:
        if recorded.kept is SavedSample.REFUSED:
            console.print(f"[red]not recorded[/] {escape(recorded.sample)}: {escape(recorded.reason)}")
        if recorded.expected is not None:
            expected = fit(clean(flow(to_builtins(recorded.expected))), max(console.width, 80)).rstrip()
            console.print(f"[dim]filled in[/] {escape(recorded.sample)}: {escape(expected)}", soft_wrap=True)
    counts = [f"{sum(item.kept is kept for item in done)} {kept}" for kept in SavedSample]
    console.print(f"[dim]samples:[/] {', '.join(count for count in counts if not count.startswith('0 ')) or 'none'}")


def _tell_project(project: NewProject) -> None:
    """Say what is there now, and what comes next."""
    from marpack.render.console import plain, show_findings, talk

    console, folder = talk(), plain(str(project.folder))
    if not project.made:
        console.print(f"no project was made: there is no answer to hold on to, and nothing was written to {folder}")
        return
    show_findings(project.findings, console)
    console.print(f"[dim]wrote[/] {folder}, the project of this archive with these samples")
    console.print(f"[dim]next[/]  marpack check {folder}", soft_wrap=True)
