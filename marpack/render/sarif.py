"""A gate's findings as SARIF 2.1.0, for code scanning."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from marpack.findings import Finding, Severity
from marpack.gate.verdicts import Checked, GateReport, Verdict
from marpack.version import __version__

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PLACE = re.compile(r"(?P<path>.*?)(?::(?P<line>[1-9]\d*))?(?:: .*)?", re.DOTALL)
_Json = dict[str, Any]  # Any: JSON


def sarif(report: GateReport) -> bytes:
    """Return the report: one rule per check, one result per finding of a check that was run."""
    results = [
        _result(checked, finding, report)
        for checked in report.checks
        if checked.verdict is not Verdict.SKIPPED
        for finding in checked.findings
    ]
    rules = [{"id": checked.name, "shortDescription": {"text": _sentence(checked.title)}} for checked in report.checks]
    run = {
        "tool": {"driver": {"name": "marpack", "version": __version__, "rules": rules}},
        "invocations": [{"executionSuccessful": not report.interrupted, "exitCode": report.exit_code}],
        "results": results,
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n"


def _result(checked: Checked, finding: Finding, report: GateReport) -> _Json:
    lighter = checked.severity if finding.severity is Severity.ERROR else finding.severity
    hint = f" {_sentence(finding.hint)}" if finding.hint else ""
    return {
        "ruleId": checked.name,
        "level": _LEVELS[lighter],
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
