"""How far a command is: bars that are drawn where somebody looks, and only for what takes a while."""

import io
import re
import sys
import time
from types import SimpleNamespace

import pytest

from marpack.render import progress
from marpack.render.progress import Progress, byte_bar, waiting


def test_a_bar_knows_what_is_left_and_what_fell_short():
    progress = Progress(400, io.StringIO())
    for number in range(100):
        progress.step(ok=number > 1)
    assert progress.line(10.0) == "━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 100/400  10/s  2 fell short  0:30 left"
    assert len(progress.line(0.001)) < 80
    unknown = Progress(None, io.StringIO())
    unknown.step(ok=True)
    assert unknown.line(2.0) == "1 answered  0.5/s"


@pytest.mark.parametrize(
    ("answered", "total", "seconds", "line"),
    [
        (99, 1000, 10.0, "━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 99/1,000  9.9/s  1:31 left"),
        (100, 1000, 10.0, "━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 100/1,000  10/s  1:30 left"),
        (1, 3600, 1.0, f"{'╌' * 24} 1/3,600  1.0/s  59:59 left"),
        (1, 3601, 1.0, f"{'╌' * 24} 1/3,601  1.0/s  1:00:00 left"),
        (3, 2, 1.0, f"{'━' * 24} 3/2  3.0/s  0:00 left"),
        (1000, None, 0.5, "1,000 answered  2,000/s"),
    ],
)
def test_a_line_tells_how_far_and_how_long(answered: int, total: int | None, seconds: float, line: str):
    progress = Progress(total, io.StringIO())
    for _ in range(answered):
        progress.step(ok=True)
    assert progress.line(seconds) == line


def test_a_bar_is_drawn_after_a_while_and_taken_away_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    progress = Progress(10, stream)
    progress.step(ok=True)
    assert stream.getvalue() == ""
    progress._start -= 60
    progress._drawn -= 60
    progress.step(ok=True)
    progress.clear()
    progress.clear()
    assert re.fullmatch(r"\r\x1b\[K\S+ 2/10 .* left\r\x1b\[K", stream.getvalue())


def test_a_bar_leaves_the_last_column_of_a_narrow_terminal_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = io.StringIO()
    progress = Progress(100, stream)
    progress._start -= 60
    progress._drawn -= 60
    progress.step(ok=True)
    progress.step(ok=True)  # too soon after the first to be drawn
    assert stream.getvalue() == f"\r\x1b[K{'╌' * 24} 1/10"  # of 1/100


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "total", "is_shown"),
    [(Terminal(), 64 << 20, True), (Terminal(), (64 << 20) - 1, False), (io.StringIO(), 1 << 30, False)],
)
def test_bytes_have_a_bar_where_they_are_many_and_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, total: int, is_shown: bool
):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with byte_bar("packing", total) as progress:
        assert (progress is not None) == is_shown
        if progress is not None:
            progress(total // 4)
            progress(total // 4)
    assert (f"{total / 2e6:.1f}/{total / 1e6:.1f} MB" in stream.getvalue()) == is_shown
    assert bool(stream.getvalue()) == is_shown


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_what_is_soon_done_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO):
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(KeyError), waiting("loading"):
        raise KeyError
    assert "loading" not in stream.getvalue()


def test_a_log_gets_a_line_every_ten_seconds_until_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = 5.0

    def wait(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return now > 35.0  # it has ended

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    progress.print_lines(lambda: f"check {now:.0f}", wait)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", ["check 15 (10 s)", "check 25 (20 s)", "check 35 (30 s)"])


def test_lines_end_with_what_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.01)
    with progress.periodic_lines(lambda: "loads"):
        while "loads (0 s)" not in capsys.readouterr().err:
            time.sleep(0.01)
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == ""
