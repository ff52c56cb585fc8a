"""What `marpack build` shows: its result and its findings."""

from collections.abc import Iterable, Iterator

import click
from msgspec import Struct
from msgspec.structs import replace
from rich.filesize import decimal

from marpack.findings import Finding, Severity
from marpack.project.plan import Built, Format
from marpack.render.layout import clean, fact


class BuildReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of `marpack build --json`; of a build that failed only `error` and `findings`."""

    path: str | None = None
    format: Format | None = None
    size: int | None = None  # bytes on disk
    digest: str | None = None  # "sha256:…"
    members: int | None = None
    seconds: float | None = None
    modules: tuple[str, ...] = ()  # members packed only because the handler or model file imports them
    findings: tuple[Finding, ...] = ()
    error: str | None = None


def built_lines(built: Built, modules: Iterable[str]) -> Iterator[str]:
    """Yield path, size, digest and time, and what was packed by itself."""
    yield fact("built", click.style(clean(str(built.path)), bold=True))
    yield fact("size", f"{decimal(built.size)} in {built.members} members")
    yield fact("digest", built.digest)
    yield fact("time", _duration(built.seconds))
    names = ", ".join(modules)
    if names:
        yield fact("also", f"{clean(names)} {click.style('(imported, so packed)', dim=True)}")


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def show_warnings(findings: Iterable[Finding]) -> None:
    """Print a build's warnings on stderr, and its notes in a line each."""
    noticed = [replace(one, hint=None) if one.severity is Severity.NOTE else one for one in findings]
    if not noticed:
        return
    # Imported where it is needed: it takes longer than building a small archive.
    from marpack.render.console import show_findings, talk  # noqa: PLC0415

    show_findings(noticed, talk())
