"""A gate's findings as SARIF 2.1.0, for code scanning."""

import re
from pathlib import Path
from typing import Any

import msgspec

from marpack.findings import Finding, Severity
from marpack.gate.verdicts import Checked, GateReport, Verdict
from marpack.version import __version__

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LINE = re.compile(r"^(?P<path>.+?):(?P<line>\d+)(?::|$)")


def write(report: GateReport, path: Path) -> None:
    """Write the report: one rule per check, one result per finding of a check that did not pass clean."""
    results = [
        _result(checked, finding, report.archive)
        for checked in report.checks
        if checked.verdict is not Verdict.SKIPPED
        for finding in checked.findings
    ]
    driver = {
        "name": "marpack",
        "version": __version__,
        "rules": [{"id": checked.name, "shortDescription": {"text": checked.title}} for checked in report.checks],
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n")


def _result(checked: Checked, finding: Finding, archive: str) -> dict[str, Any]:  # Any: JSON
    hint = f" {finding.hint}" if finding.hint else ""
    return {
        "ruleId": checked.name,
        "level": _LEVELS[finding.severity] if checked.severity is Severity.ERROR else _LEVELS[checked.severity],
        "message": {"text": f"{finding.message}.{hint}"},
        "properties": {"code": finding.code},
        "locations": [{"physicalLocation": _location(finding.where or archive)}],
    }


def _location(where: str) -> dict[str, Any]:  # Any: JSON
    match = _LINE.match(where)
    uri = (match["path"] if match else where).replace("!", "/").partition(": ")[0]
    location: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if match:
        location["region"] = {"startLine": int(match["line"])}
    return location
