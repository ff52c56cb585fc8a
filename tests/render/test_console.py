"""The console: text in cells, findings, results as JSON and files, and progress."""

import errno
import io
import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from marpack.errors import BuildError, UsageError
from marpack.findings import Finding, Severity
from marpack.render import console
from marpack.render.console import (
    Progress,
    byte_bar,
    cells,
    expect_writable,
    fit,
    page_width,
    paragraph,
    periodic_lines,
    plain,
    print_lines,
    rows,
    show,
    show_error,
    show_findings,
    show_line,
    show_lines,
    talk,
    waiting,
    write_whole,
)


def test_a_text_between_colons_stays_what_it_is(capsys: pytest.CaptureFixture[str]):
    talk().print(plain("models/a:cat:b [bold]"))
    show_error(BuildError("the label :fire: is missing", where="C:key:labels.txt", hint="add :fire:"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "models/a:cat:b [bold]",
        "error: the label :fire: is missing",
        "  where: C:key:labels.txt",
        "  hint:  add :fire:",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_coloured_by_what_it_looks_like(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    talk().print("8 members of 'a.mar' at /tmp, True")
    assert sys.stderr.getvalue() == "8 members of 'a.mar' at /tmp, True\n"


def test_what_is_told_beside_the_result_is_never_broken(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    talk().print("word " * 20)
    assert capsys.readouterr() == ("", "word " * 20 + "\n")


def test_findings_are_blocks_of_place_sentence_code_and_hint(capsys: pytest.CaptureFixture[str]):
    found = (
        Finding(code="a-b", severity=Severity.ERROR, message="it [is]\nbad\x07", where="x[1]: y", hint="mend [it]"),
        Finding(code="c", severity=Severity.NOTE, message="fyi"),
    )
    show_findings(found, err=False)
    assert capsys.readouterr().out.splitlines() == [
        "  error x[1]: y: it [is]",
        "bad\N{REPLACEMENT CHARACTER} (a-b)",
        "    hint: mend [it]",
        "  note fyi (c)",
    ]


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (BuildError("no"), ["error: no", f"  hint:  {BuildError.fix}"]),
        (BuildError("no", where="x", hint="do"), ["error: no", "  where: x", "  hint:  do"]),
    ],
)
def test_an_error_is_told_with_the_way_out(capsys: pytest.CaptureFixture[str], error: BuildError, lines: list[str]):
    show_error(error)
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(("columns", "width"), [(10, 60), (59, 60), (61, 61), (159, 159), (161, 160)])
def test_a_page_is_as_wide_as_its_terminal_within_reason(monkeypatch: pytest.MonkeyPatch, columns: int, width: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert page_width() == width


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("漢字", 4), ("\uff21b", 3)]
)
def test_a_text_takes_as_many_cells_as_a_terminal_gives_it(text: str, count: int):
    assert cells(text) == count


@pytest.mark.parametrize(
    ("text", "fitted"),
    [
        ("abc", "abc  "),
        ("abcde", "abcde"),
        ("abcdef", "abcd…"),
        ("漢字", "漢字 "),
        ("漢字漢", "漢字…"),
        ("a漢字漢", "a漢… "),
    ],
)
def test_a_text_is_padded_or_cut_to_its_cells(text: str, fitted: str):
    assert fit(text, 5) == fitted


def test_numbers_stand_at_the_right():
    assert fit("12", 5, right=True) == "   12"


def lines_of(table: list[tuple[str, ...]], width: int, right: frozenset[int] = frozenset()) -> list[str]:
    return ["  ".join(row).rstrip() for row in rows(table, width=width, right=right)]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (80, ["a rather long name  1 kB  x", "b                   20 B"]),
        (27, ["a rather long name  1 kB  x", "b                   20 B"]),
        (26, ["a rather long na…  1 kB  x", "b                  20 B"]),
        (5, ["a rathe…  1 kB  x", "b         20 B"]),
    ],
)
def test_the_first_column_gives_way(width: int, lines: list[str]):
    assert lines_of([("a rather long name", "1 kB", "x"), ("b", "20 B", "")], width) == lines


def test_first_and_last_column_share_the_width():
    assert lines_of([("k" * 50, "v" * 50)], 60) == [f"{'k' * 29}…  {'v' * 27}…"]
    assert lines_of([("key", "v" * 60)], 60) == [f"key  {'v' * 54}…"]


def test_a_column_of_numbers_stands_at_the_right():
    assert lines_of([("name", "1"), ("b", "20")], 80, frozenset({1})) == ["name   1", "b     20"]


def test_of_nothing_there_is_no_table():
    assert rows([], width=80) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ["  why    "]),
        ("one two three", ["  why    one two", "         three"]),
        ("a-b-c-d-e-f-g", ["  why    a-b-c-d-e-f-g"]),
        ("tab\tand \x1b", ["  why    tab\\tand", "         \\x1b"]),
    ],
)
def test_a_paragraph_is_wrapped_under_itself(text: str, lines: list[str]):
    assert [click.unstyle(line) for line in paragraph("why", text, width=20)] == lines


def test_a_paragraph_of_wide_letters_is_no_wider():
    lines = [click.unstyle(line) for line in paragraph("why", "漢字 " * 10, width=29)]
    assert all(cells(line) <= 29 for line in lines)


def test_a_paragraph_has_room_for_a_word_at_any_width():
    lines = [click.unstyle(line) for line in paragraph("why", "one two three", width=1)]
    assert lines == ["  why    one two", "         three"]


def test_labels_stand_back():
    assert next(paragraph("why", "so", width=80)).startswith(click.style("  why    ", dim=True))


@pytest.mark.parametrize("err", [False, True])
def test_a_page_goes_where_it_belongs(capsys: pytest.CaptureFixture[str], err: bool):
    show_lines(["one", "two"], err=err)
    assert capsys.readouterr() == (("", "one\ntwo\n") if err else ("one\ntwo\n", ""))


def test_a_result_is_indented_or_a_line(capsysbinary: pytest.CaptureFixture[bytes]):
    show({"a": [1], "b": "ü"})
    assert capsysbinary.readouterr().out == '{\n  "a": [\n    1\n  ],\n  "b": "ü"\n}\n'.encode()
    show_line({"a": [1], "b": "ü"})
    assert capsysbinary.readouterr().out == '{"a":[1],"b":"ü"}\n'.encode()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "it has no name"),
        ("folder", "it is a folder"),
        ("gone/x.json", "there is no folder gone"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, why: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=why) as caught:
        expect_writable(path, option="--junit")
    assert caught.value.where == f"--junit {path}".strip()


def test_what_can_be_written_and_what_nobody_asked_for_is_fine(tmp_path: Path):
    (tmp_path / "there.json").touch()
    for path in (None, str(tmp_path / "there.json"), str(tmp_path / "new.json")):
        expect_writable(path, option="--junit")
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]


def test_a_file_is_replaced_whole_and_a_pipe_is_written_to(tmp_path: Path):
    file, pipe = tmp_path / "a.json", tmp_path / "pipe"
    file.write_text("a longer text than the new one")
    write_whole(str(file), b"new", option="--junit")
    assert file.read_bytes() == b"new"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(str(pipe), b"new", option="--junit")
    reader.join()
    assert read == [b"new"]
    assert pipe.is_fifo()


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    with pytest.raises(UsageError, match=os.strerror(errno.EISDIR)) as caught:
        write_whole(str(tmp_path), b"", option="--junit")
    assert (caught.value.code, caught.value.where) == ("output", f"--junit {tmp_path}")


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(console, "time", clock)
    return clock


def watch_stderr(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal of 80 columns, and return it."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


@pytest.mark.parametrize(
    ("total", "done", "shown"),
    [(400, 100, ["100/400", "10/s", "2 failed"]), (None, 1000, ["1,000", "100/s", "2 failed"]), (3, 5, ["5/3"])],
)
def test_a_bar_shows_how_far_and_how_fast(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, total: int | None, done: int, shown: list[str]
):
    terminal = watch_stderr(monkeypatch)
    progress = Progress(total)
    clock.now += 10
    progress.advance(done, 2)
    progress.clear()
    text = click.unstyle(terminal.getvalue())
    assert all(each in text for each in shown)


def test_a_bar_is_drawn_after_a_while_at_most_ten_times_a_second(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    terminal = watch_stderr(monkeypatch)
    progress = Progress(10)
    progress.advance(1, 0)
    clock.now += 0.9
    progress.advance(1, 0)
    progress.clear()
    assert terminal.getvalue() == ""
    clock.now += 1
    progress.advance(1, 0)
    drawn = terminal.getvalue()
    assert "3/10" in click.unstyle(drawn)
    clock.now += 0.05
    progress.advance(1, 0)
    assert terminal.getvalue() == drawn
    progress.clear()
    cleared = terminal.getvalue()
    progress.clear()
    assert terminal.getvalue() == cleared
    clock.now += 1
    progress.advance(1, 0)
    progress.clear()
    assert "5/10" in click.unstyle(terminal.getvalue())


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

    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now))
    print_lines(lambda: f"check {now:.0f}", wait)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", ["check 15 (10 s)", "check 25 (20 s)", "check 35 (30 s)"])


def test_lines_end_with_what_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(console, "_LINE_EVERY", 0.01)
    with periodic_lines(lambda: "loads"):
        while "loads (0 s)" not in capsys.readouterr().err:
            time.sleep(0.01)
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == ""
