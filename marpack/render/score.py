"""What `marpack score` shows: how far it is, and what it adds up to."""

from collections.abc import Iterator
from contextlib import ExitStack

import click

from marpack.render.layout import clean, fit
from marpack.render.progress import Progress, waiting
from marpack.scoring.summary import FailureCause, ScoreProgress, ScoreSummary

_INDENT = 10  # cells of the labels' column
_MOST_CAUSES = 10


class ScoreBar(ScoreProgress):
    """Draws how far scoring is, where that is to be shown."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._bar: Progress | None = None
        self._waiting = ExitStack()

    def began(self, rows: int | None, before: int) -> None:
        """Begin to count; see `ScoreProgress`."""
        if self._shown:
            self._bar = Progress(None if rows is None else rows - before)
            self._waiting.enter_context(waiting("waiting for the first rows"))

    def scored(self, rows: int, failed: int) -> None:
        """Count rows, and draw if it is time; see `ScoreProgress`."""
        self._waiting.close()
        if self._bar is not None:
            self._bar.advance(rows, failed)

    def ended(self) -> None:
        """Take the bar off the screen; see `ScoreProgress`."""
        self._waiting.close()
        if self._bar is not None:
            self._bar.clear()


def summary_lines(summary: ScoreSummary, output: str, width: int) -> Iterator[str]:
    """Yield what a run adds up to: rows, failures by cause with their first rows, parts and where they are."""
    pace = f"{summary.throughput:,.0f}/s" if summary.throughput >= 10 else f"{summary.throughput:.1f}/s"
    yield _fact("rows", f"{summary.rows:,} in {summary.seconds:,.1f} s, {pace}")
    if summary.rows_before:
        yield _fact("before", f"{summary.rows_before:,}, of which {summary.failed_before:,} failed")
    answered = f"{summary.answered:,}"
    yield _fact("answered", click.style(answered, fg="green") if summary.answered else answered)
    if summary.failed:
        yield _fact("failed", click.style(f"{summary.failed:,}", fg="red"))
    for cause in summary.causes[:_MOST_CAUSES]:
        yield from _cause_lines(cause, summary, width)
    if len(summary.causes) > _MOST_CAUSES:
        rest = summary.causes[_MOST_CAUSES:]
        yield " " * _INDENT + f"{sum(cause.rows for cause in rest):,}  of {len(rest)} other causes"
    yield _fact("output", f"{summary.parts:,} part{'' if summary.parts == 1 else 's'} in {clean(output)}")
    if summary.exceeded:
        ended = "all rows were read" if summary.complete else "stopped; --resume goes on behind the last whole part"
        yield _fact("errors", click.style(f"more than --max-errors allows: {ended}", fg="red"))


def _fact(label: str, text: str) -> str:
    return click.style(label.ljust(_INDENT), dim=True) + text


def _cause_lines(cause: FailureCause, summary: ScoreSummary, width: int) -> Iterator[str]:
    indent = " " * _INDENT
    yield (indent + fit(f"{cause.rows:,}  {clean(cause.kind)}", width - _INDENT)).rstrip()
    several = len(summary.inputs) > 1
    for example in cause.examples:
        place = f"{example.input}, row {example.row:,}" if several else f"row {example.row:,}"
        message = example.message.removeprefix(f"{cause.kind}: ")
        text = f"  {clean(place)}: {clean(message)}"
        yield click.style((indent + fit(text, width - _INDENT)).rstrip(), dim=True)
