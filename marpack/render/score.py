"""The progress of `marpack score`, and the page of its result."""

from contextlib import ExitStack

from marpack.errors import pluralize
from marpack.render.console import Progress, waiting
from marpack.render.pages import Cell, Fact, Page, Row, Table, number
from marpack.scoring.plan import ScoreProgress, ScoreSummary

_MOST_CAUSES = 10


class ScoreBar(ScoreProgress):
    """Draws the progress of scoring, if it is to be shown."""

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


def score_page(summary: ScoreSummary, output: str) -> Page:
    """Return the page of `marpack score`: rows, failures by cause with their first rows, parts and their folder."""
    pace = f"{summary.throughput:,.0f}/s" if summary.throughput >= 10 else f"{summary.throughput:.1f}/s"
    facts = [Fact("rows", f"{summary.rows:,} in {summary.seconds:,.1f} s, {pace}")]
    if summary.rows_before:
        facts.append(Fact("before", f"{summary.rows_before:,}, of which {summary.failed_before:,} failed"))
    facts.append(Fact("answered", f"{summary.answered:,}"))
    if summary.failed:
        facts.append(Fact("failed", f"{summary.failed:,}"))
    facts.append(Fact("output", pluralize(summary.parts, "part")))
    rows = []
    for cause in summary.causes[:_MOST_CAUSES]:
        rows.append(Row.of(Cell(f"{cause.rows:,}", "bad", "number"), cause.kind))
        for example in cause.examples:
            place = f"{example.input}, row {example.row:,}" if len(summary.inputs) > 1 else f"row {example.row:,}"
            message = example.message.removeprefix(f"{cause.kind}: ")
            rows.append(Row.of(number(""), Cell(f"  {place}: {message}", "dim")))
    if rest := summary.causes[_MOST_CAUSES:]:
        count = f"{sum(cause.rows for cause in rest):,}"
        rows.append(Row.of(Cell(count, "bad", "number"), f"of {len(rest)} other causes"))
    closing = ""
    if summary.exceeded:
        ended = "all rows were read" if summary.complete else "stopped; --resume continues after the last whole part"
        closing = f"More rows failed than --max-errors allows: {ended}."
    return Page(
        title=output,
        verdict=Cell("scored", "warn" if summary.failed else "good"),
        facts=tuple(facts),
        tables=(Table(title="failures", rows=tuple(rows)),) if rows else (),
        closing=closing,
    )
