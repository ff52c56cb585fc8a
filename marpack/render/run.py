"""The results of `marpack run`: lines and a summary on the console, or JSON that streams; and why a command failed."""

import shutil
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import BinaryIO, Self, TextIO

import click
import msgspec
from msgspec import Struct
from msgspec.structs import astuple
from rich.filesize import decimal

from marpack.errors import pluralize, printable
from marpack.findings import Finding
from marpack.json_text import to_json
from marpack.protocol.messages import Frame, Loaded, Touched, Trouble
from marpack.render.console import (
    STDERR,
    duration,
    fit,
    fit_end,
    page_width,
    show_lines,
    show_page,
    style,
    table_lines,
    visible,
)
from marpack.render.failure import Failure
from marpack.render.pages import Cell, Fact, Page, Row, Table, number
from marpack.runner.client import LoadError
from marpack.runner.results import BenchmarkFigures, Percentiles, Result, Summary, Throughput, needs_of
from marpack.runner.session import Session
from marpack.torchserve.ts_modules import NotProvidedError

_MAX_LOG = 20  # lines
_NARROWEST, _WIDEST = 20, 40  # columns of an input's name
_REST = 21  # columns of status and time, and between
_REMEMBERED = 16  # troubles that need not be shown in full again
_BODY = 80  # characters of a response in a notebook
_PARSED = 1 << 16  # characters of a response that are parsed
_COLUMNS = {"batch": 8, "inputs/s": 12, "p50": 12, "p90": 12, "p99": 12, "per input": 12}


class RunHead(Struct, frozen=True, kw_only=True):
    """The facts that are known before the first response."""

    archive: str
    content_digest: str | None
    target: str
    loaded: Loaded
    load_logs: str
    findings: tuple[Finding, ...] = ()  # of the build, and requirements that this environment does not meet


class RunReport(RunHead, frozen=True, kw_only=True):
    """The result of `marpack run --json`."""

    results: tuple[Result, ...]
    summary: Summary
    interrupted: bool = False
    failure: Failure | None = None  # the error that ended the run early
    hermetic: bool | None = None  # with --trace, whether the handler accessed nothing outside the archive
    touched: tuple[Touched, ...] = ()


class BenchmarkReport(RunHead, frozen=True, kw_only=True):
    """The result of `marpack run --repeat N --json`."""

    figures: BenchmarkFigures


class Trace(Struct, frozen=True):
    """What the handler accessed outside of the archive; the fields are those of a `RunReport`."""

    hermetic: bool | None = None  # None: the run was not traced
    touched: tuple[Touched, ...] = ()

    @classmethod
    def of(cls, session: Session, answered: int) -> Self:
        """Return the trace of a session that gave so many responses."""
        touched = tuple(sorted(session.pool.touched, key=astuple))
        return cls(not touched and answered > 0 if session.load.trace else None, touched)


def head_of(session: Session, findings: Iterable[Finding]) -> RunHead:
    """Return the facts about a loaded model, with the findings so far."""
    return RunHead(
        archive=str(session.resolved.path),
        content_digest=session.content_digest,
        target=session.load.target,
        loaded=session.loaded,
        load_logs=session.pool.load_logs,
        findings=tuple(findings),
    )


class ReportStream:
    """Writes a RunReport piece by piece, to be flushed by others: no more than one result is in memory."""

    def __init__(self, stream: BinaryIO, head: RunHead) -> None:
        self._stream = stream
        self._empty = True
        stream.write(_indented(head, 0).rstrip(b"}").rstrip() + b',\n  "results": [')

    def show(self, result: Result) -> None:
        """Write one result."""
        self._stream.write((b"" if self._empty else b",") + b"\n    " + _indented(result, 4))
        self._empty = False

    def close(
        self, summary: Summary, *, interrupted: bool = False, failure: Failure | None = None, trace: Trace | None = None
    ) -> None:
        """Write the fields after the results."""
        self._stream.write(b"]" if self._empty else b"\n  ]")
        fields: list[tuple[str, object]] = [("summary", summary), ("interrupted", interrupted), ("failure", failure)]
        if trace is not None:
            fields += [("hermetic", trace.hermetic), ("touched", trace.touched)]
        for name, value in fields:
            self._stream.write(f',\n  "{name}": '.encode() + _indented(value, 2))
        self._stream.write(b"\n}\n")
        self._stream.flush()


def _indented(value: object, depth: int) -> bytes:
    return to_json(value, indent=True).replace(b"\n", b"\n" + b" " * depth)


def run_page(report: RunReport) -> Page:
    """Return the page of a report for a notebook."""
    summary, loaded = report.summary, report.loaded
    facts = [Fact("handler", loaded.handler), Fact("device", loaded.device or "unknown"), Fact("target", report.target)]
    seconds = duration(1000 * summary.seconds)
    facts.append(Fact("inputs", f"{summary.inputs:,} in {seconds}, {summary.throughput:,.0f}/s"))
    if summary.peak_memory:
        facts.append(Fact("memory", f"{decimal(summary.peak_memory)} at most"))
    if summary.restarts:
        facts.append(Fact("restarts", f"{summary.restarts:,}"))
    if report.failure:
        facts.append(Fact("failure", report.failure.error))

    def show_result(result: Result) -> Row:
        status = Cell(str(result.status or "none"), "good" if result.ok else "bad", "number")
        took = Cell(duration(result.stages["handle"]) if "handle" in result.stages else "", "dim", "number")
        return Row.of(Cell(result.input, kind="name"), status, took, summarize_body(result, _BODY))

    head = Row.of("input", number("status"), number("time"), "response").cells
    return Page(
        title=report.archive,
        verdict=_verdict_on(summary),
        facts=tuple(facts),
        tables=(Table.of(report.results, show_result, head=head), _stage_table(summary.stages)),
        findings=report.findings,
    )


def _verdict_on(summary: Summary) -> Cell:
    return Cell(f"{summary.short:,} failed", "bad") if summary.short else Cell("all succeeded", "good")


def _stage_table(stages: Mapping[str, Percentiles], title: str = "") -> Table:
    """Return a row for each stage: how long it took."""
    rows = (Row.of(stage, *(number(duration(value)) for value in astuple(each))) for stage, each in stages.items())
    head = Row.of("stage", *map(number, Percentiles.__struct_fields__)).cells
    return Table(title=title, head=head, rows=tuple(rows))


def trouble_lines(
    trouble: Trouble, *, note: bool = False, again: bool = False, width: int | None = None
) -> Iterator[str]:
    """Yield the message of a trouble, its places in the author's files, and what to do.

    `note`: it is beside a successful response; `again`: it was just shown in full; `width`: columns, where code is cut.
    """
    stage = f"{trouble.stage}: " if trouble.stage else ""
    kind = click.style(f"{visible(stage)}{visible(trouble.kind)}:", fg="yellow" if note else "red")
    yield f"  {kind} {visible(trouble.message)}"
    if again and (trouble.frames or trouble.notes or trouble.hint):
        yield click.style("    as above", dim=True)
        return
    for frame in shown_frames(trouble.frames):
        yield click.style(f"    {visible(frame.file)}:{frame.line} in {visible(frame.function)}", dim=True)
        if frame.code:
            code = visible(frame.code)
            yield f"      {code if width is None or len(code) <= width - 6 else f'{code[: width - 7]}…'}"
    for text in trouble.notes:
        yield click.style(f"    {visible(text)}", dim=True)
    if trouble.hint:
        yield f"    {click.style('hint:', dim=True)} {visible(trouble.hint)}"


def shown_frames(frames: Iterable[Frame]) -> list[Frame]:
    """Return the author's frames and the last one; the libraries' frames between them only lengthen the traceback."""
    every = list(frames)
    return [frame for index, frame in enumerate(every) if frame.user or index == len(every) - 1]


def log_lines(logs: str) -> Iterator[str]:
    """Yield what a handler printed, shortened."""
    lines = logs.splitlines()
    for line in lines[:_MAX_LOG]:
        yield click.style(f"  │ {visible(line)}", dim=True)
    if len(lines) > _MAX_LOG:
        yield click.style(f"  │ … {len(lines) - _MAX_LOG} more lines; all of them with --json", dim=True)


def show_load_error(error: LoadError) -> None:
    """Print on stderr why a handler could not be loaded, with its own traceback."""
    show_lines(load_error_lines(error, width=_terminal_width(sys.stderr)), err=True)


def load_error_lines(error: LoadError, *, width: int | None = None) -> Iterator[str]:
    """Yield why a handler could not be loaded, with its own traceback; see `trouble_lines`."""
    where = "; the server's worker would die here also"
    if error.trouble.kind == NotProvidedError.__name__:
        where = " here: marpack does not provide a module that it needs"
    elif error.trouble.only_here:
        where = " here: this Python lacks what the server has"
    yield f"{click.style('error:', fg='red', bold=True)} the handler could not be loaded{where}"
    yield from trouble_lines(error.trouble, width=width)
    yield from log_lines(error.logs)


def _terminal_width(stream: TextIO) -> int | None:
    return shutil.get_terminal_size().columns if stream.isatty() else None


class Lines:
    """Prints results as they come, one line each, with troubles and output of the handler below."""

    def __init__(self, *, logs: bool = False) -> None:
        self._width = _terminal_width(sys.stdout)
        self._logs = logs
        self._seen: deque[Trouble] = deque(maxlen=_REMEMBERED)
        width = self._width or shutil.get_terminal_size().columns
        self._name = max(_NARROWEST, min(_WIDEST, width // 4))
        self._room = max(width - self._name - _REST, 20)

    def head(self, loaded: Loaded, logs: str) -> None:
        """Print how the model was loaded, on stderr."""
        stages = loaded.stages
        device = f" on {printable(loaded.device)}" if loaded.device else ""
        named = stages if STDERR.verbose else {"initialize": stages.get("initialize", 0)}
        parts = ", ".join(f"{name} {spent / 1000:.2f} s" for name, spent in named.items())
        seconds = f"{sum(stages.values()) / 1000:.2f} s ({parts})"
        lines = [click.style(f"loaded {printable(loaded.handler)} in {seconds}{device}", dim=True)]
        for trouble in loaded.troubles:
            lines += trouble_lines(trouble, note=True)
        show_lines([*([] if STDERR.quiet else lines), *log_lines(logs if self._logs else "")], err=True)

    def show(self, result: Result) -> None:
        """Print one result."""
        name = click.style(fit_end(result.input, self._name), bold=True)
        status = click.style(f"{result.status or '-':>3}", fg="green" if result.ok else "red")
        body = fit(summarize_body(result, self._room), self._room)
        elapsed = result.stages.get("handle")
        spent = "" if elapsed is None else click.style(f"{elapsed:9.1f} ms", dim=True)
        lines = [f"{name}  {status}  {body}{spent}".rstrip()]
        lines += (f"  {click.style('>', fg='cyan')} {line}" for line in result.data)
        for trouble in result.troubles:
            lines += trouble_lines(trouble, note=result.ok, again=trouble in self._seen, width=self._width)
            self._seen.append(trouble)
        if result.restarted:
            lines.append(click.style("  the worker was started again", dim=True))
        show_lines([*lines, *log_lines(result.logs if self._logs else "")])


def summary_lines(summary: Summary) -> Iterator[str]:
    """Yield the totals of a run of several inputs."""
    if summary.inputs + summary.before < 2:
        return
    verdict = _verdict_on(summary)
    before = f"{summary.before:,} answered before, " if summary.before else ""
    inputs = pluralize(summary.inputs, "input")
    yield f"{before}{inputs}, {style(verdict.text, verdict.tone)}, {summary.throughput:,.0f}/s"
    if summary.stages:
        yield from table_lines(_stage_table(summary.stages), page_width())
    totals = [f"initialize {duration(summary.load['initialize'])}"] if "initialize" in summary.load else []
    totals += [f"peak memory {decimal(summary.peak_memory)}"] if summary.peak_memory else []
    totals += [pluralize(summary.restarts, "restart")] if summary.restarts else []
    if totals:
        yield click.style(f"  {', '.join(totals)}", dim=True)


def trace_lines(trace: Trace) -> Iterator[str]:
    """Yield what the handler accessed outside of its archive; nothing of a run that was not traced."""
    if trace.hermetic is None:
        return
    needs = needs_of(trace.touched)
    verdict = "not hermetic, it accesses" if needs else "not hermetic: nothing was answered"
    yield click.style("hermetic", fg="green") if trace.hermetic else click.style(verdict, fg="yellow")
    for need in needs[:_MAX_LOG]:
        yield visible(f"  {need.kind:8} {fit_end(need.target, 48)} {need.stage}")
    if len(needs) > _MAX_LOG:
        yield click.style(f"  … and {len(needs) - _MAX_LOG} more; all of it with --json", dim=True)


def summarize_body(result: Result, width: int) -> str:
    """Return a response's body on one line of at most `width` characters."""
    if result.status == 0:
        return "(no answer)"
    if result.reset and not result.body:
        return "(connection reset)"
    if result.body_encoding == "base64":
        return f"{len(result.raw):,} bytes{f' of {result.content_type}' if result.content_type else ''}"
    line = " ".join(result.body[:_PARSED].split())
    if len(result.body) <= _PARSED:
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            line = str(msgspec.json.format(result.body, indent=-1))
    line = line[: width + 1]
    line = line if line.isprintable() else printable(line, stand_in="·")
    return line if len(line) <= width else f"{line[: width - 1]}…"


def show_columns() -> None:
    """Print the head of a benchmark's table."""
    show_lines([click.style("".join(f"{name:>{width}}" for name, width in _COLUMNS.items()), dim=True)])


def show_pace(pace: Throughput) -> None:
    """Print one batch size: throughput, and the percentiles of a call of the handler."""
    handle = pace.stages.get("handle")
    cells = [str(pace.batch_size), f"{pace.throughput:,.0f}"]
    if handle:
        cells += map(duration, (handle.p50, handle.p90, handle.p99, handle.p50 / pace.batch_size))
    line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, _COLUMNS.values(), strict=False))
    failed = "  " + click.style(f"{pace.short:,} failed", fg="red") if pace.short else ""
    show_lines([line + failed])


def show_rest(figures: BenchmarkFigures) -> None:
    """Print the stages of the largest batch, and the memory."""
    last = figures.paces[-1]
    facts: tuple[Fact, ...] = ()
    if (memory := figures.memory) is not None:
        before, after, peak = map(decimal, (memory.before, memory.after, memory.peak))
        facts = (Fact("memory", f"{before} once warm, {after} at the end, {peak} at most"),)
    table = _stage_table(last.stages, f"batch of {last.batch_size}")
    show_page(Page(facts=facts, tables=(table,)))
