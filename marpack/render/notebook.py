"""Results as HTML for a cell of a notebook: the tables of the commands and the pictures of the report.

Each is one element of the class `marpack` with a style sheet of its own, without scripts and ids, and bounded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, singledispatch
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from rich.filesize import decimal

from marpack.archive.extraction import Unpacked
from marpack.archive.oci import Attachment, PullReport, PushReport
from marpack.findings import Finding
from marpack.gate.verdicts import GateReport
from marpack.inspection.diff import Diff, FieldDifference
from marpack.inspection.facts import Inspection, WeightsFacts
from marpack.inspection.pickles import PickleVerdict
from marpack.project.scaffold.template import templates
from marpack.render.build import BuildReport, InitReport
from marpack.render.check import counted, hinted_once, said, verdict_of
from marpack.render.diff import Describe, differing, shaped, sign_of, tensors_of
from marpack.render.doctor import DoctorReport, Health
from marpack.render.inspection import SAFE_COVERS, config_lines, facts_of, read_of, risk_of, summary_of
from marpack.render.run import answer_in_short, duration
from marpack.render.run_json import RunReport
from marpack.runner.results import AnsweredInput, Result, Summary
from marpack.trust import Signed, Verification

if TYPE_CHECKING:
    from jinja2 import Environment

_SHOWN = 40  # rows of anything
_TROUBLES = 5  # of one answer, and lines of the way to each
_ANSWER = 80  # characters of one
_LOGS = 4_000  # characters of what a handler printed
_SIGNS = {"+": "good", "-": "bad", "~": "warn"}
_RISKS = {PickleVerdict.SAFE: "good", PickleVerdict.NEEDS_TRUST: "warn", PickleVerdict.DANGEROUS: "bad"}


class Cell(Struct, frozen=True):
    """One text of a table."""

    text: str
    css: str = ""  # classes: n, mono, dim, good, warn, bad


Row = tuple[Cell, ...]
Facts = tuple[tuple[str, str], ...]  # label, text


class Table(Struct, frozen=True, kw_only=True):
    """Some rows, the first of those that there are."""

    title: str = ""
    note: str = ""  # beside the title
    facts: Facts = ()
    head: tuple[Cell, ...] = ()
    rows: tuple[Row, ...] = ()
    more: int = 0  # rows that are not shown


class NotebookPage(Struct, frozen=True, kw_only=True):
    """What a cell shows of one result."""

    title: str
    verdict: Cell | None = None
    facts: Facts = ()
    report: GateReport | None = None  # whose checks are shown
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()
    more_findings: int = 0


def shown(result: object) -> str:
    """Return the HTML of any result but a single answer."""
    return _framed("result.html.j2", page=_bounded(page_of(result)), said=said, hinted_once=hinted_once, most=_SHOWN)


def answer(answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> str:
    """Return the HTML of one input with its answer.

    Args:
        answered: What was asked and answered.
        labels: The model's: {class index: label}.
        handler: As the manifest names it.
    """
    from marpack.render.report.article import article  # noqa: PLC0415 - who shows no answer does without jinja2

    result = answered.result
    short = replace(result, logs=result.logs[:_LOGS]) if len(result.logs) > _LOGS else result
    html = article(AnsweredInput(answered.input, short), labels, handler, rows=_TROUBLES)
    return _framed("answer.html.j2", article=html)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - as above

    from marpack.render.report.article import article_css, cut, visible  # noqa: PLC0415 - as above

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


def _framed(template: str, **values: object) -> str:
    return _environment().get_template(template).render(values)


def _bounded(page: NotebookPage) -> NotebookPage:
    more = max(0, len(page.findings) - _SHOWN)
    return replace(page, findings=page.findings[:_SHOWN], more_findings=more)


def _table(rows: Iterable[Row], total: int, **parts: str | Facts | tuple[Cell, ...]) -> Table:
    return Table(rows=tuple(islice(rows, _SHOWN)), more=max(0, total - _SHOWN), **parts)  # type: ignore[arg-type] # as named


@singledispatch
def page_of(result: object) -> NotebookPage:
    """Return what a cell shows of a result."""
    raise NotImplementedError(type(result))


@page_of.register
def _(report: BuildReport) -> NotebookPage:
    size = f"{decimal(report.size)} in {report.members} members"
    facts = (("size", size), ("content digest", report.content_digest), ("time", duration(1000 * report.seconds)))
    also = (("also", f"{', '.join(report.modules)} (imported, so packed)"),) if report.modules else ()
    return NotebookPage(title=report.path, verdict=Cell("built", "good"), facts=facts + also, findings=report.findings)


@page_of.register
def _(report: InitReport) -> NotebookPage:
    groups = (
        ("wrote", "good", report.written),
        ("replaced", "warn", report.replaced),
        ("skipped", "dim", report.skipped),
    )
    rows = ((Cell(label, css), Cell(name, "mono")) for label, css, names in groups for name in names)
    total = sum(len(names) for _, _, names in groups)
    made = (("model", report.name), ("template", report.template or "none: made from an archive"))
    return NotebookPage(
        title=report.folder, facts=made, tables=(_table(rows, total),) if total else (), findings=report.findings
    )


@page_of.register
def _(unpacked: Unpacked) -> NotebookPage:
    rows = ((Cell(name, "mono"),) for name in unpacked.files)
    files = _table(rows, len(unpacked.files), title="files", note=f"{len(unpacked.files):,}, {decimal(unpacked.bytes)}")
    return NotebookPage(
        title=unpacked.folder, facts=(("source", unpacked.source),), tables=(files,), findings=unpacked.findings
    )


@page_of.register
def _(signed: Signed) -> NotebookPage:
    made = (("archive", signed.archive), ("sha256", signed.sha256), ("signer", str(signed.signer)))
    return NotebookPage(title=signed.signature, verdict=Cell("signed", "good"), facts=made, findings=signed.findings)


@page_of.register
def _(verification: Verification) -> NotebookPage:
    facts: Facts = (("sha256", verification.sha256), ("signer", str(verification.signer or "none was verified")))
    if verification.check is not None:
        checker = str(verification.check.signer or "nobody signed it: a claim")
        facts = (*facts, ("checked by", checker), ("for", verification.check.target))
    claimed = verification.signer is None and (verification.check is None or verification.check.signer is None)
    verdict = Cell("claimed", "warn") if claimed else Cell("verified", "good")
    return NotebookPage(title=verification.archive, verdict=verdict, facts=facts)


@page_of.register
def _(report: PushReport) -> NotebookPage:
    made = (("source", report.source), ("archive", report.archive), ("size", decimal(report.size)))
    return NotebookPage(title=report.reference, facts=made, tables=_beside(report.attached))


@page_of.register
def _(report: PullReport) -> NotebookPage:
    made = (("from", report.reference), ("archive", report.archive), ("size", decimal(report.size)))
    return NotebookPage(title=report.file, facts=made, tables=_beside(report.attached))


@page_of.register
def _(report: DoctorReport) -> NotebookPage:
    css = {Health.OK: "good", Health.NOTE: "warn", Health.BROKEN: "bad"}
    rows = ((Cell(each.name, css[each.health]), Cell(each.text), Cell(each.hint, "dim")) for each in report.lines)
    verdict = Cell("ready", "good") if report.healthy else Cell("something is broken", "bad")
    return NotebookPage(title="doctor", verdict=verdict, tables=(_table(rows, len(report.lines)),))


def _beside(attached: Sequence[Attachment]) -> tuple[Table, ...]:
    rows = ((Cell(each.kind.name.lower(), "dim"), Cell(each.file, "mono")) for each in attached)
    return (_table(rows, len(attached), title="beside"),) if attached else ()


@page_of.register
def _(facts: Inspection) -> NotebookPage:
    model = facts.manifest["model"]
    lines = config_lines(facts.config.text) if facts.config else []
    config = (_table(((Cell(line, "mono code"),) for line in lines), len(lines), title="config"),) if lines else ()
    tables = (*config, *map(_weights, facts.weights[:_SHOWN]), _members(facts), _pickles(facts), *_programs(facts))
    summary = (("source", facts.source), *summary_of(facts))
    title = f"{model['modelName']} {model.get('modelVersion') or ''}".strip()
    return NotebookPage(title=title, facts=summary, tables=tables, findings=facts.findings)


def _weights(weights: WeightsFacts) -> Table:
    rows = (
        (Cell(tensor.name, "mono"), Cell(tensor.dtype), Cell(str(list(tensor.shape))), Cell(decimal(tensor.bytes), "n"))
        for tensor in weights.largest
    )
    known = tuple(islice(facts_of(weights), _SHOWN))
    head = (Cell("largest tensors"), Cell("dtype"), Cell("shape"), Cell("size", "n")) if weights.largest else ()
    return _table(rows, len(weights.largest), title=weights.member, note=str(weights.kind), facts=known, head=head)


def _members(facts: Inspection) -> Table:
    rows = (
        (
            Cell(each.name, "mono"),
            Cell(decimal(each.size), "n"),
            Cell(each.method),
            Cell((each.sha256 or "")[:12], "mono dim"),
        )
        for each in facts.members
    )
    count, size = len(facts.members), sum(each.size for each in facts.members)
    head = (Cell("name"), Cell("size", "n"), Cell("method"), Cell("sha256"))
    return _table(rows, count, title="members", note=f"{count:,}, {decimal(size)}", head=head)


def _pickles(facts: Inspection) -> Table:
    scan = facts.pickles
    risky = [pickle for pickle in scan.pickles if pickle.verdict is not PickleVerdict.SAFE]
    rows = ((Cell(each.where, "mono"), Cell(each.verdict, _RISKS[each.verdict]), Cell(risk_of(each))) for each in risky)
    return _table(rows, len(risky), title="pickles", note=f"{read_of(scan, scan.verdict)}. {SAFE_COVERS}")


def _programs(facts: Inspection) -> Iterator[Table]:
    if facts.programs:
        rows = ((Cell(each.where, "mono"), Cell(each.kind)) for each in facts.programs)
        count = len(facts.programs)
        yield _table(rows, count, title="programs", note=f"{count:,}", head=(Cell("file"), Cell("kind")))


@page_of.register
def _(found: Diff) -> NotebookPage:
    parts = [_differences(title, "", parts, describe) for title, parts, describe in differing(found)]
    for tensors in found.tensors[:_SHOWN]:
        title, counts = tensors_of(tensors)
        note = f"{counts}; broken: {tensors.problem}" if tensors.problem else counts
        parts.append(_differences(title, note, tensors.differences, shaped))
    return NotebookPage(
        title="the same" if found.same else "differences",
        facts=(("-", found.before), ("+", found.after)),
        tables=tuple(parts),
    )


def _differences(title: str, note: str, parts: Sequence[FieldDifference], describe: Describe) -> Table:
    return _table(_differing_rows(parts, describe), len(parts), title=title, note=note)


def _differing_rows(parts: Sequence[FieldDifference], describe: Describe) -> Iterator[Row]:
    for part in parts:
        sign = sign_of(part)
        yield Cell(sign, _SIGNS[sign]), Cell(part.name, "mono"), Cell(describe(part))


@page_of.register
def _(report: GateReport) -> NotebookPage:
    named = ("model", "content_digest", "project", "target", "loaded", "device")
    return NotebookPage(
        title=report.archive,
        verdict=Cell(f"{verdict_of(report)}: {counted(report)}", f"verdict {report.verdict}"),
        facts=tuple((name.replace("_", " "), value) for name in named if (value := getattr(report, name))),
        report=replace(report, checks=tuple(each for each in report.checks if not each.left_out)),
    )


@page_of.register
def _(report: RunReport) -> NotebookPage:
    rows = (_answered(result) for result in report.results)
    head = (Cell("input"), Cell("status", "n"), Cell("time", "n"), Cell("answer"))
    tables = (_table(rows, len(report.results), head=head), _stages(report.summary))
    failure = (("failure", report.failure.error),) if report.failure else ()
    loaded = report.loaded
    facts = (("handler", loaded.handler), ("device", loaded.device or "unknown"), ("target", report.target))
    summary = report.summary
    short = Cell(f"{summary.short:,} fell short", "bad") if summary.short else Cell("all answered", "good")
    return NotebookPage(
        title=report.archive,
        verdict=short,
        facts=(*facts, *_sums(summary), *failure),
        tables=tables,
        findings=report.findings,
    )


def _answered(result: Result) -> Row:
    elapsed = result.stages.get("handle")
    return (
        Cell(result.input, "mono"),
        Cell(str(result.status or "none"), "n good" if result.ok else "n bad"),
        Cell("" if elapsed is None else duration(elapsed), "n dim"),
        Cell(answer_in_short(result, _ANSWER)),
    )


def _sums(summary: Summary) -> Iterator[tuple[str, str]]:
    yield "inputs", f"{summary.inputs:,} in {duration(1000 * summary.seconds)}, {summary.throughput:,.0f}/s"
    if summary.peak_memory:
        yield "memory", f"{decimal(summary.peak_memory)} at most"
    if summary.restarts:
        yield "restarts", f"{summary.restarts:,}"


def _stages(summary: Summary) -> Table:
    rows = (
        (Cell(stage), *(Cell(duration(value), "n") for value in (each.p50, each.p90, each.p99)))
        for stage, each in summary.stages.items()
    )
    head = (Cell("stage"), Cell("p50", "n"), Cell("p90", "n"), Cell("p99", "n"))
    return _table(rows, len(summary.stages), head=head)
