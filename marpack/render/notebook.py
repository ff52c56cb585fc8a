"""Results as HTML for a cell of a notebook: the pages of the commands, and the pictures of the report.

Each is one element of the class `marpack` with a style sheet of its own, without scripts and ids, and bounded.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from marpack.archive.reader import Unpacked
from marpack.exporting.export import Exported
from marpack.gate.verdicts import GateReport
from marpack.inspection.diff import Diff
from marpack.inspection.facts import Inspection
from marpack.render import pages
from marpack.render.build import BuildPlan, BuildReport, InitReport, build_page, init_page, plan_page
from marpack.render.check import gate_page, merge_hints, summarize
from marpack.render.doctor import DoctorReport
from marpack.render.pages import Cell, Page, Row, Table, Tone
from marpack.render.run import RunReport, run_page
from marpack.runner.results import AnsweredInput
from marpack.trust import Signed, Verification

_SHOWN = 40  # rows of anything
_TROUBLES = 5  # of one response, and frames of each
_LOGS = 4_000  # characters of what a handler printed
_CSS = {"name": "mono", "number": "n", "code": "mono code", "text": ""}  # kind of a cell → classes

_HEALTH: dict[str, Tone] = {"ok": "good", "note": "warn", "broken": "bad"}


def doctor_page(report: DoctorReport) -> Page:
    """Return the page of `doctor`; the command prints lines of its own, because it works without msgspec."""
    verdict = Cell("ready", "good") if report.healthy else Cell("something is broken", "bad")
    lines = Table.of(
        report.lines, lambda each: Row.of(Cell(each.name, _HEALTH[each.health]), each.text, below=each.hint)
    )
    return Page(title="doctor", verdict=verdict, tables=(lines,))


_PAGES: dict[type, Callable[[Any], Page]] = {  # Any: a result of that type
    BuildReport: build_page,
    BuildPlan: plan_page,
    InitReport: init_page,
    Inspection: pages.inspection_page,
    Diff: pages.diff_page,
    Unpacked: pages.unpacked_page,
    Exported: pages.exported_page,
    Signed: pages.signed_page,
    Verification: pages.verification_page,
    DoctorReport: doctor_page,
    GateReport: gate_page,
    RunReport: run_page,
}


def shown(result: object) -> str:
    """Return the HTML of any result but a single response."""
    from marpack.render.article import page_templates

    page = next(make(result) for kind, make in _PAGES.items() if isinstance(result, kind))
    template = page_templates().get_template("result.html.j2")
    return template.render(page=page, summarize=summarize, merge_hints=merge_hints, most=_SHOWN, css=_CSS)


def answer(answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> str:
    """Return the HTML of one input with its response; see `article`."""
    from marpack.render.article import article, article_css, page_templates

    short = replace(answered.result, logs=answered.result.logs[:_LOGS])
    html = article(AnsweredInput(answered.input, short), labels, handler, rows=_TROUBLES)
    return page_templates().get_template("answer.html.j2").render(article=html, article_css=article_css())
