"""The console: text in cells, findings, results as JSON and files, and progress."""

import errno
import io
import os
import sys
import threading
from pathlib import Path

import click
import pytest
from render.reports import Terminal

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
    rows,
    show,
    show_error,
    show_findings,
    show_line,
    show_lines,
    show_note,
    waiting,
    write_whole,
)


def watch_stderr(monkeypatch: pytest.MonkeyPatch, *, tty: bool = True) -> io.StringIO:
    """Make stderr a terminal of 80 columns or a log, and return it."""
    stream = Terminal() if tty else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


def test_text_is_neither_interpreted_nor_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    show_note("models/a:cat:b [bold]", "[red]")
    show_error(BuildError("the label :fire: is missing", where="C:key:labels.txt", hint="add :fire:"))
    show_error(BuildError("no"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "models/a:cat:b [bold] [red]",
        "error: the label :fire: is missing",
        "  where: C:key:labels.txt",
        "  hint:  add :fire:",
        "error: no",
        f"  hint:  {BuildError.fix}",
    ]
    terminal = watch_stderr(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")
    show_note("note:", "8 members of 'a.mar' at /tmp, True " * 4)
    assert terminal.getvalue().endswith(" " + ("8 members of 'a.mar' at /tmp, True " * 4).rstrip() + "\n")


def test_findings_are_blocks_of_place_message_code_and_hint(capsys: pytest.CaptureFixture[str]):
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


@pytest.mark.parametrize(("columns", "width"), [(59, 60), (61, 61), (159, 159), (161, 160)])
def test_a_page_is_as_wide_as_its_terminal_within_bounds(monkeypatch: pytest.MonkeyPatch, columns: int, width: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert page_width() == width


@pytest.mark.parametrize(
    ("text", "count", "fitted"),
    [
        ("", 0, "     "),
        ("abc", 3, "abc  "),
        ("abcde", 5, "abcde"),
        ("abcdef", 6, "abcd…"),
        ("e\u0301", 1, "e\u0301    "),
        ("漢字漢", 6, "漢字…"),
        ("a漢字漢", 7, "a漢… "),
        ("\uff21b", 3, "\uff21b  "),
    ],
)
def test_a_text_is_padded_or_cut_to_its_cells(text: str, count: int, fitted: str):
    assert (cells(text), fit(text, 5)) == (count, fitted)


@pytest.mark.parametrize(
    ("table", "width", "lines"),
    [
        ([("a rather long name", "1 kB", "x")], 27, ["a rather long name  1 kB  x"]),
        ([("a rather long name", "1 kB", "x")], 26, ["a rather long na…  1 kB  x"]),
        ([("a rather long name", "1 kB", "x")], 5, ["a rathe…  1 kB  x"]),
        ([("k" * 50, "v" * 50)], 60, [f"{'k' * 29}…  {'v' * 27}…"]),
        ([("key", "v" * 60)], 60, [f"key  {'v' * 54}…"]),
        ([], 80, []),
    ],
)
def test_the_first_and_the_last_column_are_cut(table: list[tuple[str, ...]], width: int, lines: list[str]):
    assert ["  ".join(row).rstrip() for row in rows(table, width=width)] == lines
    assert rows([("name", "1"), ("b", "20")], width=80, right=frozenset({1})) == [["name", " 1"], ["b   ", "20"]]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 20, ["  why    "]),
        ("one two three", 20, ["  why    one two", "         three"]),
        ("one two three", 1, ["  why    one two", "         three"]),
        ("a-b-c-d-e-f-g", 20, ["  why    a-b-c-d-e-f-g"]),
        ("tab\tand \x1b", 20, ["  why    tab\\tand", "         \\x1b"]),
        ("漢字 " * 5, 29, ["  why    漢字 漢字 漢字 漢字", "         漢字"]),
    ],
)
def test_a_paragraph_is_wrapped_under_itself(text: str, width: int, lines: list[str]):
    assert [click.unstyle(line) for line in paragraph("why", text, width=width)] == lines


def test_a_result_is_indented_or_a_line(capsysbinary: pytest.CaptureFixture[bytes]):
    show({"a": [1], "b": "ü"})
    assert capsysbinary.readouterr().out == '{\n  "a": [\n    1\n  ],\n  "b": "ü"\n}\n'.encode()
    show_line({"a": [1], "b": "ü"})
    assert capsysbinary.readouterr().out == '{"a":[1],"b":"ü"}\n'.encode()
    for err in (False, True):
        show_lines(["one", "two"], err=err)
        assert capsysbinary.readouterr() == ((b"", b"one\ntwo\n") if err else (b"one\ntwo\n", b""))


def test_an_output_that_cannot_be_written_is_refused_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "there.json").touch()
    for path in ("", "folder", "gone/x.json", "x" * 300):
        with pytest.raises(UsageError) as caught:
            expect_writable(path, option="--junit")
        assert (caught.value.code, caught.value.where) == ("output", f"--junit {path}".strip())
    for path in (None, "there.json", "new.json"):
        expect_writable(path, option="--junit")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "there.json"]


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


def test_a_bar_shows_count_and_speed_at_most_ten_times_a_second(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    cases = {(400, 100): ["100/400", "10/s", "2 failed"], (None, 1000): ["1,000", "100/s"], (3, 5): ["5/3"]}
    for (total, done), shown in cases.items():
        terminal = watch_stderr(monkeypatch)
        progress = Progress(total)
        clock.now += 10
        progress.advance(done, 2)
        progress.clear()
        text = click.unstyle(terminal.getvalue())
        assert all(each in text for each in shown)
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
    ("tty", "total", "is_shown"), [(True, 64 << 20, True), (True, 1 << 20, False), (False, 1 << 30, False)]
)
def test_many_bytes_have_a_bar_on_a_terminal(clock: Clock, monkeypatch, tty: bool, total: int, is_shown: bool):
    terminal = watch_stderr(monkeypatch, tty=tty)
    with byte_bar("packing", total) as progress:
        assert (progress is not None) == is_shown
        if progress is not None:
            progress(total // 4)
            clock.now += 2
            progress(total // 4)
    assert (f"{total / 2e6:.1f}/{total / 1e6:.1f} MB" in terminal.getvalue()) == is_shown
    assert bool(terminal.getvalue()) == is_shown
    with pytest.raises(KeyError), waiting("loading"):
        raise KeyError
    assert "loading" not in terminal.getvalue()  # too short
