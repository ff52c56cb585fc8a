"""Where the results of `marpack run` go: a table, JSON, files, a report; and how a run ends."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Self

from marpack.api.declaring import Option
from marpack.api.session_options import RunOptions
from marpack.errors import ExitCode, OutputError, describe_os_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from marpack.findings import Finding
    from marpack.render.report import HtmlReport
    from marpack.render.run import ReportStream, RunHead
    from marpack.runner.client import LoadError
    from marpack.runner.outputs import ResultsLog
    from marpack.runner.results import AnsweredInput, Result, Summary
    from marpack.runner.session import Session


class OutputOptions(RunOptions, frozen=True, kw_only=True):
    """The options of `marpack run` that decide where results go."""

    as_json: Annotated[bool, Option("Write everything as one JSON object to stdout.", ("--json",), group="Results")] = (
        False
    )
    jsonl: Annotated[bool, Option("Write one JSON object per line, as soon as it is available.", group="Results")] = (
        False
    )
    output: Annotated[
        str | None, Option("Folder for response bodies, one file each.", metavar="DIR", group="Results")
    ] = None
    report: Annotated[
        str | None, Option("File for an HTML report of all responses.", metavar="FILE", group="Results")
    ] = None
    resume: Annotated[
        str | None, Option("Append results to FILE; skip inputs with a result.", metavar="FILE", group="Results")
    ] = None
    resume_unchecked: Annotated[bool, Option("Also accept results without digests in FILE.", group="Results")] = False
    record: Annotated[
        bool, Option("Save responses as samples: in the project, or in a new one for a .mar.", group="Results")
    ] = False
    logs: Annotated[bool, Option("Show what the handler prints for each input.", group="Results")] = False
    watch: Annotated[bool, Option("Run again when a file of the project changes.", group="Debugging")] = False


class RunOutput:
    """Takes a run's results and passes each to everyone who asked for it."""

    def __init__(
        self, options: OutputOptions, results_log: ResultsLog | None = None, *, count: int | None = None
    ) -> None:
        """Open what results go to, so that what cannot be written is said before a model is loaded."""
        from marpack.render.run import Lines
        from marpack.runner.outputs import BodyFolder

        self._options = options
        self._count = count  # of the inputs; None: unknown
        self._journal = results_log
        quiet = options.as_json or options.jsonl
        self._lines = None if quiet else Lines(logs=options.logs)
        self._document: ReportStream | None = None
        self._session: Session | None = None
        may_hold_files = results_log is not None
        self._bodies = BodyFolder(options.output, may_hold_files=may_hold_files) if options.output else None
        self._findings: list[Finding] = []
        self._stack = ExitStack()
        self._page: HtmlReport | None = None
        if options.report:
            from marpack.render.report import HtmlReport

            self._page = self._stack.enter_context(HtmlReport(options.report))

    def note(self, findings: Iterable[Finding]) -> None:
        """Keep what was noticed before the model was loaded, and print what matters now."""
        noticed = tuple(findings)
        self._findings += noticed
        from marpack.cli.session import tell_findings

        tell_findings(noticed)

    def begin(self, session: Session) -> None:
        """Tell what was loaded."""
        from marpack.render.console import Progress, show_line
        from marpack.render.run import ReportStream
        from marpack.runner.results import RunStatistics

        head = self.head_of(session)
        if self._lines is not None:
            self._lines.head(head.loaded, head.load_logs)
        if self._page is not None:
            self._page.begin(head, session.archive)
        self._progress = Progress(self._count) if sys.stderr.isatty() else None
        self._tally = RunStatistics()
        if self._options.as_json:
            with _WRITING:
                self._document, self._session = ReportStream(sys.stdout.buffer, head), session
        self._tells: list[Callable[[Result], None]] = [partial(show_line, flush=False)] if self._options.jsonl else []
        self._tells += [each.show for each in (self._document, self._lines) if each is not None]
        session.pool.on_pause = self._flush

    def head_of(self, session: Session) -> RunHead:
        """Return what is known before the first answer."""
        from marpack.render.run import head_of

        return head_of(session, self._findings)

    def show(self, answered_input: AnsweredInput) -> Result:
        """Tell one result everywhere; return it, with the place of its body if that was saved.

        Raises OutputError, and BrokenPipeError where nobody reads stdout any more.
        """
        result = answered_input.result if self._bodies is None else self._bodies.save(answered_input.result)
        self._tally.add(result)
        if self._progress is not None:
            self._progress.clear()
        if self._journal is not None:  # first: every printed result is in the file
            self._journal.write(answered_input.input, result)
        with _WRITING:
            for tell in self._tells:
                tell(result)
        if self._page is not None:
            self._page.show(answered_input.input, result)
        if self._progress is not None:
            self._progress.advance(1, not result.ok)
        return result

    def _flush(self) -> None:
        with _WRITING:
            sys.stdout.flush()

    def end(self, session: Session, *, failure: LoadError | None = None, code: ExitCode | None = None) -> int:
        """Tell what the run adds up to, and return the exit code.

        Args:
            session: What answered; its pool is closed by now.
            failure: What ended the run early.
            code: The exit code, if it is not for the results to say.
        """
        from marpack.render.console import show_lines
        from marpack.render.run import Trace, trace_lines

        if self._progress is not None:
            self._progress.clear()
        summary = self._summary(session)
        interrupted = code is ExitCode.INTERRUPTED
        self._close_json(session, failure, interrupted=interrupted)
        trace = Trace.of(session, summary.answered)
        if self._page is not None:
            self._page.end(summary, interrupted=interrupted, trace=trace)
        if self._lines is not None:
            self._show_summary(summary, failure)
            show_lines(trace_lines(trace), err=True)
        short = summary.short or (self._journal.short if self._journal else 0)
        return code or (ExitCode.SHORT if short else ExitCode.OK)

    def _close_json(self, session: Session, failure: BaseException | None, *, interrupted: bool) -> None:
        """Tell what ended the run, and end the document, which nothing may follow."""
        from marpack.render.console import close_stdout, show_line
        from marpack.render.failure import Failure
        from marpack.render.run import Trace

        reported = Failure.of(failure, str(session.resolved.path)) if failure is not None else None
        document, self._document = self._document, None
        with _WRITING:
            if document is not None:
                summary = self._summary(session)
                trace = Trace.of(session, summary.answered)
                document.close(summary, interrupted=interrupted, failure=reported, trace=trace)
                close_stdout()
            elif self._options.jsonl and reported is not None:
                show_line(reported)

    def _summary(self, session: Session) -> Summary:
        pool = session.pool
        before = self._journal.answered if self._journal else 0
        return self._tally.summary(
            restarts=pool.restarts, peak_memory=pool.peak_memory, loaded=session.loaded, before=before
        )

    def _show_summary(self, summary: Summary, failure: LoadError | None) -> None:
        from marpack.render.console import show_lines
        from marpack.render.run import show_load_error, summary_lines

        sys.stdout.flush()
        if failure is not None:
            show_load_error(failure)
        show_lines(summary_lines(summary), err=True)

    def fail(self, error: LoadError, archive: str) -> None:
        """Tell why there is nothing to answer with."""
        from marpack.render.console import show, show_line, show_lines
        from marpack.render.failure import Failure
        from marpack.render.run import Trace, show_load_error, trace_lines

        failure = Failure.of(error, archive)
        if self._options.as_json:
            show(failure)
        elif self._options.jsonl:
            show_line(failure)
        else:
            show_load_error(error)
            trace = Trace(False if error.touched else None, tuple(error.touched))
            show_lines(trace_lines(trace), err=True)

    def abandon(self) -> int:
        """End without another word, as whoever read stdout is gone; raises BrokenPipeError under --watch."""
        from marpack.render.console import close_stdout

        close_stdout()
        self._document = None
        if self._options.watch:
            raise BrokenPipeError
        return ExitCode.SHORT

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if value is not None and self._document is not None and self._session is not None:
            # Whatever it is, what was answered is told all the same, as one document.
            interrupted = isinstance(value, KeyboardInterrupt)
            failure = None if interrupted else value
            self._close_json(self._session, failure, interrupted=interrupted)
        self._stack.__exit__(kind, value, trace)


class _Writing:
    """Raises OutputError for results that cannot be written, unless nobody reads them any more."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
            return
        from marpack.render.console import close_stdout

        close_stdout()
        raise OutputError(f"the results cannot be written: {describe_os_error(error)}") from error


_WRITING = _Writing()
