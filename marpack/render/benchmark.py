"""What `marpack run --repeat` shows: a line per batch size, the stages, and the worker's memory."""

import sys

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from marpack.render.console import page, show_findings
from marpack.render.durations import duration
from marpack.render.lines import percentiles_of
from marpack.render.run import RunHead
from marpack.runner.benchmark import Figures, Pace

_COLUMNS = ("batch", "inputs/s", "p50", "p90", "p99", "per input")
_WIDTHS = (8, 12, 12, 12, 12, 12)


class BenchmarkReport(RunHead, frozen=True, kw_only=True):
    """The result of `marpack run --repeat N --json`."""

    figures: Figures


def show_columns() -> None:
    """Print the head of the table."""
    heads = "".join(f"{name:>{width}}" for name, width in zip(_COLUMNS, _WIDTHS, strict=True))
    page().print(f"[dim]{heads}[/]", soft_wrap=True)


def show_pace(pace: Pace) -> None:
    """Print one batch size: throughput, and the percentiles of a call of the handler."""
    handle = pace.stages.get("handle")
    spread = (handle.p50, handle.p90, handle.p99) if handle else ()
    cells = [str(pace.batch_size), f"{pace.throughput:,.0f}", *map(duration, spread)]
    cells += [duration(handle.p50 / pace.batch_size)] if handle else []
    line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=False))
    short = f"  [red]{pace.short:,} fell short[/]" if pace.short else ""
    page().print(line + short, soft_wrap=True)


def show_rest(figures: Figures) -> None:
    """Print the stages of the largest batch, the memory, and what is wrong with it."""
    console = Console(file=sys.stdout, highlight=False, emoji=False, soft_wrap=True)
    last = figures.paces[-1]
    console.print(f"\n[dim]{f'batch of {last.batch_size}':20}{'p50':>12}{'p90':>12}{'p99':>12}[/]")
    for stage, spread in last.stages.items():
        console.print(f"{escape(stage):20}{percentiles_of(spread)}")
    memory = figures.memory
    if memory is not None:
        told = f"{decimal(memory.before)} once warm, {decimal(memory.after)} in the end, {decimal(memory.peak)} at most"
        console.print(f"\nmemory  {told}")
    show_findings(figures.findings, console)
