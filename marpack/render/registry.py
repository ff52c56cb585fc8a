"""What `marpack push` and `marpack pull` show."""

from collections.abc import Iterator

import click
from rich.filesize import decimal

from marpack.archive.oci import Attachment, PullReport, PushReport
from marpack.render.layout import clean, fact


def push_lines(report: PushReport) -> Iterator[str]:
    """Yield where an archive went, by which digests, and with what beside it."""
    yield fact("pushed", click.style(clean(report.reference), bold=True))
    yield fact("archive", report.archive)
    had = "the registry had all of it" if not report.sent else f"{decimal(report.sent)} sent"
    yield fact("size", f"{decimal(report.size)}, {had}")
    yield from _attached(report.attached)


def pull_lines(report: PullReport) -> Iterator[str]:
    """Yield which file came, of which digests, and with what beside it."""
    yield fact("pulled", click.style(clean(report.file), bold=True))
    yield fact("from", clean(report.reference))
    yield fact("archive", report.archive)
    yield fact("size", decimal(report.size))
    yield from _attached(report.attached)
    if report.left:
        yield fact("left", ", ".join(sorted({clean(kind) for kind in report.left})))


def _attached(attachments: tuple[Attachment, ...]) -> Iterator[str]:
    for each in attachments:
        yield fact("beside", f"{clean(each.file)} {click.style(f'({each.kind.name.lower()})', dim=True)}")
