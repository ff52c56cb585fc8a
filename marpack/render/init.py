"""What `marpack init` shows: what it found, what it wrote, what it left alone, and what to do next."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from rich.filesize import decimal
from rich.markup import escape

from marpack.findings import Finding
from marpack.project.scaffold.placing import WrittenFiles
from marpack.project.scaffold.proposal import Proposal
from marpack.project.scaffold.survey import Survey
from marpack.render.console import page, show_findings, talk

_SHOWN = 12  # names on one line


class InitReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack init --json`."""

    folder: str
    name: str  # the model's
    template: str | None  # None: made from an archive
    written: tuple[str, ...]
    replaced: tuple[str, ...]
    skipped: tuple[str, ...]
    findings: tuple[Finding, ...]


def show_survey(found: Survey, proposal: Proposal) -> None:
    """Print the parts of a project that a folder holds, on stderr."""
    console = talk()
    for what, text in _parts(found, proposal.labels):
        console.print(f"[dim]found[/]   {escape(what)} [dim]{escape(text)}[/]")


def _parts(found: Survey, chosen: str | None) -> Iterator[tuple[str, str]]:
    for weights in found.weights:
        yield weights.name, f"{weights.kind}, {decimal(weights.size)}"
    for handler in found.handlers:
        yield handler, "handler"
    for labels in found.labels:
        if labels.named or labels.name == chosen:
            yield labels.name, f"{labels.count} labels"
    for config in found.configs:
        yield config, "model config"
    if found.requirements:
        yield found.requirements, "requirements"


def show_init(report: InitReport) -> None:
    """Print what was written and what was not, and the commands that come next."""
    console = page()
    for label, names in (("wrote", report.written), ("replaced", report.replaced)):
        if names:
            console.print(f"[dim]{label:8}[/]{_names(names)}", soft_wrap=True)
    if report.skipped:
        console.print(
            f"[yellow]{'skipped':8}[/]{_names(report.skipped)} [dim](there already; --force replaces)[/]",
            soft_wrap=True,
        )
    show_findings(report.findings, talk())
    folder = Path(report.folder)
    way = "" if folder.resolve() == Path.cwd() else f"cd {escape(str(folder))} && "
    console.print(f"[dim]next[/]    {way}marpack build && marpack check", soft_wrap=True)


def _names(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return escape(", ".join(every[:_SHOWN])) + more


def report_of(
    folder: Path, name: str, placed: WrittenFiles, *, template: str | None, findings: tuple[Finding, ...]
) -> InitReport:
    """Return the report of what was placed."""
    return InitReport(
        folder=str(folder),
        name=name,
        template=template,
        written=placed.written,
        replaced=placed.replaced,
        skipped=placed.skipped,
        findings=findings,
    )
