"""The results of `marpack build` and `marpack init`, and their pages."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from rich.filesize import decimal

from marpack.archive.index import Vendored
from marpack.errors import join_names, pluralize
from marpack.findings import Finding, Severity
from marpack.project.plan import Format
from marpack.render.console import STDERR, duration, show_findings
from marpack.render.pages import Cell, Fact, Page, Row, Table, number

if TYPE_CHECKING:
    from marpack.project.scaffold.folder_scan import FolderScan
    from marpack.project.scaffold.proposal import Proposal

_SHOWN = 12  # names on one line


class BuildReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of `marpack build --json`."""

    path: str
    format: Format
    size: int  # bytes on disk
    content_digest: str  # "sha256:…"
    members: int
    seconds: float
    modules: tuple[str, ...] = ()  # members packed only because the handler or model file imports them
    findings: tuple[Finding, ...] = ()


class MemberPlan(Struct, frozen=True):
    """A file that a build would pack."""

    name: str
    size: int  # bytes


class BuildPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of `marpack build --dry-run --json`."""

    path: str
    format: Format
    size: int  # bytes of the members
    members: tuple[MemberPlan, ...]  # without MANIFEST.json and marpack.json, which the writer makes
    modules: tuple[str, ...] = ()  # as in BuildReport
    findings: tuple[Finding, ...] = ()


def plan_page(plan: BuildPlan) -> Page:
    """Return the page of `marpack build --dry-run`."""
    added = " The archive also gets MAR-INF/MANIFEST.json and MAR-INF/marpack.json."
    return Page(
        title=plan.path,
        verdict=Cell("would build", "good"),
        facts=(Fact("size", f"{decimal(plan.size)} in {pluralize(len(plan.members), 'member')}"),),
        tables=(Table.of(plan.members, lambda each: Row.of(each.name, number(decimal(each.size))), most=1 << 16),),
        closing=f"Nothing was written.{added if plan.format is not Format.SAGEMAKER else ''}",
    )


def build_page(report: BuildReport, vendored: Vendored | None = None) -> Page:
    """Return the page of `marpack build`."""
    facts = [
        Fact("size", f"{decimal(report.size)} in {pluralize(report.members, 'member')}"),
        Fact("digest", report.content_digest),
        Fact("time", duration(1000 * report.seconds)),
    ]
    if vendored:
        facts.append(Fact("wheels", vendored.summary))
    if report.modules:
        facts.append(Fact("also", ", ".join(report.modules), "(imported, so packed)"))
    return Page(title=report.path, verdict=Cell("built", "good"), facts=tuple(facts), findings=report.findings)


def show_warnings(findings: Iterable[Finding]) -> None:
    """Print a build's findings on stderr, notes without their hints unless --verbose is given."""
    severities = () if STDERR.verbose else (Severity.NOTE,)
    show_findings(replace(one, hint=None) if one.severity in severities else one for one in findings)


class InitReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack init --json`."""

    folder: str
    name: str  # name of the model
    template: str | None  # None for a project made from an archive
    written: tuple[str, ...]
    replaced: tuple[str, ...]
    skipped: tuple[str, ...]
    generated: tuple[str, ...] = ()  # generated samples, which prove nothing
    findings: tuple[Finding, ...]


def init_page(report: InitReport) -> Page:
    """Return the page of `marpack init`: the files, and the commands that come next."""
    facts = [
        Fact(label, join_names(names, _SHOWN), note)
        for label, names, note in (
            ("wrote", report.written, ""),
            ("replaced", report.replaced, ""),
            ("skipped", report.skipped, "(they exist; --force replaces them)"),
        )
        if names
    ]
    folder = Path(report.folder)
    enter = "" if folder.absolute() == Path.cwd() else f"cd {folder} && "
    is_unproved = report.generated or any(finding.code == "no-samples" for finding in report.findings)
    record = "marpack run --input FILE --record && " if is_unproved else ""
    generated = join_names(report.generated, _SHOWN)
    note = f"(FILE: a real input; {generated} is generated and proves nothing)" if generated else ""
    facts.append(Fact("next", f"{enter}marpack build && {record}marpack check", note, kind="name"))
    made = f"from template {report.template}" if report.template else "from an archive"
    title, verdict = f"{report.name}, {made}", Cell("project", "good")
    return Page(title=title, verdict=verdict, facts=tuple(facts), findings=report.findings)


def survey_page(found: "FolderScan", proposal: "Proposal") -> Page:
    """Return the parts of a project that a folder contains."""

    def list_parts() -> Iterator[tuple[str, str]]:
        if model := proposal.pretrained:
            yield f"{model.architecture}, a Hugging Face model for {model.head.task}", ""
        yield from ((weights.name, f"{weights.kind}, {decimal(weights.size)}") for weights in found.weights)
        for weights in found.foreign:
            if weights.name == proposal.weights:
                yield weights.name, f"the handler's model, {decimal(weights.size)}"
        if proposal.model_file:
            yield proposal.model_file, "the model's class"
        yield from ((name, "handler") for name in found.handlers)
        for labels in found.labels:
            if labels.named or labels.name == proposal.labels:
                yield labels.name, pluralize(labels.count, "label")
        yield from ((name, "model config") for name in found.configs)
        if found.requirements:
            yield found.requirements, "requirements"
        for file in () if proposal.toy else proposal.files:
            yield file if isinstance(file, str) else file["from"], "for the handler"

    return Page(facts=tuple(Fact("found", name, text) for name, text in dict(list_parts()).items()))
