"""The outputs of `marpack run`: a table, JSON, files, a report; and the end of a run."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

from marpack.api.declaring import Option
from marpack.api.session_options import RunOptions
from marpack.errors import ExitCode, OutputError, describe_os_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from marpack.findings import Finding
    from marpack.render.report import HtmlReport
    from marpack.render.run import ReportStream
    from marpack.runner.client import LoadError
    from marpack.runner.outputs import ResultsLog
    from marpack.runner.results import AnsweredInput, Result, Summary
    from marpack.runner.session import Session


_Results = partial(Option, group="Results")


class OutputOptions(RunOptions, frozen=True, kw_only=True):
    """The options of `marpack run` about results."""

    as_json: Annotated[bool, _Results("Write everything as one JSON object to stdout.", ("--json",), daily=True)] = (
        False
    )
    jsonl: Annotated[bool, _Results("Write one JSON object per line, as soon as it is available.")] = False
    output: Annotated[
        str | None, _Results("Folder for response bodies, one file each.", ("-o", "--output"), "DIR", daily=True)
    ] = None
    report: Annotated[str | None, _Results("File for an HTML report of all responses.", metavar="FILE", daily=True)] = (
        None
    )
    resume: Annotated[
        str | None, _Results("Append results to FILE; skip inputs with a result.", metavar="FILE", daily=True)
    ] = None
    resume_unchecked: Annotated[bool, _Results("Accept results without digests in the --resume file also.")] = False
    record: Annotated[
        bool, _Results("Save responses as samples: in the project, or in a new one for a .mar.", daily=True)
    ] = False
    logs: Annotated[bool, _Results("Show what the handler prints for each input.")] = False
    watch: Annotated[bool, Option("Run again when a file of the project changes.", group="Debugging", daily=True)] = (
        False
    )


class RunOutput(AbstractContextManager["RunOutput"]):
    """Passes each result of a run to every requested output."""

    def __init__(
        self, options: OutputOptions, results_log: ResultsLog | None = None, *, count: int | None = None
    ) -> None:
        """Open the outputs, so that errors appear before a model is loaded. `count` inputs; None: unknown."""
        from marpack.render.run import Lines
        from marpack.runner.outputs import BodyFolder

        self._options = options
        self._count = count
        self._results_log = results_log
        self._lines = None if options.as_json or options.jsonl else Lines(logs=options.logs)
        self._document: ReportStream | None = None
        self._session: Session | None = None
        may_hold_files = results_log is not None
        self._bodies = BodyFolder(options.output, may_hold_files=may_hold_files) if options.output else None
        self.findings: list[Finding] = []
        self._stack = ExitStack()
        self._page: HtmlReport | None = None
        if options.report:
            from marpack.render.report import HtmlReport

            self._page = self._stack.enter_context(HtmlReport(options.report))

    def note(self, findings: Iterable[Finding]) -> None:
        """Keep findings about the source, and print the important ones."""
        from marpack.cli.session import show_notable

        noticed = tuple(findings)
        self.findings += noticed
        show_notable(noticed)

    def begin(self, session: Session) -> None:
        """Show the loaded model."""
        from marpack.render.console import Progress, show_line, shows_progress
        from marpack.render.run import ReportStream, head_of
        from marpack.runner.results import RunStatistics

        head = head_of(session, self.findings)
        if self._lines is not None:
            self._lines.head(head.loaded, head.load_logs)
        if self._page is not None:
            self._page.begin(head, session.archive)
        self._progress = Progress(self._count) if shows_progress() else None
        self._statistics = RunStatistics()
        if self._options.as_json:
            with _writing():
                self._document, self._session = ReportStream(sys.stdout.buffer, head), session
        self._outputs: list[Callable[[Result], None]] = [partial(show_line, flush=False)] if self._options.jsonl else []
        self._outputs += [each.show for each in (self._document, self._lines) if each is not None]
        session.pool.on_pause = self._flush

    def show(self, answered_input: AnsweredInput) -> Result:
        """Pass a result to every output; return it, with the path of its body if that was saved.

        Raises OutputError, and BrokenPipeError if the reader of stdout is gone.
        """
        result = answered_input.result if self._bodies is None else self._bodies.save(answered_input.result)
        self._statistics.add(result)
        if self._progress is not None:
            self._progress.clear()
        if self._results_log is not None:  # first: every printed result is in the file
            self._results_log.write(answered_input.input, result)
        with _writing():
            for output in self._outputs:
                output(result)
        if self._page is not None:
            self._page.show(answered_input.input, result)
        if self._progress is not None:
            self._progress.advance(1, not result.ok)
        return result

    def _flush(self) -> None:
        with _writing():
            sys.stdout.flush()

    def end(self, session: Session, *, failure: LoadError | None = None, code: ExitCode | None = None) -> int:
        """Show the summary of a session whose pool is closed, and return the exit code: `code`, or the results'.

        `failure` ended the run early.
        """
        from marpack.render.console import STDERR, show_lines
        from marpack.render.run import Trace, show_load_error, summary_lines, trace_lines

        if self._progress is not None:
            self._progress.clear()
        summary = self._summary(session)
        interrupted = code is ExitCode.INTERRUPTED
        self._close_json(session, failure, interrupted=interrupted)
        trace = Trace.of(session, summary.answered)
        if self._page is not None:
            self._page.end(summary, interrupted=interrupted, trace=trace)
        if self._lines is not None:
            sys.stdout.flush()
            if failure is not None:
                show_load_error(failure)
            show_lines([*([] if STDERR.quiet else summary_lines(summary)), *trace_lines(trace)], err=True)
        short = summary.short or (self._results_log.short if self._results_log else 0)
        return code or (ExitCode.SHORT if short else ExitCode.OK)

    def _close_json(self, session: Session, failure: BaseException | None, *, interrupted: bool) -> None:
        """Write what ended the run, and close the document, which nothing may follow."""
        from marpack.render.console import close_stdout, show_line
        from marpack.render.failure import Failure
        from marpack.render.run import Trace

        reported = Failure.of(failure, str(session.resolved.path)) if failure is not None else None
        document, self._document = self._document, None
        with _writing():
            if document is not None:
                summary = self._summary(session)
                trace = Trace.of(session, summary.answered)
                document.close(summary, interrupted=interrupted, failure=reported, trace=trace)
                close_stdout()
            elif self._options.jsonl and reported is not None:
                show_line(reported)

    def _summary(self, session: Session) -> Summary:
        pool, before = session.pool, self._results_log.answered if self._results_log else 0
        return self._statistics.summary(
            restarts=pool.restarts, peak_memory=pool.peak_memory, loaded=session.loaded, before=before
        )

    def fail(self, error: LoadError, archive: str) -> None:
        """Show why the model cannot be loaded."""
        from marpack.render.console import show, show_line, show_lines
        from marpack.render.failure import Failure
        from marpack.render.run import Trace, show_load_error, trace_lines

        if self._options.as_json or self._options.jsonl:
            (show if self._options.as_json else show_line)(Failure.of(error, archive))
            return
        show_load_error(error)
        show_lines(trace_lines(Trace(False if error.touched else None, tuple(error.touched))), err=True)

    def abandon(self) -> int:
        """End without further output, as the reader of stdout is gone; raises BrokenPipeError under --watch."""
        from marpack.render.console import close_stdout

        close_stdout()
        self._document = None
        if self._options.watch:
            raise BrokenPipeError
        return ExitCode.SHORT

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if value is not None and self._document is not None and self._session is not None:
            # Whatever happened, the results so far become one document.
            interrupted = isinstance(value, KeyboardInterrupt)
            self._close_json(self._session, None if interrupted else value, interrupted=interrupted)
        self._stack.__exit__(kind, value, trace)


@contextmanager
def _writing() -> Iterator[None]:
    """Raise OutputError for results that cannot be written, unless their reader is gone."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        from marpack.render.console import close_stdout

        close_stdout()
        raise OutputError(f"the results cannot be written: {describe_os_error(error)}") from error
