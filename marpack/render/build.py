"""What `marpack init` shows: what it found, wrote and left alone; and `marpack build`: its result and its findings."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace
from rich.filesize import decimal

from marpack.archive.index import Vendored
from marpack.findings import Finding, Severity
from marpack.project.plan import Built, Format
from marpack.render.layout import clean, fact, show_page

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


def built_lines(built: Built, modules: Iterable[str], vendored: Vendored | None = None) -> Iterator[str]:
    """Yield path, size, digest and time, and what was packed by itself."""
    yield fact("built", click.style(clean(str(built.path)), bold=True))
    yield fact("size", f"{decimal(built.size)} in {built.members} members")
    yield fact("digest", built.content_digest)
    yield fact("time", _duration(built.seconds))
    if vendored:
        yield fact("wheels", vendored.summary)
    names = ", ".join(modules)
    if names:
        yield fact("also", f"{clean(names)} {click.style('(imported, so packed)', dim=True)}")


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def show_warnings(findings: Iterable[Finding]) -> None:
    """Print a build's warnings on stderr, and its notes in a line each."""
    noticed = [replace(one, hint=None) if one.severity is Severity.NOTE else one for one in findings]
    if noticed:
        _show_findings(noticed)


def _show_findings(findings: Iterable[Finding]) -> None:
    # Imported where it is needed: it takes longer than building a small archive.
    from marpack.render.console import show_findings, talk  # noqa: PLC0415

    show_findings(findings, talk())


class InitReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack init --json`."""

    folder: str
    name: str  # the model's
    template: str | None  # None: made from an archive
    written: tuple[str, ...]
    replaced: tuple[str, ...]
    skipped: tuple[str, ...]
    generated: tuple[str, ...] = ()  # samples that prove nothing
    findings: tuple[Finding, ...]


def show_survey(found: "FolderScan", proposal: "Proposal") -> None:
    """Print the parts of a project that a folder holds, on stderr."""
    parts = _parts(found, proposal).items()
    show_page((fact("found", f"{clean(what)} {click.style(text, dim=True)}") for what, text in parts), err=True)


def _parts(found: "FolderScan", proposal: "Proposal") -> dict[str, str]:
    """Return what each part is, by its name."""
    parts = {weights.name: f"{weights.kind}, {decimal(weights.size)}" for weights in found.weights}
    for weights in found.foreign:
        if weights.name == proposal.weights:
            parts[weights.name] = f"the handler's model, {decimal(weights.size)}"
    if proposal.model_file:
        parts[proposal.model_file] = "the model's class"
    parts |= dict.fromkeys(found.handlers, "handler")
    labels = (each for each in found.labels if each.named or each.name == proposal.labels)
    parts |= {each.name: f"{each.count} labels" for each in labels}
    parts |= dict.fromkeys(found.configs, "model config")
    if found.requirements:
        parts[found.requirements] = "requirements"
    files = () if proposal.toy else proposal.files
    return parts | {file if isinstance(file, str) else file["from"]: "for the handler" for file in files}


def show_init(report: InitReport) -> None:
    """Print what was written and what was not, and the commands that come next."""
    show_page(_placed(report))
    if report.findings:
        _show_findings(report.findings)
    folder = Path(report.folder)
    way = "" if folder.resolve() == Path.cwd() else f"cd {clean(str(folder))} && "
    unproved = report.generated or any(finding.code == "no-samples" for finding in report.findings)
    proof = "marpack run --input FILE --record && " if unproved else ""
    why = (
        f" (FILE: a real input; {_names(report.generated)} is generated and proves nothing)" if report.generated else ""
    )
    show_page([fact("next", f"{way}marpack build && {proof}marpack check{click.style(why, dim=True)}")])


def _placed(report: InitReport) -> Iterator[str]:
    for label, names in (("wrote", report.written), ("replaced", report.replaced)):
        if names:
            yield fact(label, _names(names))
    if report.skipped:
        why = click.style("(there already; --force replaces)", dim=True)
        yield f"{click.style('skipped ', fg='yellow')}{_names(report.skipped)} {why}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return clean(", ".join(names[:_SHOWN])) + more
