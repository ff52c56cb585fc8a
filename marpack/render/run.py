"""What `marpack run` shows: a line an answer, why one fell short, what they add up to, timings."""

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, TextIO

import click
import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from marpack.errors import printable
from marpack.protocol.messages import Frame, Loaded, Touched, Trouble
from marpack.render.console import page, plain, show_findings, talk
from marpack.render.layout import cells, fit
from marpack.render.run_json import RunHead
from marpack.runner.client import LoadError
from marpack.runner.results import BenchmarkFigures, Percentiles, Result, Summary, Throughput, needs_of
from marpack.torchserve.ts_modules import NotProvidedError

_MAX_LOG = 20  # lines
_NARROWEST, _WIDEST = 20, 40  # columns of an input's name
_REST = 21  # columns of status and time, and between
_REMEMBERED = 16  # troubles that need not be told at length again
_PARSED = 1 << 16  # characters of an answer that are looked at
_COLUMNS = ("batch", "inputs/s", "p50", "p90", "p99", "per input")
_WIDTHS = (8, 12, 12, 12, 12, 12)


def show_trouble(trouble: Trouble, console: Console, *, note: bool = False, again: bool = False) -> None:
    """Print what, where in the author's files, and what to do.

    A `note` stands beside an answer that is none the worse for it; of what was told just before one line will do.
    """
    colour = "yellow" if note else "red"
    stage = f"{trouble.stage}: " if trouble.stage else ""
    console.print(f"  [{colour}]{plain(stage)}{plain(trouble.kind)}:[/] {plain(trouble.message)}", soft_wrap=True)
    if again and (trouble.frames or trouble.notes or trouble.hint):
        console.print("    [dim]as above[/]")
        return
    for frame in told_frames(trouble.frames):
        console.print(f"    [dim]{plain(frame.file)}:{frame.line} in {plain(frame.function)}[/]", soft_wrap=True)
        if frame.code:
            console.print(f"      {plain(_fitting(frame.code, console))}", soft_wrap=True)
    for text in trouble.notes:
        console.print(f"    [dim]{plain(text)}[/]", soft_wrap=True)
    if trouble.hint:
        console.print(f"    [dim]hint:[/] {plain(trouble.hint)}", soft_wrap=True)


def _fitting(code: str, console: Console) -> str:
    room = console.width - 6
    return f"{code[: room - 1]}…" if console.is_terminal and len(code) > room else code


def told_frames(frames: Iterable[Frame]) -> list[Frame]:
    """Return the author's frames and where it ended; the libraries between them only lengthen the way."""
    every = list(frames)
    return [frame for index, frame in enumerate(every) if frame.user or index == len(every) - 1]


def show_load_error(error: LoadError, console: Console | None = None) -> None:
    """Print on stderr why a handler could not be loaded, with its own traceback."""
    console = console or talk()
    so = "; the server's worker would die here, too"
    if error.trouble.kind == NotProvidedError.__name__:
        so = " here: marpack lacks what it needs"
    elif error.trouble.only_here:
        so = " here: this Python lacks what the server has"
    console.print(f"[bold red]error:[/] the handler could not be loaded{so}")
    show_trouble(error.trouble, console)
    show_logs(error.logs, console)


def show_logs(logs: str, console: Console) -> None:
    """Print what a handler printed, shortened."""
    lines = logs.splitlines()
    for line in lines[:_MAX_LOG]:
        console.print(f"  [dim]│ {plain(line)}[/]", soft_wrap=True)
    if len(lines) > _MAX_LOG:
        console.print(f"  [dim]│ … {len(lines) - _MAX_LOG} more lines; all of them with --json[/]")


def duration(milliseconds: float) -> str:
    """Return milliseconds in a unit and with as many digits as matter."""
    if milliseconds >= 10_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.{0 if milliseconds >= 100 else 1 if milliseconds >= 1 else 3}f} ms"


class Lines:
    """Prints answers as they come, one line each, with what the author needs to know below."""

    def __init__(self, *, logs: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._console = Console(file=self._stream, highlight=False, emoji=False)
        self._coloured = self._console.is_terminal and not self._console.no_color
        self._logs = logs
        self._told: deque[Trouble] = deque(maxlen=_REMEMBERED)
        width = self._console.width
        self._name = max(_NARROWEST, min(_WIDEST, width // 4))
        self._room = max(width - self._name - _REST, 20)

    def head(self, loaded: Loaded, logs: str) -> None:
        """Print how the model was loaded, on stderr."""
        console = talk()
        stages = loaded.stages
        console.print(
            f"[dim]loaded {escape(loaded.handler)} in {sum(stages.values()) / 1000:.2f} s"
            f" (initialize {stages.get('initialize', 0) / 1000:.2f} s)"
            f"{f' on {escape(loaded.device)}' if loaded.device else ''}[/]"
        )
        for trouble in loaded.troubles:
            show_trouble(trouble, console, note=True)
        if self._logs:
            show_logs(logs, console)

    def show(self, result: Result) -> None:
        """Print one answer."""
        # Without rich, which takes longer for a line than many a handler for its answer.
        elapsed = result.stages.get("handle")
        line = "  ".join(
            (
                self._styled(fit_end(result.input, self._name), bold=True),
                self._styled(f"{result.status or '-':>3}", fg="green" if result.ok else "red"),
                fit(answer_in_short(result, self._room), self._room),
            )
        ) + self._styled("" if elapsed is None else f"{elapsed:9.1f} ms", dim=True)
        self._stream.write(line.rstrip() + "\n")
        self._explain(result)
        self._stream.flush()

    def _styled(self, text: str, **style: Any) -> str:  # Any: click's
        return click.style(text, **style) if self._coloured else text

    def _explain(self, result: Result) -> None:
        for line in result.data:
            self._console.print(f"  [cyan]>[/] {escape(line)}", soft_wrap=True)
        for trouble in result.troubles:
            show_trouble(trouble, self._console, note=result.ok, again=trouble in self._told)
            self._told.append(trouble)
        if result.restarted:
            self._console.print("  [dim]the worker was started again[/]")
        if self._logs and result.logs:
            show_logs(result.logs, self._console)


def show_summary(summary: Summary) -> None:
    """Print what a run of several inputs adds up to, on stderr."""
    if summary.inputs + summary.before < 2:
        return
    console = talk()
    short = f"[red]{summary.short:,} fell short[/]" if summary.short else "[green]all answered[/]"
    before = f"{summary.before:,} answered before, " if summary.before else ""
    console.print(
        f"{before}{summary.inputs:,} input{'' if summary.inputs == 1 else 's'}, {short}, {summary.throughput:,.0f}/s"
    )
    if summary.stages:
        console.print(f"[dim]  {'':16}{'p50':>12}{'p90':>12}{'p99':>12}[/]")
    for stage, percentiles in summary.stages.items():
        console.print(f"  {escape(stage):16}{percentiles_of(percentiles)}")
    reported = [f"initialize {duration(summary.load['initialize'])}"] if "initialize" in summary.load else []
    reported += [f"peak memory {decimal(summary.peak_memory)}"] if summary.peak_memory else []
    reported += [f"{summary.restarts} restarts" if summary.restarts > 1 else "1 restart"] if summary.restarts else []
    if reported:
        console.print(f"[dim]  {', '.join(reported)}[/]")


def show_trace(hermetic: bool | None, touched: Iterable[Touched]) -> None:
    """Print on stderr what the handler touched beside its archive; nothing of a run that nobody traced."""
    if hermetic is None:
        return
    console, needs = talk(), needs_of(touched)
    verdict = "hermetic" if hermetic else "not hermetic, it touches" if needs else "not hermetic: nothing was answered"
    console.print(f"[{'green' if hermetic else 'yellow'}]{verdict}[/]")
    for need in needs[:_MAX_LOG]:
        console.print(plain(f"  {need.kind:8} {fit_end(need.target, 48)} {need.stage}"), soft_wrap=True)
    if len(needs) > _MAX_LOG:
        console.print(f"  [dim]… and {len(needs) - _MAX_LOG} more; all of it with --json[/]")


def percentiles_of(percentiles: Percentiles) -> str:
    """Return p50, p90 and p99 in columns of 12."""
    return "".join(f"{duration(value):>12}" for value in (percentiles.p50, percentiles.p90, percentiles.p99))


def answer_in_short(result: Result, width: int) -> str:
    """Return an answer's body on one line of at most `width` characters."""
    if result.status == 0:
        return "(no answer)"
    if result.reset and not result.body:
        return "(connection reset)"
    if result.body_encoding == "base64":
        return f"{len(result.raw):,} bytes{f' of {result.content_type}' if result.content_type else ''}"
    clean = printable(_one_line(result.body)[: width + 1], stand_in="·")
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"


def _one_line(body: str) -> str:
    if len(body) > _PARSED:
        return " ".join(body[:_PARSED].split())
    try:
        return str(msgspec.json.format(body, indent=-1))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return " ".join(body.split())


def fit_end(name: str, width: int) -> str:
    """Pad a name to `width` cells, or cut it at its beginning: the end of a path tells more."""
    name = printable(name, stand_in="·")
    while cells(name) > width:
        name = f"…{name[len(name) - width + 1 :]}" if len(name) > width else f"…{name[2:]}"
    return name + " " * (width - cells(name))


class BenchmarkReport(RunHead, frozen=True, kw_only=True):
    """The result of `marpack run --repeat N --json`."""

    figures: BenchmarkFigures


def show_columns() -> None:
    """Print the head of the table."""
    heads = "".join(f"{name:>{width}}" for name, width in zip(_COLUMNS, _WIDTHS, strict=True))
    page().print(f"[dim]{heads}[/]", soft_wrap=True)


def show_pace(pace: Throughput) -> None:
    """Print one batch size: throughput, and the percentiles of a call of the handler."""
    handle = pace.stages.get("handle")
    percentiles = (handle.p50, handle.p90, handle.p99) if handle else ()
    cells = [str(pace.batch_size), f"{pace.throughput:,.0f}", *map(duration, percentiles)]
    cells += [duration(handle.p50 / pace.batch_size)] if handle else []
    line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False))
    short = f"  [red]{pace.short:,} fell short[/]" if pace.short else ""
    page().print(line + short, soft_wrap=True)


def show_rest(figures: BenchmarkFigures) -> None:
    """Print the stages of the largest batch, the memory, and what is wrong with it."""
    console = Console(file=sys.stdout, highlight=False, emoji=False, soft_wrap=True)
    last = figures.paces[-1]
    console.print(f"\n[dim]{f'batch of {last.batch_size}':20}{'p50':>12}{'p90':>12}{'p99':>12}[/]")
    for stage, percentiles in last.stages.items():
        console.print(f"{escape(stage):20}{percentiles_of(percentiles)}")
    memory = figures.memory
    if memory is not None:
        reported = (
            f"{decimal(memory.before)} once warm, {decimal(memory.after)} in the end, {decimal(memory.peak)} at most"
        )
        console.print(f"\nmemory  {reported}")
    show_findings(figures.findings, console)
