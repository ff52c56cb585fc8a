"""A gate's report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from marpack.gate.verdicts import GateReport
from marpack.render import templates
from marpack.render.check import counted, hinted_once, said
from marpack.version import __version__


def check_page(report: GateReport) -> bytes:
    """Return the page in UTF-8; every text of the archive's is escaped."""
    environment = Environment(
        loader=FileSystemLoader(templates.folder() / "check"),
        autoescape=True,
        undefined=StrictUndefined,
    )
    page = environment.get_template("check.html.j2").render(
        title=f"marpack check {report.archive}",
        report=report,
        counts=counted(report),
        facts=[(name, value) for name, value in _facts(report) if value],
        said=said,
        hinted_once=hinted_once,
        version=__version__,
    )
    return page.encode("utf-8", "replace")


def _facts(report: GateReport) -> list[tuple[str, str | None]]:
    return [
        ("model", report.model),
        ("digest", report.digest),
        ("project", report.project),
        ("target", report.target),
        ("handler", report.loaded),
        ("device", report.device),
    ]
