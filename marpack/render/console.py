"""The console: streams, text in cells, findings, results as JSON and files, and progress.

rich and msgspec are imported where they are needed: they take longer to import than inspecting an archive takes, and
`doctor` works without them.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import threading
import time
import unicodedata
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marpack.errors import UsageError, convert_os_errors, describe_os_error, printable
from marpack.version import docs_link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console

    from marpack.errors import MarpackError
    from marpack.findings import Finding
    from marpack.render.pages import Fact, Page, Table, Tone

_NARROW, _WIDE = 60, 160
_FULL_WIDTH = ("W", "F")
_COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}
_TONES = {"good": "green", "warn": "yellow", "bad": "red"}
_COLUMN = 9  # cells of a fact's label, at least
_AFTER = 1.0  # seconds: a shorter run needs no progress bar
_EVERY = 0.1  # seconds between two drawings
_LINE_EVERY = 10.0  # seconds between two lines of a log
_LARGE = 64 << 20  # bytes: fewer are read or written before anyone could look at a bar


class _StderrSettings:
    """How much a command prints on stderr: --quiet leaves out progress, notes and hints, --verbose adds details."""

    quiet = False
    verbose = False


STDERR = _StderrSettings()


def shows_progress() -> bool:
    """Return whether progress is drawn: on a terminal, without --quiet."""
    return sys.stderr.isatty() and not STDERR.quiet


def talk() -> Console:
    """Return rich's console, for progress: stderr, so that stdout holds results only."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, emoji=False, soft_wrap=True, quiet=STDERR.quiet)


def show_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines on stdout, or stderr, in colors only on a terminal that wants them."""
    text = "".join(f"{line}\n" for line in lines)
    if not text:  # writing nothing would flush what could not be written before
        return
    # Not click.echo, which writes UTF-8 to a stream that cannot show it.
    stream = sys.stderr if err else sys.stdout
    stream.write(text if stream.isatty() and not os.environ.get("NO_COLOR") else click.unstyle(text))
    stream.flush()


def show_note(label: str, text: str = "") -> None:
    """Print a note on stderr, with a dim label before its text; nothing with --quiet."""
    if not STDERR.quiet:
        show_lines([f"{click.style(visible(label), dim=True)} {visible(text)}".rstrip()], err=True)


def close_stdout() -> None:
    """Let nothing more be written, so that Python's own last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_error(error: MarpackError) -> None:
    """Print an error on stderr."""
    show_lines(error_lines(error), err=True)


def error_lines(error: MarpackError) -> Iterator[str]:
    """Yield what, where and hint of one error, and its findings."""
    yield f"{click.style('error:', fg='red', bold=True)} {visible(error.what)}"
    if error.where:
        yield f"  {click.style('where:', dim=True)} {visible(error.where)}"
    yield from all_finding_lines(error.findings, hints=not STDERR.quiet)
    if error.hint and not STDERR.quiet:
        yield f"  {click.style('hint:', dim=True)}  {visible(error.hint)}"
    if (link := docs_link(f"errors/#{type(error).code}")) and not STDERR.quiet:
        yield f"  {click.style('docs:', dim=True)}  {link}"


def show_findings(findings: Iterable[Finding], *, err: bool = True) -> None:
    """Print findings on stderr, or stdout."""
    is_quiet = err and STDERR.quiet
    shown = [finding for finding in findings if not is_quiet or finding.severity != "note"]
    show_lines(all_finding_lines(shown, hints=not is_quiet), err=err)


def all_finding_lines(findings: Sequence[Finding], *, hints: bool = True) -> Iterator[str]:
    """Yield the lines of findings; of several in a row with the same hint, the last one shows it."""
    for finding, after in zip_longest(findings, findings[1:]):
        severity = click.style(finding.severity, fg=_COLORS[finding.severity])
        place = f"{visible(finding.where)}: " if finding.where else ""
        yield f"  {severity} {place}{visible(finding.message)} {click.style(f'({finding.code})', dim=True)}"
        if finding.hint and hints and (after is None or after.hint != finding.hint):
            yield f"    {click.style('hint:', dim=True)} {visible(finding.hint)}"  # unbroken, because it is copied


def page_width() -> int:
    """Return a page's width in cells, within reason: that of COLUMNS or the terminal, or 80."""
    return max(_NARROW, min(_WIDE, shutil.get_terminal_size().columns))


def visible(text: str) -> str:
    """Return text of several lines, with a mark in place of each control character."""
    return printable(text, keep="\n\t", stand_in="\N{REPLACEMENT CHARACTER}")


def cells(text: str) -> int:
    """Return how many cells a text without colors takes."""
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


def fit_end(name: str, width: int) -> str:
    """Pad a name to `width` cells, or cut its beginning: the end of a path tells more."""
    name = name if name.isprintable() else printable(name, stand_in="·")
    while cells(name) > width:
        name = f"…{name[len(name) - width + 1 :]}" if len(name) > width else f"…{name[2:]}"
    return name + " " * (width - cells(name))


def rows(table: Sequence[Sequence[str]], *, width: int, right: frozenset[int] = frozenset()) -> list[list[str]]:
    """Return the cells of a table in columns, some aligned right; the first and the last one give way if need be."""
    count = max(map(len, table), default=0)
    widths = [max((cells(row[at]) for row in table if at < len(row)), default=0) for at in range(count)]
    if count == 1:
        widths[0] = min(widths[0], width)
    elif count:
        room = width - sum(widths[1:-1]) - 2 * (count - 1)  # for the first and the last column
        widths[0] = min(widths[0], max(8, width // 2, room - widths[-1]))
        widths[-1] = min(widths[-1], max(8, room - widths[0]))
    return [[fit(cell, widths[at], right=at in right) for at, cell in enumerate(row)] for row in table]


def paragraph(label: str, text: str, *, width: int, column: int = _COLUMN) -> Iterator[str]:
    """Yield a labelled text, wrapped under itself; long words, which are for copying, are never broken."""
    shown = printable(text)
    room = max(8, (width - column) * len(shown) // max(1, cells(shown)))  # wide letters take two cells each
    lines = textwrap.wrap(shown, room, break_on_hyphens=False, break_long_words=False) or [""]
    yield click.style(f"  {label}".ljust(column), dim=True) + lines[0]
    yield from (" " * column + line for line in lines[1:])


def duration(milliseconds: float) -> str:
    """Return milliseconds in a unit and with as many digits as matter."""
    if milliseconds >= 10_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.{0 if milliseconds >= 100 else 1 if milliseconds >= 1 else 3}f} ms"


def show_page(page: Page, *, err: bool = False) -> None:
    """Print a page on stdout, or as a note on stderr; findings of a page with a verdict are on stderr, before it."""
    if err and STDERR.quiet:
        return
    if page.verdict is not None:
        show_findings(page.findings)
    show_lines(page_lines(page, page_width()), err=err)


def page_lines(page: Page, width: int) -> Iterator[str]:
    """Yield the lines of a page, in colors that `show_lines` removes where they are not wanted."""
    if page.verdict is not None:
        yield f"{style(page.verdict.text, page.verdict.tone)} {click.style(printable(page.title), bold=True)}"
    elif page.title:
        yield click.style(fit(printable(page.title), width).rstrip(), bold=True)
    yield from _fact_lines(page.facts, width)
    for table in page.tables:
        if table.title:
            note = f"  {style(printable(table.note.text), table.note.tone)}" if table.note.text else ""
            yield ""
            yield click.style(fit(printable(table.title), width - 24).rstrip(), bold=True) + note
        yield from _fact_lines(table.facts, width)
        yield from table_lines(table, width)
    if page.findings and page.verdict is None:
        yield ""
        yield click.style("findings", bold=True)
        yield from all_finding_lines(page.findings)
    if page.closing:
        yield ""
        yield page.closing


def style(text: str, tone: Tone, *, bold: bool = False) -> str:
    """Return text in the color of a tone."""
    return click.style(text, fg=_TONES.get(tone), dim=tone == "dim" or None, bold=bold or None) if tone else text


def _fact_lines(facts: Sequence[Fact], width: int) -> Iterator[str]:
    column = max((_COLUMN, *(len(each.label) + 3 for each in facts)))
    for each in facts:
        *lines, last = paragraph(each.label, each.text, width=1 << 20 if each.kind == "name" else width, column=column)
        yield from lines
        yield f"{last} {click.style(printable(each.note), dim=True)}" if each.note else last


def table_lines(table: Table, width: int) -> Iterator[str]:
    """Yield head and rows of a table in columns, and how many rows are not shown."""
    texts = [[printable(cell.text) for cell in row.cells] for row in table.rows]
    right = frozenset(at for row in table.rows for at, cell in enumerate(row.cells) if cell.kind == "number")
    heads = [[cell.text for cell in table.head]] if table.head else []
    fitted = rows([*heads, *texts], width=width - 2, right=right)
    if heads:
        yield click.style("  " + "  ".join(fitted.pop(0)).rstrip(), dim=True)
    for row, parts in zip(table.rows, fitted, strict=True):
        parts[-1] = parts[-1].rstrip()
        line = "  ".join(style(part, cell.tone) for part, cell in zip(parts, row.cells, strict=True))
        yield f"  {line}".rstrip()
        if row.below:
            yield from paragraph("", row.below, width=width)
    if table.more:
        yield f"  … and {table.more:,} more"


def show(result: object) -> None:
    """Write one result as indented JSON and a newline to stdout, and nothing else."""
    from marpack.json_text import to_json

    sys.stdout.buffer.write(to_json(result, indent=True) + b"\n")
    sys.stdout.flush()


def show_line(result: object, *, flush: bool = True) -> None:
    """Write one result as a line of JSON to stdout, at once or to be flushed with others."""
    from marpack.json_text import to_json

    sys.stdout.buffer.write(to_json(result) + b"\n")
    if flush:
        sys.stdout.flush()


def expect_writable(path: str | None, *, option: str) -> None:
    """Raise UsageError for a path that cannot be written; None means that the option is not used."""
    if path is None:
        return
    file = Path(path)
    why = None
    try:
        if not path:
            why = "it has no name"
        elif file.is_dir():
            why = "it is a folder"
        elif not file.parent.is_dir():
            why = f"the folder {file.parent} does not exist"
        elif not os.access(file if file.exists() else file.parent, os.W_OK):
            why = "permission denied"
    except (OSError, ValueError) as error:
        why = describe_os_error(error)
    if why is not None:
        what, hint = f"the result cannot be written: {why}", "Name a file in a folder that you may write to."
        raise UsageError(what, where=f"{option} {path}".strip(), hint=hint, code="output")


def write_whole(path: str, data: bytes, *, option: str) -> None:
    """Replace a file in one step; raise UsageError if it cannot be written."""
    from marpack.archive.staging import replace_file

    file = Path(path)
    with convert_os_errors(UsageError, "the result cannot be written", where=f"{option} {path}", code="output"):
        if file.exists() and not file.is_file():  # a pipe or a device
            file.write_bytes(data)
        else:
            replace_file(file, data)


@contextmanager
def byte_bar(what: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Show the progress over some bytes; only on a terminal, and only over many."""
    if total < _LARGE or not shows_progress():
        yield None
        return
    progress = Progress(total, what)
    try:
        yield progress.advance
    finally:
        progress.clear()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on stderr that something of unknown duration goes on: on a terminal, after a while."""
    if not shows_progress():
        yield
        return
    from rich.text import Text

    status = talk().status(Text(what, style="dim"))
    timer = threading.Timer(_AFTER, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def progress_bar(what: str, total: int) -> AbstractContextManager[Callable[[int], None] | None]:
    """Show the progress over some bytes; if `total` is 0, their number is unknown."""
    return byte_bar(what, total) if total else waiting(what)


@contextmanager
def periodic_lines(running: Callable[[], str]) -> Iterator[None]:
    """Print the running step to stderr every ten seconds, for logs, which do not show a progress bar."""
    if STDERR.quiet:
        yield
        return
    ended, start = threading.Event(), time.monotonic()

    def print_lines() -> None:
        while not ended.wait(_LINE_EVERY):
            with suppress(OSError):  # stderr may be closed
                print(f"{running()} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)  # noqa: T201

    thread = threading.Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Progress:
    """Counts results or bytes, and draws a bar on a terminal (stderr), at most ten times a second."""

    def __init__(self, total: int | None, what: str = "") -> None:
        """Take the total, if it is known; `what`: bytes are counted, and this happens to them."""
        self._total = total
        self._what = what
        self._start = self._drawn = time.monotonic()
        self._after = 0.0 if what else _AFTER  # only many bytes have a bar
        self._done = self._failed = 0
        self._bar: Any = None  # Any: a rich.progress.Progress

    def advance(self, count: int, failed: int = 0) -> None:
        """Count some, and the failed ones among them; draw if it is time."""
        self._done += count
        self._failed += failed
        now = time.monotonic()
        if now - self._start < self._after or (self._bar and now - self._drawn < _EVERY):
            return
        self._drawn, pace = now, self._done / max(now - self._start, 1e-6)
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TimeRemainingColumn

            left = [] if self._total is None else [TimeRemainingColumn(compact=True)]
            columns: Any = (self._what, BarColumn(24), "{task.fields[seen]}", *left)
            to_stderr: Any = {"redirect_stdout": False, "redirect_stderr": False}  # results would go there also
            self._bar = Progress(*columns, console=talk(), transient=True, auto_refresh=False, **to_stderr)
            self._bar.add_task("", total=self._total, seen="")
        of_total = "" if self._total is None else f"/{self._total:,}"
        failures = f"  {self._failed:,} failed" if self._failed else ""
        seen = f"{self._done:,}{of_total}  {pace:{',.0f' if pace >= 10 else '.1f'}}/s{failures}"
        if self._what:
            seen = f"{self._done / 1e6:,.1f}/{(self._total or 0) / 1e6:,.1f} MB  {pace / 1e6:,.1f} MB/s"
        self._bar.start()
        self._bar.update(0, completed=self._done, seen=seen, refresh=True)

    def clear(self) -> None:
        """Take the bar off the screen, so that something else can be printed."""
        if self._bar is not None:
            self._bar.stop()
