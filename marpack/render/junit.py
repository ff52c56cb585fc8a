"""A gate's report as JUnit XML, for CI systems that show tests."""

from xml.etree import ElementTree as ET

from marpack.findings import Finding
from marpack.gate.verdicts import Checked, GateReport, Verdict


def junit(report: GateReport) -> bytes:
    """Return the report; one test case per check, a warning's failure counts as passed with output."""
    told = {
        "tests": str(len(report.checks)),
        "failures": str(sum(checked.closes for checked in report.checks)),
        "errors": "0",
        "time": f"{report.seconds:.3f}",
    }
    root = ET.Element("testsuites", told)
    more = {
        "name": _xml_text(f"marpack check {report.archive}"),
        "skipped": str(sum(checked.verdict is Verdict.SKIPPED for checked in report.checks)),
    }
    suite = ET.SubElement(root, "testsuite", told | more)
    for checked in report.checks:
        _case(suite, checked)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: ET.Element, checked: Checked) -> None:
    case = ET.SubElement(suite, "testcase", name=checked.name, classname="marpack.check", time=f"{checked.seconds:.3f}")
    details = "\n".join(_line(finding) for finding in checked.findings)
    if checked.verdict is Verdict.SKIPPED:
        ET.SubElement(case, "skipped", message=_xml_text(checked.reason))
    elif checked.closes:
        failure = ET.SubElement(case, "failure", message=_xml_text(checked.reason), type=checked.name)
        failure.text = _xml_text(details)
    elif details:
        ET.SubElement(case, "system-out").text = _xml_text(details)


def _line(finding: Finding) -> str:
    place = f"{finding.where}: " if finding.where else ""
    hint = f" (hint: {finding.hint})" if finding.hint else ""
    return f"{finding.severity} {finding.code}: {place}{finding.message}{hint}"


def _xml_text(text: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold."""
    return "".join(char if char in "\t\n" or " " <= char <= "\ud7ff" or _is_high(char) else "�" for char in text)


def _is_high(char: str) -> bool:
    return "\ue000" <= char <= "\ufffd" or char >= "\U00010000"
