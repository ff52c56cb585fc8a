"""The result of `marpack doctor`: a line for each part of the installation."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import click

from marpack.errors import printable
from marpack.render.console import page_width


class Health(StrEnum):
    """State of a part of the installation."""

    OK = "ok"
    NOTE = "note"  # an optional part is missing
    BROKEN = "broken"  # commands fail


@dataclass(frozen=True)  # a Struct would need msgspec, which may be missing
class HealthLine:
    """A part of the installation, and its state."""

    name: str
    text: str
    health: Health = Health.OK
    hint: str = ""  # what to do


@dataclass(frozen=True, kw_only=True)
class DoctorReport:
    """The result of `marpack doctor --json`."""

    healthy: bool  # nothing is broken
    lines: tuple[HealthLine, ...]
    cache: str  # the folder
    sizes: Mapping[str, int]  # bytes by kind of content
    freed: int | None = None  # bytes; None: the cache was not to be cleared


_SIGNS = {Health.OK: ("✓", "green"), Health.NOTE: ("·", "yellow"), Health.BROKEN: ("✗", "red")}


def doctor_lines(report: DoctorReport) -> Iterator[str]:
    """Yield the lines of a terminal."""
    column = max(len(line.name) for line in report.lines) + 4
    for line in report.lines:
        first, *rest = _wrapped(line.text, page_width() - column)
        yield f"{click.style(*_SIGNS[line.health])} {line.name.ljust(column - 3)} {first}"
        yield from (" " * column + text for text in rest)
        yield from (" " * column + click.style(text, dim=True) for text in _wrapped(line.hint, page_width() - column))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width, break_on_hyphens=False)
