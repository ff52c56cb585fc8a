"""A gate's report as JUnit XML, for CI systems that show tests."""

from pathlib import Path
from xml.etree import ElementTree as ET

from marpack.findings import Finding
from marpack.gate.verdicts import Checked, GateReport, Verdict


def write(report: GateReport, path: Path) -> None:
    """Write the report; one test case per check, a warning's failure counts as passed with output."""
    failures = sum(checked.closes for checked in report.checks)
    skips = sum(checked.verdict is Verdict.SKIPPED for checked in report.checks)
    suite = ET.Element(
        "testsuite",
        name=f"marpack check {report.archive}",
        tests=str(len(report.checks)),
        failures=str(failures),
        skipped=str(skips),
        errors="0",
        time=f"{report.seconds:.3f}",
    )
    for checked in report.checks:
        _case(suite, checked, report.archive)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    path.write_bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _case(suite: ET.Element, checked: Checked, archive: str) -> None:
    case = ET.SubElement(
        suite, "testcase", name=checked.name, classname=f"marpack.{archive}", time=f"{checked.seconds:.3f}"
    )
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
    return "".join(char if char in "\t\n" or " " <= char <= "\ud7ff" or char >= "\ue000" else "�" for char in text)
