"""A gate's report as a page, as JUnit XML and as SARIF."""

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from marpack.findings import Finding, Severity
from marpack.gate.verdicts import CheckResult, GateReport, Verdict
from marpack.json_text import to_json
from marpack.project.scaffold.template import templates
from marpack.render.check import cost_rows, counted, hinted_once, said, verdict_of
from marpack.version import __version__

# Label → the report's field.
_FACTS = {
    "model": "model",
    "content digest": "content_digest",
    "project": "project",
    "target": "target",
    "handler": "loaded",
    "device": "device",
}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PLACE = re.compile(r"(?P<path>.*?)(?::(?P<line>[1-9]\d*))?(?:: .*)?", re.DOTALL)
_NOT_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_Json = dict[str, Any]  # Any: JSON


def check_page(report: GateReport) -> bytes:
    """Return the page in UTF-8; every text of the archive's is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - the other files do without

    environment = Environment(
        loader=FileSystemLoader(templates() / "check"),
        autoescape=True,
        undefined=StrictUndefined,
    )
    environment.filters["cut"] = str  # a page of its own has room for all of it
    page = environment.get_template("check.html.j2").render(
        title=f"marpack check {report.archive}",
        report=report,
        counts=counted(report),
        verdict=verdict_of(report),
        facts=[(label, value) for label, name in _FACTS.items() if (value := getattr(report, name))],
        said=said,
        costs=report.costs,
        cost_rows=cost_rows,
        hinted_once=hinted_once,
        most=None,
        version=__version__,
        moment=datetime.fromtimestamp(int(time.time()), UTC),
    )
    return page.encode("utf-8", "replace")


def junit(report: GateReport) -> bytes:
    """Return the report; one test case per check, a warning's failure counts as passed with output."""
    reported = {
        "tests": str(len(report.checks)),
        "failures": str(sum(checked.blocks for checked in report.checks)),
        "errors": "0",
        "time": f"{report.seconds:.3f}",
    }
    root = ET.Element("testsuites", reported)
    more = {
        "name": _xml_text(f"marpack check {report.archive}"),
        "skipped": str(sum(checked.verdict is Verdict.SKIPPED for checked in report.checks)),
    }
    suite = ET.SubElement(root, "testsuite", reported | more)
    for checked in report.checks:
        _case(suite, checked)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: ET.Element, checked: CheckResult) -> None:
    case = ET.SubElement(suite, "testcase", name=checked.name, classname="marpack.check", time=f"{checked.seconds:.3f}")
    details = "\n".join(_line(finding) for finding in checked.findings)
    if checked.verdict is Verdict.SKIPPED:
        ET.SubElement(case, "skipped", message=_xml_text(checked.reason))
    elif checked.blocks:
        failure = ET.SubElement(case, "failure", message=_xml_text(checked.reason), type=checked.rule)
        failure.text = _xml_text(details)
    if details and not checked.blocks:
        ET.SubElement(case, "system-out").text = _xml_text(details)


def _line(finding: Finding) -> str:
    place = f"{finding.where}: " if finding.where else ""
    hint = f" (hint: {finding.hint})" if finding.hint else ""
    return f"{finding.severity} {finding.code}: {place}{finding.message}{hint}"


def _xml_text(text: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("�", text)


def sarif(report: GateReport) -> bytes:
    """Return the report: one rule per check, one result per finding."""
    results = [_result(checked, finding, report) for checked in report.checks for finding in checked.findings]
    rules = [{"id": checked.rule, "shortDescription": {"text": _sentence(checked.title)}} for checked in report.checks]
    run = {
        "tool": {"driver": {"name": "marpack", "version": __version__, "rules": rules}},
        "invocations": [{"executionSuccessful": not report.interrupted, "exitCode": report.exit_code}],
        "results": results,
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return to_json(log, indent=True) + b"\n"


def _result(checked: CheckResult, finding: Finding, report: GateReport) -> _Json:
    lighter = checked.severity if finding.severity is Severity.ERROR else finding.severity
    hint = f" {_sentence(finding.hint)}" if finding.hint else ""
    return {
        "ruleId": checked.rule,
        "level": lighter,
        "message": {"text": f"{_sentence(finding.message)}{hint}"},
        "properties": {"code": finding.code},
        "locations": [location_of(finding.where or report.archive, report)],
    }


def _sentence(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode().strip()
    return clean[:1].upper() + clean[1:] + ("" if clean.endswith((".", "!", "?")) else ".")


def location_of(where: str, report: GateReport) -> _Json:
    """Return a finding's place: the file itself where it lies on disk, or the archive and the member in it."""
    match = _PLACE.fullmatch(where)
    path, line = (match["path"], match["line"]) if match else (where, None)
    member = path.removeprefix(f"{report.archive}!")
    file = _on_disk(member, report) if member != path or path != report.archive else None
    physical: _Json = {"artifactLocation": {"uri": uri_of(file or Path(report.archive))}}
    if file is not None and line:
        physical["region"] = {"startLine": int(line)}
    location: _Json = {"physicalLocation": physical}
    if file is None and member != report.archive:
        name = f"{member}:{line}" if line else member
        location["logicalLocations"] = [{"name": name, "fullyQualifiedName": f"{report.archive}!{name}"}]
    return location


def _on_disk(member: str, report: GateReport) -> Path | None:
    """Return the file of the project that a member was packed from, if it lies at its name there."""
    folder = report.project if report.project is not None else report.archive
    try:
        file = Path(folder, member.removeprefix("MAR-INF/"))
        return file if file.is_file() else None
    except (OSError, ValueError):
        return None


def uri_of(path: Path) -> str:
    """Return a path as a URI: relative to the current folder where it lies below it."""
    full = Path(os.path.normpath(path.absolute()))
    if full.is_relative_to(Path.cwd()):
        return quote(os.fsencode(full.relative_to(Path.cwd()).as_posix())) or "."
    return f"file://{quote(os.fsencode(full.as_posix()))}"


FORMS = {"report": check_page, "junit": junit, "sarif": sarif}  # by the option that asks for it
