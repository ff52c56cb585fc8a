"""The command `marpack run`: send inputs, benchmark them, watch for changes, record samples."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Meta
from msgspec.structs import asdict, replace

from marpack.api.declaring import Option
from marpack.api.options import Above0
from marpack.api.session_options import BatchSize
from marpack.cli.inputs import InputOptions, count_inputs, read_inputs, refuse_combinations
from marpack.cli.options import command
from marpack.cli.run_output import OutputOptions, RunOutput
from marpack.errors import ExitCode, MarpackError, UsageError, join_names, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from marpack.findings import Finding
    from marpack.gate.recording import NewProject, Recorder
    from marpack.project.source import ResolvedSource
    from marpack.runner.client import Worker
    from marpack.runner.pool import PoolSettings
    from marpack.runner.results import AnsweredInput, Result
    from marpack.runner.session import PoolMaker, PreparedModel, Session
    from marpack.runner.watching import Watch

_HELP = """Run inputs through an archive and show the server's responses.

\b
Examples:
  marpack run --input samples/*.png          the project in this folder
  marpack run digits.mar -i seven.png --json

SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3) or a project. marpack builds the archive of a
project first if it is missing or stale. The handler runs in a separate process, which is initialized once.
"""
_Model = partial(Option, group="Model")
_Debugging = partial(Option, group="Debugging")
_Benchmark = partial(Option, group="Benchmark")
_INTERVAL = 0.1  # seconds between two searches for changes during a run
_MAX_COUNT = 10_000  # inputs of a benchmark, which holds all of them in memory


class RunCommandOptions(OutputOptions, frozen=True, kw_only=True):
    """The options of `marpack run`: those of Python, and those that only the command line has."""

    batch_size: BatchSize = None  # a benchmark uses the server's
    torchserve: Annotated[bool, _Model("Import the installed torchserve's ts instead of marpack's.")] = False
    unpacked: Annotated[bool, _Model("Run the project's files without packing them.")] = False
    show_data: Annotated[bool, _Debugging("Show what the handler gets, values cut to 80 characters.")] = False
    in_process: Annotated[bool, _Debugging("Run the handler in this process, so that breakpoints work.")] = False
    pdb: Annotated[bool, _Debugging("Open the debugger where the handler fails.")] = False
    repeat: Annotated[Above0 | None, _Benchmark("Number of timed passes over the inputs, as a benchmark.")] = None
    warmup: Annotated[
        Annotated[int, Meta(ge=0)] | None, _Benchmark("Number of passes before the timed ones.", default="1")
    ] = None

    @property
    def is_in_process(self) -> bool:
        """Whether the handler runs in this process."""
        return self.in_process or self.pdb

    @property
    def path(self) -> str | None:
        """The source as text."""
        return None if self.source is None else os.fspath(self.source)


_NO_PROCESS = ("workers", "timeout", "startup_timeout", "max_memory", "watch", "repeat", "trace")
_NO_RESPONSES = ("output", "report", "resume", "jsonl", "watch", "show_data", "trace")
_NO_SAMPLE = ("recorded", "form", "content_type", "headers", "explain", "describe", "envelope")
_CONFLICTS = (  # option, those that it excludes, and why
    ("in_process", _NO_PROCESS, "the handler runs in this process"),
    ("isolated", ("in_process", "watch"), "it needs a process with another environment"),
    ("recorded", ("inputs", "data", "form", "kind"), "its file has whole requests"),
    ("as_json", ("jsonl",), "they are two formats of one output"),
    ("repeat", _NO_RESPONSES, "a benchmark does not keep responses"),
    ("watch", ("as_json", "jsonl", "resume", "output"), "its output is for reading on a terminal"),
    ("unpacked", ("trace",), "only packed files exist on a server"),
    ("record", ("watch", "repeat", "resume"), "each response is recorded once"),
    ("record", _NO_SAMPLE, "a sample is the bytes of a file, sent as marpack run --input sends it"),
)
_SPELLINGS = {
    "recorded": "requests",
    "as_json": "json",
    "inputs": "input",
    "kind": "type",
    "headers": "header",
    "isolated": "env isolated",
}


@command(InputOptions, RunCommandOptions, help=_HELP)
def run(inputs: InputOptions, options: RunCommandOptions) -> None:
    """Run inputs through an archive."""
    if not inputs.has_inputs and not options.record:
        raise UsageError("no inputs", hint="Name inputs: marpack run --input FILE")
    given = asdict(options) | asdict(inputs)
    given |= {
        "in_process": options.is_in_process,
        "workers": options.workers > 1,
        "isolated": options.env == "isolated",
    }
    refuse_combinations(given, _CONFLICTS, _SPELLINGS | ({"in_process": "pdb"} if options.pdb else {}))
    if options.warmup is not None and not options.repeat:
        raise UsageError("--warmup requires --repeat", hint="Add --repeat N.")
    if options.resume_unchecked and not options.resume:
        raise UsageError("--resume-unchecked requires --resume", hint="Add --resume FILE.")
    if options.resume == "-" or options.report == "-":
        raise UsageError("--resume and --report cannot write to stdout", hint="Name a file.")
    act = watch if options.watch else benchmark if options.repeat else answer
    click.get_current_context().exit(act(options, inputs))


def open_session(
    options: RunCommandOptions,
    inputs: InputOptions,
    stack: ExitStack,
    on_findings: Callable[[Iterable[Finding]], None],
    *,
    launch: Callable[[], Worker] | None = None,
    on_prepared: Callable[[PreparedModel], object] = lambda _: None,
) -> Session:
    """Load the model; the stack removes temporary files at the end. See `marpack.api.sessions.open_session`."""
    from marpack.api import sessions
    from marpack.api.operations import cache_of
    from marpack.cli.session import TerminalNotes, print_aside
    from marpack.project.source import unpacked
    from marpack.render.console import byte_bar
    from marpack.runner.inputs import text_notes

    class Notes(TerminalNotes):
        def loading(self) -> AbstractContextManager[object]:
            return nullcontext() if options.is_in_process else super().loading()  # the handler shares the terminal

    def resolve_unpacked(source: str | None) -> ResolvedSource:
        return stack.enter_context(unpacked(source, cache_of(byte_bar), allow_outside=options.allow_outside))

    def in_process_pool(settings: PoolSettings) -> PoolMaker:
        from marpack.runner.in_process import InProcessPool

        os.environ.update(settings.environment or {})
        quiet = options.as_json or options.jsonl or not sys.stdout.isatty()  # stdout is for results
        prints = sys.stderr if quiet else sys.stdout
        return lambda _archive, load, _config: InProcessPool(load, debug=options.pdb, prints=prints)

    notes = Notes(on_findings, env=options.env, notes=text_notes(inputs.data, options.content_type))
    notes.on_prepared = on_prepared
    extras = sessions.SessionExtras(
        bar=byte_bar,
        on_message=print_aside,
        resolver=resolve_unpacked if options.unpacked else None,
        launch=launch,
        pool=in_process_pool if options.is_in_process else None,
        torchserve=options.torchserve,
        show_data=options.show_data,
        trace=options.trace,
    )
    return sessions.open_session(options.path, options, notes, extras)


def answer(
    options: RunCommandOptions,
    inputs: InputOptions,
    *,
    until: Callable[[], bool] = lambda: False,
    launch: Callable[[], Worker] | None = None,
) -> int:
    """Run every input once; return the exit code.

    `until` returns, after every response, whether to stop; `launch` returns a worker that waits for a model.
    """
    from marpack.api.requests import defaults_of
    from marpack.runner.client import LoadError
    from marpack.runner.results import answered_inputs

    with ExitStack() as stack:
        recorder = None
        if options.record:
            recorder, inputs = recorder_of(options, inputs, stack)
        results_log = None
        if options.resume:
            from marpack.runner.outputs import ResultsLog

            results_log = stack.enter_context(ResultsLog(options.resume, unchecked=options.resume_unchecked))
        requests = read_inputs(inputs, defaults_of(options))

        def skip_answered(prepared: PreparedModel) -> None:
            """Leave out the inputs with a result; raises ResumeMismatchError for results of another run."""
            nonlocal requests
            if results_log is None:
                return
            from marpack.runner.outputs import RunDigests

            size = options.max_request_size
            digests = RunDigests.of(prepared, env=options.env, in_process=options.is_in_process, max_request_size=size)
            results_log.begin(digests)
            left = results_log.unanswered(requests)
            # The inputs before the first one without a result are compared before the model is loaded.
            requests = chain(list(islice(left, 1)), left) if results_log.answered else left

        output = stack.enter_context(RunOutput(options, results_log, count=count_inputs(inputs)))
        try:
            session = stack.enter_context(
                open_session(options, inputs, stack, output.note, launch=launch, on_prepared=skip_answered)
            )
        except LoadError as error:
            output.fail(error, options.path or ".")
            return error.exit_code
        output.begin(session)
        answered = answered_inputs(session.pool, requests, batch_size=options.batch_size or 1)
        code = _show_all(
            session,
            answered if recorder is None else recorder.through(answered),
            output,
            lambda result: until() or (options.fail_fast and not result.ok),
        )
        return code if recorder is None else finish(recorder, code)


def _show_all(
    session: Session, answered: Iterator[AnsweredInput], output: RunOutput, is_enough: Callable[[Result], bool]
) -> int:
    """Show each result as it arrives, and in the end the summary; return the exit code."""
    from marpack.cli.interrupts import INTERRUPTS
    from marpack.runner.client import LoadError

    try:
        for answered_input in answered:
            INTERRUPTS.is_held = True
            try:
                result = output.show(answered_input)
            finally:
                INTERRUPTS.is_held = False
                if INTERRUPTS.is_pending:
                    INTERRUPTS.is_pending = False
                    raise KeyboardInterrupt
            if is_enough(result):
                session.pool.kill()  # without waiting for requests that were sent ahead
                return output.end(session)
        session.pool.close()
    except KeyboardInterrupt:  # the results so far are shown
        session.pool.kill()
        return output.end(session, code=ExitCode.INTERRUPTED)
    except LoadError as error:  # a worker that died could not be started again
        return output.end(session, failure=error, code=error.exit_code)
    except BrokenPipeError:  # the reader of stdout is gone
        session.pool.kill()
        return output.abandon()
    return output.end(session)


def watch(options: RunCommandOptions, inputs: InputOptions) -> int:
    """Run every input after each change, until Ctrl-C; return the exit code of an interruption.

    The worker of the next round imports torch during this round.
    """
    from pathlib import Path

    from marpack.render.console import page_width, show_note
    from marpack.runner.client import Worker
    from marpack.runner.pool import keep_spare_workers
    from marpack.runner.session import Device
    from marpack.runner.watching import Watch

    environment = Device.available(options.device).environment()
    form_files = [field.partition("=@")[2] for field in inputs.form]
    named = [Path(name) for name in (*inputs.inputs, *form_files, inputs.recorded) if name]
    paths = [Path(options.path or "."), *(path for path in named if path.is_file())]
    watched = Watch(paths, without=[Path(options.report)] if options.report else ())
    spawn = partial(Worker.spawn, environment=environment, max_memory=options.max_memory, preload=True)
    with keep_spare_workers(spawn, options.workers) as take_worker:
        try:
            since = None
            while True:
                changed = _run_until_change(options, inputs, watched, take_worker, since)
                since = time.monotonic()
                names = join_names([os.path.relpath(path) for path in changed], 3)
                changes = f" {names} changed at {time.strftime('%H:%M:%S')} "
                show_note(f"{changes:─^{page_width()}}")
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED


def _run_until_change(
    options: RunCommandOptions,
    inputs: InputOptions,
    watched: Watch,
    take_worker: Callable[[], Worker],
    since: float | None,
) -> list[str]:
    """Run every input once, and return the files that changed since; a change ends the run early."""
    import select
    from pathlib import Path

    from marpack.render.console import show_error, show_note

    pending: list[str] = []
    looked = time.monotonic()

    def has_changed() -> bool:
        nonlocal looked
        if time.monotonic() - looked > _INTERVAL:
            pending.extend(watched.changed())
            looked = time.monotonic()
        return bool(pending)

    def expect_reader() -> None:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # reports a closed other end without being asked for events
        if poll.poll(0):
            raise BrokenPipeError

    try:
        if answer(options, inputs, until=has_changed, launch=take_worker) == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
    except MarpackError as error:
        if since is None and error.exit_code is ExitCode.USAGE and not Path(options.path or ".").is_dir():
            raise
        show_error(error)
    if pending:
        return pending
    elapsed = "" if since is None else f"{time.monotonic() - since:.2f} s after the change, "
    show_note(f"{elapsed}waiting for the next one; Ctrl-C ends")
    return watched.wait(expect_reader)


def benchmark(options: RunCommandOptions, inputs: InputOptions) -> int:
    """Time the inputs; return the exit code, 1 if some failed or memory grows."""
    from marpack.api.requests import defaults_of
    from marpack.inspection.members import model_config
    from marpack.render.console import show
    from marpack.render.run import BenchmarkReport, head_of, show_columns, show_pace, show_rest
    from marpack.runner.client import LoadError
    from marpack.runner.results import measure, sizes_up_to
    from marpack.torchserve.model_config import batch_size_of

    output = RunOutput(options)
    requests = list(islice(read_inputs(inputs, defaults_of(options)), _MAX_COUNT + 1))
    if len(requests) > _MAX_COUNT:
        hint = "Name fewer inputs; --repeat repeats them."
        raise UsageError(f"more than {_MAX_COUNT:,} inputs for a benchmark", hint=hint)
    refused = next((each for each in requests if each.refused is not None), None)
    if refused is not None:
        what = refused.why.message if refused.why else "the server refuses this request"
        raise UsageError(what, where=refused.name, hint="Leave this input out: a benchmark needs every response.")
    try:
        with ExitStack() as stack:
            session = stack.enter_context(open_session(options, inputs, stack, output.note))
            # The server's batch size is the largest, unless the user names one; batches beyond all inputs are not full.
            largest = options.batch_size or batch_size_of(model_config(session.archive))
            repeat, warmup = options.repeat or 1, 1 if options.warmup is None else options.warmup
            sizes = sizes_up_to(min(largest, len(requests) * repeat))
            if options.as_json:
                figures = measure(session.pool, requests, sizes, repeats=repeat, warmup=warmup)
                show(BenchmarkReport(**asdict(head_of(session, output.findings)), figures=figures))
            else:
                show_columns()
                figures = measure(session.pool, requests, sizes, repeats=repeat, warmup=warmup, on_pace=show_pace)
                show_rest(figures)
    except LoadError as error:
        output.fail(error, options.path or ".")
        return error.exit_code
    except KeyboardInterrupt:  # caught outside, so that a worker that does not respond is killed
        return ExitCode.INTERRUPTED
    failed = any(pace.short for pace in figures.paces) or figures.findings
    return ExitCode.SHORT if failed else ExitCode.OK


def recorder_of(
    options: RunCommandOptions, inputs: InputOptions, stack: ExitStack
) -> tuple[Recorder | NewProject, InputOptions]:
    """Return what records the responses, in the project or for an archive in a new one, and the inputs.

    Without inputs, the samples of the project become the inputs. Raises UsageError if there are none, ProjectError if
    the source is not a project, ArchiveError for an archive that cannot become one.
    """
    from pathlib import Path

    from marpack.archive.reader import open_archive
    from marpack.gate.recording import NewProject, Recorder
    from marpack.project.load import load_project
    from marpack.project.source import is_archive

    source = Path(options.path if options.path is not None else ".")
    is_project = options.path is None or not is_archive(source)
    project = load_project(source) if is_project else None
    if project is not None and not (inputs.inputs or inputs.data):
        paths = [str(project.folder / sample.input) for sample in project.samples]
        # Without "./", the name -x or @x would be an option or a list.
        inputs = replace(inputs, inputs=tuple(f"./{path}" if path.startswith(("-", "@")) else path for path in paths))
    if not inputs.inputs and not inputs.data:
        where = str(source) if project is None else project.file
        hint = "Name inputs: --record --input FILE"
        raise UsageError("no inputs to record", where=where, hint=hint, code="nothing-to-record")
    return (NewProject(stack.enter_context(open_archive(source))) if project is None else Recorder(project)), inputs


def finish(recorder: Recorder | NewProject, code: int) -> int:
    """Write the recorded samples, show them on stderr, and return the exit code: 1 if a sample was not recorded."""
    from msgspec import to_builtins

    from marpack.gate.recording import NewProject, SavedSample
    from marpack.project.yaml_edits import flow
    from marpack.render.console import fit, page_width, show_findings, show_lines, show_note, visible

    recorder.write()
    for recorded in recorder.done:
        if recorded.kept is SavedSample.REFUSED:
            reason = f"{visible(recorded.sample)}: {visible(recorded.reason)}"
            show_lines([f"{click.style('not recorded', fg='red')} {reason}"], err=True)
        if recorded.expected is not None:
            expected = fit(printable(flow(to_builtins(recorded.expected))), max(page_width(), 80)).rstrip()
            show_note("filled in", f"{recorded.sample}: {expected}")
    counts = [f"{sum(item.kept is kept for item in recorder.done)} {kept}" for kept in SavedSample]
    show_note("samples:", ", ".join(count for count in counts if not count.startswith("0 ")) or "none")
    if isinstance(recorder, NewProject):
        if recorder.made:
            show_findings(recorder.findings)
            show_note("wrote", f"{recorder.folder}, the project of this archive with these samples")
            show_note("next", f" marpack check {recorder.folder}")
        else:
            show_note(f"there is not a response to record: marpack wrote nothing to {recorder.folder}")
    refused = any(recorded.kept is SavedSample.REFUSED for recorded in recorder.done)
    is_recorded = code in (ExitCode.OK, ExitCode.SHORT)  # a response such as 400 is expected, not a failure
    return code if not is_recorded else ExitCode.SHORT if refused else ExitCode.OK
