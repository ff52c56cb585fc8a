"""What `marpack check --against` shows: a line per input, where its answers differ, and what they add up to."""

import sys

from rich.markup import escape

from marpack.gate.against import Compared, Comparison, Likeness
from marpack.render.console import page, show_findings, talk
from marpack.render.layout import clean, fit
from marpack.render.lines import fit_end

_COLOURS = {Likeness.EXACT: "green", Likeness.ROUNDED: "green", Likeness.LABEL: "yellow"}
_INPUT_WIDTH, _LIKENESS_WIDTH, _NUMBER_WIDTH = 24, 11, 11


class AcrossLines:
    """Prints each input's comparison as it is made."""

    def __init__(self) -> None:
        self._page = page()

    def show(self, compared: Compared) -> None:
        """Print one input: how much alike its answers are, the largest difference, the labels, and what differs."""
        colour = _COLOURS.get(compared.likeness, "red")
        number = "" if compared.largest is None else f"{compared.largest:.2g}"
        room = max(self._page.width - _INPUT_WIDTH - _LIKENESS_WIDTH - _NUMBER_WIDTH - 4, 12)
        self._page.print(
            f"{escape(fit_end(clean(compared.input), _INPUT_WIDTH))}  "
            f"[{colour}]{compared.likeness:{_LIKENESS_WIDTH}}[/]"
            f"{number:>{_NUMBER_WIDTH}}  [dim]{escape(fit(_labels(compared), room).rstrip())}[/]",
            soft_wrap=True,
        )
        for sentence in compared.differences:
            self._page.print(f"  [dim]{escape(clean(sentence))}[/]", soft_wrap=True)
        sys.stdout.flush()


def _labels(compared: Compared) -> str:
    one, other = compared.labels
    if compared.likeness is Likeness.STATUS:
        return f"{compared.statuses[0]} → {compared.statuses[1]}"
    if one == other:
        return clean(one or "")
    return f"{clean(one or '(none)')} → {clean(other or '(none)')}"


def show_comparison(comparison: Comparison) -> None:
    """Print what the comparisons add up to."""
    one, other = comparison.sides
    show_findings(comparison.findings, talk())
    total = sum(comparison.counts.values())
    counts = ", ".join(f"{count} {_WORDS[Likeness(kind)]}" for kind, count in comparison.counts.items() if count)
    verdict = "[bold green]answer alike[/]" if comparison.alike else "[bold red]differ[/]"
    if comparison.interrupted:
        verdict = "[bold yellow]were not compared to the end[/]"
    largest = "" if comparison.largest is None else f", largest difference {comparison.largest:.2g}"
    page().print(
        f"{escape(one.name)} and {escape(other.name)} {verdict} [dim]({total} inputs: {counts or 'none'}{largest};"
        f" {one.milliseconds:.1f} and {other.milliseconds:.1f} ms)[/]"
    )


_WORDS = {
    Likeness.EXACT: "exactly the same",
    Likeness.ROUNDED: "within the tolerance",
    Likeness.LABEL: "with the same label only",
    Likeness.DIFFERENT: "different",
    Likeness.STATUS: "of another status",
}
