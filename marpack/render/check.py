"""The result of `marpack check`: a line a check and the verdict on the console, and HTML, JUnit and SARIF files."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree as ET

import click
from msgspec.structs import replace

from marpack.errors import pluralize, printable
from marpack.findings import Finding, Severity
from marpack.gate.verdicts import (
    LEFT_OUT,
    CheckProgress,
    CheckResult,
    Comparison,
    GateReport,
    GateVerdict,
    InputComparison,
    Similarity,
    Verdict,
)
from marpack.json_text import to_json
from marpack.project.schema import PROOF, Check
from marpack.protocol.targets import Target
from marpack.render.console import (
    STDERR,
    fit,
    fit_end,
    page_width,
    periodic_lines,
    show_findings,
    show_lines,
    shows_progress,
    style,
    talk,
)
from marpack.render.pages import Cell, Fact, Page, Tone
from marpack.version import __version__

if TYPE_CHECKING:
    from rich.status import Status

_MARKS: dict[Verdict, tuple[str, Tone]] = {
    Verdict.PASSED: ("✓", "good"),
    Verdict.FAILED: ("✗", "bad"),
    Verdict.SKIPPED: ("-", ""),
}
_VERDICTS: dict[GateVerdict, Tone] = {
    GateVerdict.DEPLOYABLE: "good",
    GateVerdict.REFUSED: "bad",
    GateVerdict.NOT_PROVED: "bad",
    GateVerdict.PARTIAL: "warn",
    GateVerdict.INTERRUPTED: "warn",
}
_NAMED = 4  # checks that passed, in a partial verdict
_NAME_WIDTH = 15
_SIMILARITIES: dict[Similarity, tuple[Tone, str]] = {
    Similarity.EXACT: ("good", "exactly the same"),
    Similarity.ROUNDED: ("good", "within the tolerance"),
    Similarity.LABEL: ("warn", "with the same label only"),
    Similarity.DIFFERENT: ("bad", "different"),
    Similarity.STATUS: ("bad", "with another status"),
}
_INPUT_WIDTH, _SIMILARITY_WIDTH, _NUMBER_WIDTH = 24, 11, 11
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PLACE = re.compile(r"(?P<path>.*?)(?::(?P<line>[1-9]\d*))?(?:: .*)?", re.DOTALL)
_NOT_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class CheckLines(CheckProgress):
    """Prints each check's result; stderr shows the running check, on a terminal at once, in a log every ten seconds."""

    def __init__(self, archive: str, *, quiet: bool = False) -> None:
        """Take the archive's path, and whether stdout is for something else."""
        self._archive = archive
        self._quiet = quiet
        self._status: Status | None = None
        self._running = "opening the archive"

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the running check until the block ends."""
        is_log = not self._quiet and not sys.stderr.isatty()
        with periodic_lines(lambda: self._running) if is_log else nullcontext():
            try:
                yield
            finally:
                self.stop()

    def begins(self, check: Check) -> None:
        """Show the check that begins."""
        self._running = f"{check.name}: {check.title}"
        if shows_progress() and not self._quiet:
            self._status = talk().status(f"[dim]{self._running}[/]")
            self._status.start()

    def ends(self, checked: CheckResult) -> None:
        """Print mark, name, reason and findings of a check, unless it was left out."""
        self.stop()
        if checked.left_out or self._quiet:
            return
        mark, tone = _MARKS[checked.verdict]
        if checked.verdict is Verdict.FAILED and not checked.blocks:
            tone = "warn"
        if checked.verdict is Verdict.SKIPPED:
            reason = click.style(_one_line(checked.reason), dim=True)  # uncut: an option may be at its end
        else:
            reason = fit(_one_line(summarize(checked)), max(page_width() - _NAME_WIDTH - 4, 20)).rstrip()
        show_lines([f"{style(mark, tone)} {click.style(checked.name.ljust(_NAME_WIDTH), bold=True)}{reason}"])
        findings = [
            replace(
                finding,
                message=_one_line(finding.message),
                # within the archive, which the last line names
                where=finding.where and _one_line(finding.where.removeprefix(f"{self._archive}!")),
                hint=finding.hint and _one_line(finding.hint),
            )
            for finding in checked.findings
            if checked.verdict is Verdict.FAILED or finding.severity is not Severity.NOTE
        ]
        show_findings(findings, err=False)
        sys.stdout.flush()

    def announce(self, what: str) -> None:
        """Print on stderr what happens that the user did not ask for, before it does."""
        if not STDERR.quiet:
            show_lines([click.style(_one_line(what), dim=True)], err=True)

    def stop(self) -> None:
        """Remove the running check from the screen."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def merge_hints(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings in which only the last of several in a row with the same hint has it."""
    return [
        replace(finding, hint=None) if after is not None and finding.hint == after.hint else finding
        for finding, after in zip_longest(findings, findings[1:])
    ]


def summarize(checked: CheckResult) -> str:
    """Return what a check saw; of a failed one the number of problems, which are listed below it."""
    if checked.verdict is not Verdict.FAILED:
        return checked.reason
    count = pluralize(sum(finding.severity is Severity.ERROR for finding in checked.findings), "problem")
    return count if checked.blocks else f"{count}, downgraded to a {checked.severity}"


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def count_checks(report: GateReport) -> str:
    """Return how many checks ended in which way."""
    found = dict.fromkeys((*map(str, Verdict), LEFT_OUT), 0)
    for checked in report.checks:
        found[LEFT_OUT if checked.left_out else checked.verdict] += 1
    return ", ".join(f"{count} {how}" for how, count in found.items() if count)


def describe_verdict(report: GateReport) -> str:
    """Return the verdict as the end of a sentence about the archive: "may be deployed"."""
    match report.verdict:
        case GateVerdict.INTERRUPTED:
            return "was not checked to the end"
        case GateVerdict.REFUSED:
            return "must not be deployed"
        case GateVerdict.NOT_PROVED:
            why = next((checked.reason for checked in report.checks if checked.name == PROOF), "")
            verdict = f"is not proved: {why}"
        case GateVerdict.PARTIAL:
            passed = [checked.name for checked in report.checks if checked.verdict is Verdict.PASSED]
            names = ", ".join(passed) if len(passed) <= _NAMED else "the selected checks"
            verdict = f"passed: {names or 'nothing'} ({len(passed)} of {len(report.checks)} checks)"
        case GateVerdict.DEPLOYABLE:
            verdict = "may be deployed"
            if report.target == Target.MARPACK:
                verdict += " to marpack's runtime"
                verdict += f"; TorchServe cannot load {report.unserved}" if report.unserved else ""
    down = ", ".join(checked.name for checked in report.downgraded)
    although = f", although {down} failed" if down else ""
    return "; ".join([verdict + although, *report.caveats])


def show_verdict(report: GateReport) -> None:
    """Print whether the archive may be deployed."""
    about = f"({count_checks(report)} in {report.seconds:.1f} s, target {report.target})"
    verdict = style(printable(describe_verdict(report)), _VERDICTS[report.verdict], bold=True)
    show_lines([f"{printable(report.archive)} {verdict} {click.style(about, dim=True)}"])


def show_input_comparison(compared: InputComparison) -> None:
    """Print one input: the similarity of its responses, the largest difference, the labels, and the differences."""
    similarity = style(f"{compared.likeness:{_SIMILARITY_WIDTH}}", _SIMILARITIES[compared.likeness][0])
    number = "" if compared.largest is None else f"{compared.largest:.2g}"
    one, other = compared.labels
    labels = f"{one or '(none)'} → {other or '(none)'}" if one != other else one or ""
    if compared.likeness is Similarity.STATUS:
        labels = f"{compared.statuses[0]} → {compared.statuses[1]}"
    room = max(page_width() - _INPUT_WIDTH - _SIMILARITY_WIDTH - _NUMBER_WIDTH - 4, 12)
    labels = click.style(fit(printable(labels), room).rstrip(), dim=True)
    first = f"{fit_end(compared.input, _INPUT_WIDTH)}  {similarity}{number:>{_NUMBER_WIDTH}}  {labels}"
    show_lines([first, *(click.style(f"  {printable(sentence)}", dim=True) for sentence in compared.differences)])
    sys.stdout.flush()


def show_comparison(comparison: Comparison) -> None:
    """Print the totals of the comparisons."""
    one, other = comparison.sides
    show_findings(comparison.findings)
    total = sum(comparison.counts.values())
    counts = [f"{count} {_SIMILARITIES[Similarity(kind)][1]}" for kind, count in comparison.counts.items() if count]
    verdict, why = style("respond alike", "good", bold=True), ""
    if comparison.interrupted:
        verdict = style("were not compared to the end", "warn", bold=True)
    elif not comparison.alike:
        verdict = style("differ", "bad", bold=True)
    elif not comparison.proved:
        verdict, why = style("are not proved alike", "bad", bold=True), ": no request got a 2xx from either"
    largest = "" if comparison.largest is None else f", largest difference {comparison.largest:.2g}"
    times = f"{one.milliseconds:.1f} and {other.milliseconds:.1f} ms"
    about = f"({pluralize(total, 'input')}: {', '.join(counts) or 'none'}{largest}; {times})"
    show_lines([f"{printable(one.name)} and {printable(other.name)} {verdict}{why} {click.style(about, dim=True)}"])


def gate_page(report: GateReport) -> Page:
    """Return the page of a report, for its HTML file and for a notebook."""
    facts = {
        "model": report.model,
        "content digest": report.content_digest,
        "project": report.project,
        "target": report.target,
        "handler": report.loaded,
        "device": report.device,
    }
    return Page(
        title=report.archive,
        verdict=Cell(f"{describe_verdict(report)}: {count_checks(report)}", _VERDICTS[report.verdict]),
        facts=tuple(Fact(label, value) for label, value in facts.items() if value),
        checks=report,
    )


def check_page(report: GateReport) -> bytes:
    """Return the report as an HTML page in UTF-8; every text of the archive is escaped."""
    from marpack.render.article import page_templates

    template = page_templates().get_template("check.html.j2")
    moment = datetime.now(UTC).replace(microsecond=0)
    page = template.render(
        page=gate_page(report), summarize=summarize, merge_hints=merge_hints, version=__version__, moment=moment
    )
    return page.encode("utf-8", "replace")


def junit(report: GateReport) -> bytes:
    """Return the report as JUnit XML: a test case per check; a downgraded failure counts as passed with output."""
    totals = {
        "tests": str(len(report.checks)),
        "failures": str(sum(checked.blocks for checked in report.checks)),
        "errors": "0",
        "time": f"{report.seconds:.3f}",
    }
    root, name = ET.Element("testsuites", totals), _xml_text(f"marpack check {report.archive}")
    skipped = str(sum(checked.verdict is Verdict.SKIPPED for checked in report.checks))
    suite = ET.SubElement(root, "testsuite", totals, name=name, skipped=skipped)
    for checked in report.checks:
        seconds = f"{checked.seconds:.3f}"
        case = ET.SubElement(suite, "testcase", name=checked.name, classname="marpack.check", time=seconds)
        lines = (
            f"{each.severity} {each.code}: {f'{each.where}: ' if each.where else ''}{each.message}"
            f"{f' (hint: {each.hint})' if each.hint else ''}"
            for each in checked.findings
        )
        details = _xml_text("\n".join(lines))
        if checked.verdict is Verdict.SKIPPED:
            ET.SubElement(case, "skipped", message=_xml_text(checked.reason))
        if checked.blocks:
            failure = ET.SubElement(case, "failure", message=_xml_text(checked.reason), type=checked.rule)
            failure.text = details
        elif details:
            ET.SubElement(case, "system-out").text = details
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("�", text)


def sarif(report: GateReport) -> bytes:
    """Return the report as SARIF: one rule per check, one result per finding."""
    results = []
    for checked in report.checks:
        for finding in checked.findings:
            hint = f" {_sentence(finding.hint)}" if finding.hint else ""
            level = checked.severity if finding.severity is Severity.ERROR else finding.severity
            result = {"ruleId": checked.rule, "level": level, "properties": {"code": finding.code}}
            place = location_of(finding.where or report.archive, report)
            results.append(result | {"message": {"text": f"{_sentence(finding.message)}{hint}"}, "locations": [place]})
    rules = [{"id": checked.rule, "shortDescription": {"text": _sentence(checked.title)}} for checked in report.checks]
    run = {
        "tool": {"driver": {"name": "marpack", "version": __version__, "rules": rules}},
        "invocations": [{"executionSuccessful": not report.interrupted, "exitCode": report.exit_code}],
        "results": results,
    }
    return to_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=True) + b"\n"


def _sentence(text: str) -> str:
    text = text.encode("utf-8", "replace").decode().strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def location_of(where: str, report: GateReport) -> dict[str, object]:
    """Return a finding's place in SARIF: the file itself if it is on disk, or the archive and the member in it."""
    match = _PLACE.fullmatch(where)
    path, line = (match["path"], match["line"]) if match else (where, None)
    member = path.removeprefix(f"{report.archive}!")
    file = None
    if member != path or path != report.archive:
        # The project's file that the member was packed from, if it has that name there.
        with suppress(OSError, ValueError):
            folder = report.archive if report.project is None else report.project
            packed = Path(folder, member.removeprefix("MAR-INF/"))
            file = packed if packed.is_file() else None
    physical: dict[str, object] = {"artifactLocation": {"uri": uri_of(file or Path(report.archive))}}
    if file is not None and line:
        physical["region"] = {"startLine": int(line)}
    location: dict[str, object] = {"physicalLocation": physical}
    if file is None and member != report.archive:
        name = f"{member}:{line}" if line else member
        location["logicalLocations"] = [{"name": name, "fullyQualifiedName": f"{report.archive}!{name}"}]
    return location


def uri_of(path: Path) -> str:
    """Return a path as a URI: relative to the current folder if it is below it."""
    full = Path(os.path.normpath(path.absolute()))
    if full.is_relative_to(Path.cwd()):
        return quote(os.fsencode(full.relative_to(Path.cwd()).as_posix())) or "."
    return f"file://{quote(os.fsencode(full.as_posix()))}"


FORMS = {"report": check_page, "junit": junit, "sarif": sarif}  # by the option that asks for it
