"""What `marpack doctor` tells: a line for each thing that commands need or may use."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

import click
from msgspec import Struct

from marpack.render.layout import clean


class Health(StrEnum):
    """How one thing is."""

    OK = "ok"
    NOTE = "note"  # something is not there that not everybody needs
    BROKEN = "broken"  # commands fail


class HealthLine(Struct, frozen=True):
    """One thing, and how it is."""

    name: str
    text: str
    health: Health = Health.OK
    hint: str = ""  # what to do


class DoctorReport(Struct, frozen=True, kw_only=True):
    """The result of `marpack doctor --json`."""

    healthy: bool  # nothing is broken
    lines: tuple[HealthLine, ...]
    cache: str  # the folder
    sizes: Mapping[str, int]  # bytes of what it holds, by kind
    freed: int | None = None  # bytes; None: the cache was not to be cleared


_MARKS = {Health.OK: click.style("✓", "green"), Health.NOTE: click.style("·", "yellow")}


def doctor_lines(report: DoctorReport) -> Iterator[str]:
    """Yield the lines of a terminal."""
    width = max(len(line.name) for line in report.lines)
    for line in report.lines:
        yield f"{_MARKS.get(line.health, click.style('✗', 'red'))} {line.name.ljust(width)}  {clean(line.text)}"
        if line.hint:
            yield " " * (width + 4) + click.style(clean(line.hint), dim=True)
