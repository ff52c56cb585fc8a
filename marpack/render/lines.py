"""What `marpack run` shows on a terminal: a line per answer, why one fell short, and what a run adds up to."""

import sys
from collections import deque
from typing import Any, TextIO

import click
import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from marpack.render.console import talk
from marpack.render.durations import duration
from marpack.render.layout import cells, fit
from marpack.render.trouble import show_logs, show_trouble
from marpack.runner.results import Result, Spread, Summary
from marpack.torchserve.messages import Loaded, Trouble

_NARROWEST, _WIDEST = 20, 40  # columns of an input's name
_REST = 21  # columns of status and time, and between
_REMEMBERED = 16  # troubles that need not be told at length again
_PARSED = 1 << 16  # characters of an answer that are looked at


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
        spent = result.stages.get("handle")
        line = "  ".join(
            (
                self._styled(fit_end(result.input, self._name), bold=True),
                self._styled(f"{result.status or '-':>3}", fg="green" if result.ok else "red"),
                fit(answer_in_short(result, self._room), self._room),
            )
        ) + self._styled("" if spent is None else f"{spent:9.1f} ms", dim=True)
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
    console.print(f"{before}{summary.inputs:,} inputs, {short}, {summary.throughput:,.0f}/s")
    if summary.stages:
        console.print(f"[dim]  {'':16}{'p50':>12}{'p90':>12}{'p99':>12}[/]")
    for stage, spread in summary.stages.items():
        console.print(f"  {escape(stage):16}{percentiles_of(spread)}")
    told = [f"initialize {duration(summary.load['initialize'])}"] if "initialize" in summary.load else []
    told += [f"peak memory {decimal(summary.peak_memory)}"] if summary.peak_memory else []
    told += [f"{summary.restarts} restarts" if summary.restarts > 1 else "1 restart"] if summary.restarts else []
    if told:
        console.print(f"[dim]  {', '.join(told)}[/]")


def percentiles_of(spread: Spread) -> str:
    """Return p50, p90 and p99 in columns of 12."""
    return "".join(f"{duration(value):>12}" for value in (spread.p50, spread.p90, spread.p99))


def answer_in_short(result: Result, width: int) -> str:
    """Return an answer's body on one line of at most `width` characters."""
    if result.status == 0:
        return "(no answer)"
    if result.reset and not result.body:
        return "(connection reset)"
    if result.body_encoding == "base64":
        return f"{len(result.raw):,} bytes{f' of {result.content_type}' if result.content_type else ''}"
    clean = _printable(_one_line(result.body)[: width + 1])
    return clean if len(clean) <= width else f"{clean[: width - 1]}…"


def _printable(text: str) -> str:
    """Return text with nothing in it that a terminal would obey."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "·" for char in text)


def _one_line(body: str) -> str:
    if len(body) > _PARSED:
        return " ".join(body[:_PARSED].split())
    try:
        return str(msgspec.json.format(body, indent=-1))
    except (msgspec.DecodeError, ValueError):
        return " ".join(body.split())


def fit_end(name: str, width: int) -> str:
    """Pad a name to `width` cells, or cut it at its beginning: the end of a path tells more."""
    name = _printable(name)
    while cells(name) > width:
        name = f"…{name[len(name) - width + 1 :]}" if len(name) > width else f"…{name[2:]}"
    return name + " " * (width - cells(name))
