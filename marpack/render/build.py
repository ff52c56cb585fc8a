"""What `marpack build` shows: its result, its findings and, for large weights, a progress bar."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from rich.filesize import decimal
from rich.markup import escape

from marpack.findings import Finding, Severity
from marpack.packing.plan import Built, Format
from marpack.render.console import page, show_findings, talk

_LARGE = 64 << 20  # bytes: less is written before a bar could be read


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


def show_built(built: Built, modules: Iterable[str]) -> None:
    """Print path, size, digest and time on stdout, and what was packed by itself."""
    console = page()
    console.print(f"[dim]built[/]   [bold]{escape(str(built.path))}[/]", soft_wrap=True)
    console.print(f"[dim]size[/]    {decimal(built.size)} in {built.members} members")
    console.print(f"[dim]digest[/]  {built.digest}", soft_wrap=True)
    console.print(f"[dim]time[/]    {_duration(built.seconds)}")
    names = ", ".join(modules)
    if names:
        console.print(f"[dim]also[/]    {escape(names)} [dim](imported, so packed)[/]", soft_wrap=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def show_warnings(findings: Iterable[Finding]) -> None:
    """Print a build's warnings on stderr, and how many notes there are beside them."""
    console, noticed = talk(), list(findings)
    show_findings([finding for finding in noticed if finding.severity is not Severity.NOTE], console)
    notes = sum(finding.severity is Severity.NOTE for finding in noticed)
    if notes:
        console.print(f"  [dim]{notes} note{'s' if notes > 1 else ''}: see marpack build --json[/]")


@contextmanager
def packing_bar(total: int) -> Iterator[Callable[[int], None] | None]:
    """Show bytes, speed and time left on stderr while an archive is written; only on a terminal, for large ones.

    Args:
        total: Bytes to come.
    """
    if total < _LARGE or not sys.stderr.isatty():
        yield None
        return
    # Imported where it is needed: it costs more than building a small archive.
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True))
    with Progress("packing", *columns, console=talk(), transient=True) as progress:
        task = progress.add_task("packing", total=total)
        yield lambda count: progress.advance(task, count)
