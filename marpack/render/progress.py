"""How far a command is, on one line of a terminal that is drawn over again."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

_AFTER = 1.0  # seconds: a shorter run needs none
_EVERY = 0.1  # seconds between two drawings
_LINE_EVERY = 10.0  # seconds between two lines
_BAR = 24  # columns
_CLEAR = "\r\x1b[K"
_LARGE = 64 << 20  # bytes: less is read or written before a bar could be looked at


@contextmanager
def byte_bar(what: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Show bytes of a total, speed and time left on stderr; only on a terminal, and only for what takes a while."""
    if total < _LARGE or not sys.stderr.isatty():
        yield None
        return
    # Imported where it is needed: it costs more than building a small archive.
    from rich import progress as rich  # noqa: PLC0415

    from marpack.render.console import talk  # noqa: PLC0415

    times = rich.TransferSpeedColumn(), rich.TimeRemainingColumn(compact=True)
    with rich.Progress(
        what, rich.BarColumn(), rich.DownloadColumn(), *times, console=talk(), transient=True
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on stderr that something goes on of which nobody knows how long it takes: on a terminal, after a while."""
    if not sys.stderr.isatty():
        yield
        return
    # Imported where it is needed, as in `byte_bar`.
    from marpack.render.console import talk  # noqa: PLC0415

    status = talk().status(f"[dim]{what}[/]")
    timer = threading.Timer(_AFTER, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def periodic_lines(running: Callable[[], str]) -> Iterator[None]:
    """Print what is running to stderr every ten seconds, for logs, which show no progress bar."""
    ended = threading.Event()
    thread = threading.Thread(target=print_lines, args=(running, ended.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def print_lines(running: Callable[[], str], wait: Callable[[float], bool]) -> None:
    """Print what is running and the seconds since the start, until `wait` returns True."""
    start = time.monotonic()
    while not wait(_LINE_EVERY):
        with suppress(OSError):  # stderr may be closed
            print(f"{running()} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)  # noqa: T201


class Progress:
    """Counts answers, of a total if it is known, and draws on a terminal (stderr), at most ten times a second."""

    def __init__(self, total: int | None, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = total
        self._start = self._drawn = time.monotonic()
        self._answered = 0
        self._short = 0
        self._shown = False

    def step(self, *, ok: bool) -> None:
        """Count one answer, and draw if it is time."""
        self.advance(1, not ok)

    def advance(self, count: int, short: int) -> None:
        """Count some answers, and those of them that fell short; draw if it is time."""
        self._answered += count
        self._short += short
        now = time.monotonic()
        if now - self._start >= _AFTER and now - self._drawn >= _EVERY:
            self._drawn = now
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(_CLEAR + self.line(now - self._start)[:width])
            self._stream.flush()
            self._shown = True

    def clear(self) -> None:
        """Take the line off the screen, so that something else can be printed."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False

    def line(self, seconds: float) -> str:
        """Return the line after some seconds."""
        pace = self._answered / seconds
        parts = [self._share(), f"{pace:,.0f}/s" if pace >= 10 else f"{pace:.1f}/s"]
        if self._short:
            parts.append(f"{self._short:,} fell short")
        if self._total:
            parts.append(f"{_clock((self._total - self._answered) / pace)} left")
        return "  ".join(parts)

    def _share(self) -> str:
        if not self._total:
            return f"{self._answered:,} answered"
        share = min(1.0, self._answered / self._total)
        full = round(share * _BAR)
        return f"{'━' * full}{'╌' * (_BAR - full)} {self._answered:,}/{self._total:,}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
