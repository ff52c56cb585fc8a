"""Results as HTML for a cell of a notebook: the pages of the commands, and the pictures of the report.

Each is one element of the class `marpack` with a style sheet of its own, without scripts and ids, and bounded.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from marpack.archive.oci import PullReport, PushReport
from marpack.archive.reader import Unpacked
from marpack.exporting.export import Exported
from marpack.gate.verdicts import GateReport
from marpack.inspection.diff import Diff
from marpack.inspection.facts import Inspection
from marpack.project.scaffold.template import templates
from marpack.render import pages
from marpack.render.build import BuildReport, InitReport, build_page, init_page
from marpack.render.check import gate_page, merge_hints, summarize
from marpack.render.console import visible
from marpack.render.doctor import DoctorReport
from marpack.render.pages import Cell, Page, Row, Table, Tone
from marpack.render.run import RunReport, run_page
from marpack.runner.results import AnsweredInput
from marpack.trust import Signed, Verification

if TYPE_CHECKING:
    from jinja2 import Environment

_SHOWN = 40  # rows of anything
_TROUBLES = 5  # of one response, and frames of each
_LOGS = 4_000  # characters of what a handler printed
_CSS = {"name": "mono", "number": "n", "code": "mono code", "text": ""}  # kind of a cell → classes

_HEALTH: dict[str, Tone] = {"ok": "good", "note": "warn", "broken": "bad"}


def doctor_page(report: DoctorReport) -> Page:
    """Return the page of `doctor`; the command prints lines of its own, because it works without msgspec."""
    rows = (Row((Cell(each.name, _HEALTH[each.health]), Cell(each.text)), below=each.hint) for each in report.lines)
    verdict = Cell("ready", "good") if report.healthy else Cell("something is broken", "bad")
    return Page(title="doctor", verdict=verdict, tables=(Table.of("", rows, len(report.lines)),))


_PAGES: dict[type, Callable[[Any], Page]] = {  # Any: a result of that type
    BuildReport: build_page,
    InitReport: init_page,
    Inspection: pages.inspection_page,
    Diff: pages.diff_page,
    Unpacked: pages.unpacked_page,
    Exported: pages.exported_page,
    PushReport: pages.push_page,
    PullReport: pages.pull_page,
    Signed: pages.signed_page,
    Verification: pages.verification_page,
    DoctorReport: doctor_page,
    GateReport: gate_page,
    RunReport: run_page,
}


def page_of(result: object) -> Page:
    """Return the page of any result but a single response."""
    return next(make(result) for kind, make in _PAGES.items() if isinstance(result, kind))


def shown(result: object) -> str:
    """Return the HTML of any result but a single response."""
    template = _environment().get_template("result.html.j2")
    return template.render(page=page_of(result), summarize=summarize, merge_hints=merge_hints, most=_SHOWN, css=_CSS)


def answer(answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> str:
    """Return the HTML of one input with its response.

    Args:
        answered: The input and its result.
        labels: The model's: {class index: label}.
        handler: As the manifest names it.
    """
    from marpack.render.report.article import article

    result = answered.result
    short = replace(result, logs=result.logs[:_LOGS])
    html = article(AnsweredInput(answered.input, short), labels, handler, rows=_TROUBLES)
    return _environment().get_template("answer.html.j2").render(article=html)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from marpack.render.report.article import article_css, cut

    environment = Environment(
        loader=FileSystemLoader([templates() / "notebook", templates() / "check"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cut": cut, "visible": visible}
    environment.globals["article_css"] = article_css
    return environment
