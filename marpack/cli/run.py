"""The command `marpack run`: answer the inputs, watch for changes, record samples."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from functools import partial
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
    from marpack.gate.recording import Recorder
    from marpack.runner.client import Worker
    from marpack.runner.pool import SpareWorkers
    from marpack.runner.results import AnsweredInput, Result
    from marpack.runner.session import Session

_HELP = """Answer inputs as the server would.

\b
Examples:
  marpack run --input samples/*.png          the project in this folder
  marpack run digits.mar -i seven.png --json

SOURCE is a .mar, a .tar.gz, a model folder or a project, whose archive is built first when it is missing or stale.
The archive's handler runs in a process of its own: it is initialised once, then handles each input.
"""
_LOOK = 0.1  # seconds between two looks for changes while answers come
_EVERY = 0.05  # the same while none come
_SETTLED = 0.02  # seconds without a further change: an editor may write several times
_SHARE = 10  # a look takes at most a tenth of the time
_SKIPPED = (".mar", ".tar.gz", ".tgz", ".pyc", "~", ".swp", ".tmp")

_State = dict[str, tuple[int, int, int]]  # path → inode, size, time


@click.command(cls=RunCommand, help=_HELP)
@click.argument("source", required=False, shell_complete=sources)
@run_options
def run(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Answer inputs as the server would."""
    check(options)
    click.get_current_context().exit(_act(source, options))


def _act(source: str | None, options: Options) -> int:
    if options["watch"]:
        return watch(source, options)
    if options["repeat"]:
        from marpack.cli.run_benchmark import benchmark

        return benchmark(source, options)
    return answer(source, options)


def answer(
    source: str | None,
    options: Options,
    *,
    until: Callable[[], bool] = lambda: False,
    launch: Callable[[], Worker] | None = None,
) -> int:
    """Answer every input once; return the exit code.

    Args:
        source: As given.
        options: As given.
        until: Is asked after every answer whether to stop.
        launch: Returns a worker that waits for a model, in place of a new one.
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


def watch(source: str | None, options: Options) -> int:
    """Answer every input, again and again, until Ctrl-C; return the exit code of an interruption.

    The next round's worker imports torch while this round's answers.
    """
    from marpack.runner.client import Worker
    from marpack.runner.pool import SpareWorkers
    from marpack.runner.session import Device

    environment = Device.parse(options["device"]).environment()
    watched = Watch(_paths(source, options), without=_outputs(options))
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
    return watched.wait()


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


def _outputs(options: Options) -> list[Path]:
    return [Path(options["report"])] if options["report"] else []


class Watch:
    """Files and folders, as they were when last looked at."""

    def __init__(self, paths: Iterable[Path], *, without: Iterable[Path] = ()) -> None:
        """Look for the first time.

        Args:
            paths: Files, and folders with all that is in them, hidden files and archives apart.
            without: What the run itself writes.
        """
        self._paths = tuple(paths)
        self._without = {str(path.absolute()) for path in without}
        self._seen = self._look()

    def changed(self) -> list[str]:
        """Return what changed since the last call, once it has settled."""
        now = self._look()
        if now == self._seen:
            return []
        while True:
            time.sleep(_SETTLED)
            later = self._look()
            if later == now:
                break
            now = later
        before, self._seen = self._seen, now
        return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))

    def wait(self) -> list[str]:
        """Wait for a change, and return what changed."""
        while True:
            started = time.monotonic()
            if changed := self.changed():
                return changed
            time.sleep(max(_EVERY, _SHARE * (time.monotonic() - started)))

    def _look(self) -> _State:
        state: _State = {}
        for path in self._paths:
            for name in _files(path):
                if name in self._without:
                    continue
                try:
                    status = os.stat(name)  # noqa: PTH116 - of many files, many times a second
                except OSError:
                    continue
                state[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return state


def _files(path: Path) -> Iterator[str]:
    top = str(path.absolute())
    if not path.is_dir():
        yield top  # whatever it is called: it was named
        return
    for root, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        yield from (f"{root}/{name}" for name in names if not name.startswith(".") and not name.endswith(_SKIPPED))


def recorder_of(source: str | None, options: Options) -> Recorder:
    """Return what records the answers; without inputs, those to the project's samples are asked for.

    Raises UsageError if there are none, ProjectError if the source is no project.
    """
    from marpack.gate.recording import Recorder
    from marpack.project.load import load_project

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
