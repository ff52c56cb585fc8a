"""Plain text that fits a terminal: columns, trees and words, for pages that must be there at once.

rich takes longer to import than inspecting an archive takes; what needs no bars and no wrapped tables is set here.
"""

import os
import shutil
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import click

from marpack.errors import printable

_NARROW, _WIDE = 60, 160
_FULL_WIDTH = ("W", "F")


def page_width() -> int:
    """Return a page's width in cells, within reason: that of COLUMNS or the terminal, or 80."""
    return max(_NARROW, min(_WIDE, shutil.get_terminal_size().columns))


def show_page(lines: Iterable[str], *, err: bool = False) -> None:
    """Print a page on stdout, or stderr, its colours only where they are wanted."""
    text = "".join(f"{line}\n" for line in lines)
    click.echo(text, nl=False, err=err, color=False if os.environ.get("NO_COLOR") else None)


def fact(label: str, text: str) -> str:
    """Return one line of a short page: what it is, and the thing itself."""
    return click.style(f"{label:8}", dim=True) + text


def clean(text: str) -> str:
    """Return text of unknown origin on one line, with nothing in it that a terminal would obey."""
    return printable(text)


def cells(text: str) -> int:
    """Return how many cells a text without colours takes."""
    if text.isascii():
        return len(text)
    return sum(
        (unicodedata.east_asian_width(letter) in _FULL_WIDTH) + (not unicodedata.combining(letter)) for letter in text
    )


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Pad a text to `width` cells, or cut it there."""
    if cells(text) > width:
        while cells(text) > width - 1:
            text = text[:-1]
        text += "…"
    space = " " * (width - cells(text))
    return space + text if right else text + space


def rows(table: Sequence[Sequence[str]], *, width: int, right: frozenset[int] = frozenset()) -> list[str]:
    """Return the lines of a table whose first column gives way when the others, some aligned right, need the space."""
    if not table:
        return []
    widths = [max(cells(row[number]) for row in table) for number in range(len(table[0]))]
    widths[0] = max(8, min(widths[0], width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    fitted = ((fit(cell, widths[at], right=at in right) for at, cell in enumerate(row)) for row in table)
    return ["  ".join(row).rstrip() for row in fitted]


def paragraph(label: str, text: str, *, width: int, column: int = 9) -> Iterator[str]:
    """Yield a labelled text, wrapped under itself."""
    shown = clean(text)
    room = max(8, (width - column) * len(shown) // max(1, cells(shown)))  # wide letters take two cells each
    lines = textwrap.wrap(shown, room, break_on_hyphens=False) or [""]
    yield click.style(f"  {label}".ljust(column), dim=True) + lines[0]
    yield from (" " * column + line for line in lines[1:])


def heading(title: str, rest: str = "") -> str:
    """Return a section's first line."""
    return click.style(title, bold=True) + (f"  {rest}" if rest else "")
