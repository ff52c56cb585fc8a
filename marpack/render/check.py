"""What `marpack check` shows: a line a check, the verdict, and two-way comparisons."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import zip_longest

from msgspec.structs import replace
from rich.filesize import decimal
from rich.markup import escape
from rich.status import Status
from rich.text import Text

from marpack.findings import Finding, Severity
from marpack.gate.compare import Comparison, InputComparison, Similarity
from marpack.gate.verdicts import CheckProgress, CheckResult, Cost, Costs, GateReport, GateVerdict, Verdict, pluralize
from marpack.project.schema import Check
from marpack.protocol.targets import Target
from marpack.render.console import page, show_findings, talk
from marpack.render.layout import clean, fit, rows
from marpack.render.progress import periodic_lines
from marpack.render.run import duration, fit_end

_MARKS = {Verdict.PASSED: ("✓", "green"), Verdict.FAILED: ("✗", "red"), Verdict.SKIPPED: ("-", "dim")}
_VERDICTS = {
    GateVerdict.DEPLOYABLE: "green",
    GateVerdict.REFUSED: "red",
    GateVerdict.NOT_PROVED: "red",
    GateVerdict.PARTIAL: "yellow",
    GateVerdict.INTERRUPTED: "yellow",
}
_NAMED = 4  # checks that passed, in a partial verdict
_NAME_WIDTH = 15
_COLOURS = {Similarity.EXACT: "green", Similarity.ROUNDED: "green", Similarity.LABEL: "yellow"}
_INPUT_WIDTH, _LIKENESS_WIDTH, _NUMBER_WIDTH = 24, 11, 11


class CheckLines(CheckProgress):
    """Prints each check's result; stderr shows the running check, on a terminal at once, in a log every ten seconds."""

    def __init__(self, archive: str, *, quiet: bool = False) -> None:
        """Take the archive's path, and whether stdout is for something else."""
        self._archive = archive
        self._quiet = quiet
        self._page = page()
        self._talk = talk()
        self._status: Status | None = None
        self._running = "opening the archive"

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the running check until the block ends."""
        is_log = not self._quiet and not self._talk.is_terminal
        with periodic_lines(lambda: self._running) if is_log else nullcontext():
            try:
                yield
            finally:
                self.stop()

    def begins(self, check: Check) -> None:
        """Show the check that begins."""
        self._running = f"{check.name}: {check.title}"
        if self._talk.is_terminal and not self._quiet:
            self._status = self._talk.status(f"[dim]{escape(self._running)}[/]")
            self._status.start()

    def ends(self, checked: CheckResult) -> None:
        """Print mark, name, what was seen, and why it failed; nothing of what nobody asked for."""
        self.stop()
        if checked.left_out or self._quiet:
            return
        mark, colour = _MARKS[checked.verdict]
        if checked.verdict is Verdict.FAILED and not checked.blocks:
            colour = "yellow"
        room = max(self._page.width - _NAME_WIDTH - 4, 20)
        line = Text.assemble(
            (f"{mark} ", colour),
            (checked.name.ljust(_NAME_WIDTH), "bold"),
            # What a check that is skipped waits for is not cut: an option may stand at its end.
            (_line(checked.reason), "dim") if checked.verdict is Verdict.SKIPPED else _fitted(said(checked), room),
        )
        self._page.print(line, soft_wrap=True)
        shown = [each for each in checked.findings if checked.verdict is Verdict.FAILED or each.severity != "note"]
        show_findings(hinted_once([self._inside(finding) for finding in shown]), self._page)
        sys.stdout.flush()

    def announce(self, what: str) -> None:
        """Say on stderr what nobody asked for, before it is done."""
        self._talk.print(f"[dim]{escape(_line(what))}[/]")

    def _inside(self, finding: Finding) -> Finding:
        """Return a finding on one line, its place told within the archive, which is named at the end."""
        return replace(
            finding,
            message=_line(finding.message),
            where=finding.where and _line(finding.where.removeprefix(f"{self._archive}!")),
            hint=finding.hint and _line(finding.hint),
        )

    def stop(self) -> None:
        """Take away what is going on."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def hinted_once(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings in which a hint that several in a row have stands with the last of them."""
    return [
        replace(finding, hint=None) if after is not None and finding.hint == after.hint else finding
        for finding, after in zip_longest(findings, findings[1:])
    ]


def said(checked: CheckResult) -> str:
    """Return what a check comes to; of a failed one the problems stand below, each with its place."""
    if checked.verdict is not Verdict.FAILED:
        return checked.reason
    count = sum(finding.severity is Severity.ERROR for finding in checked.findings)
    reported = "1 problem" if count == 1 else f"{count} problems"
    return reported if checked.blocks else f"{reported}, weighing as a {checked.severity}"


def _fitted(text: str, room: int) -> str:
    return fit(_line(text), room).rstrip()


def _line(text: str) -> str:
    """Return text on one line, with nothing in it that a terminal would obey."""
    return clean(" ".join(text.split()))


def counted(report: GateReport) -> str:
    """Return how many checks ended in which way."""
    return ", ".join(f"{count} {how}" for how, count in report.counts.items())


def verdict_of(report: GateReport) -> str:
    """Return what is said of the archive: "may be deployed"."""
    match report.verdict:
        case GateVerdict.INTERRUPTED:
            return "was not checked to the end"
        case GateVerdict.REFUSED:
            return "must not be deployed"
        case GateVerdict.NOT_PROVED:
            verdict = f"is not proved: {report.unproved}"
        case GateVerdict.PARTIAL:
            verdict = _partial(report)
        case GateVerdict.DEPLOYABLE:
            verdict = "may be deployed"
            if report.target == Target.MARPACK:  # which is nobody's server but ours
                verdict += " to marpack's runtime"
                verdict += f"; TorchServe cannot load {report.unserved}" if report.unserved else ""
    down = ", ".join(checked.name for checked in report.downgraded)
    although = f", although {down} failed" if down else ""
    return "; ".join([verdict + although, *report.caveats])


def _partial(report: GateReport) -> str:
    passed = [checked.name for checked in report.checks if checked.verdict is Verdict.PASSED]
    names = ", ".join(passed) if len(passed) <= _NAMED else "what was chosen"
    return f"passed: {names or 'nothing'} ({len(passed)} of {len(report.checks)} checks)"


def cost_rows(costs: Costs) -> list[tuple[str, ...]]:
    """Return a row for each figure: what it is, old, new, ratio, and between which bounds one may be sure of it."""
    return [(cost.name, *_figures(cost), f"{cost.ratio:.3f}", cost.bounds) for cost in costs.figures]


def _figures(cost: Cost) -> Iterator[str]:
    return (decimal(int(each)) if cost.unit == "bytes" else duration(1000 * each) for each in (cost.old, cost.new))


def show_verdict(report: GateReport) -> None:
    """Print whether the archive may be deployed, below what it costs beside another one."""
    if report.costs is not None:
        head = ("beside the other", "other", "this one", "times", "99 % sure")
        table = rows([head, *cost_rows(report.costs)], width=page().width, right=frozenset({1, 2, 3, 4}))
        page().print("\n".join(map(escape, table)), soft_wrap=True)
    about = f"{counted(report)} in {report.seconds:.1f} s, target {report.target}"
    colour = _VERDICTS[report.verdict]
    page().print(f"{escape(report.archive)} [bold {colour}]{verdict_of(report)}[/] [dim]({about})[/]")


class AcrossLines:
    """Prints each input's comparison as it is made."""

    def __init__(self) -> None:
        self._page = page()

    def show(self, compared: InputComparison) -> None:
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


def _labels(compared: InputComparison) -> str:
    one, other = compared.labels
    if compared.likeness is Similarity.STATUS:
        return f"{compared.statuses[0]} → {compared.statuses[1]}"
    if one == other:
        return clean(one or "")
    return f"{clean(one or '(none)')} → {clean(other or '(none)')}"


def show_comparison(comparison: Comparison) -> None:
    """Print what the comparisons add up to."""
    one, other = comparison.sides
    show_findings(comparison.findings, talk())
    total = sum(comparison.counts.values())
    counts = ", ".join(f"{count} {_WORDS[Similarity(kind)]}" for kind, count in comparison.counts.items() if count)
    verdict = "[bold green]answer alike[/]" if comparison.alike else "[bold red]differ[/]"
    if comparison.alike and not comparison.proved:
        verdict = "[bold red]are not proved alike[/]: no request got a 2xx from either"
    if comparison.interrupted:
        verdict = "[bold yellow]were not compared to the end[/]"
    largest = "" if comparison.largest is None else f", largest difference {comparison.largest:.2g}"
    page().print(
        f"{escape(one.name)} and {escape(other.name)} {verdict} [dim]({pluralize(total, 'input')}:"
        f" {counts or 'none'}{largest}; {one.milliseconds:.1f} and {other.milliseconds:.1f} ms)[/]"
    )


_WORDS = {
    Similarity.EXACT: "exactly the same",
    Similarity.ROUNDED: "within the tolerance",
    Similarity.LABEL: "with the same label only",
    Similarity.DIFFERENT: "different",
    Similarity.STATUS: "of another status",
}
