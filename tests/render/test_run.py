"""The table of answers, line by line."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from marpack.render.progress import Progress
from marpack.render.run import Lines, answer_in_short, fit_end, show_trouble
from marpack.runner.results import Result
from marpack.torchserve.messages import Frame, Trouble


def result(**values: Any) -> Result:
    given: dict[str, Any] = {
        "input": "in/a.png",
        "status": 200,
        "phrase": "",
        "headers": {},
        "content_type": None,
        "body": "{}",
        "body_encoding": "text",
        "stages": {"handle": 1.25},
        "seconds": 0.0,
    }
    return Result(**(given | values))


def shown(*results: Result, **options: Any) -> list[str]:
    stream = io.StringIO()
    lines = Lines(stream=stream, **options)
    for each in results:
        lines.show(each)
    return stream.getvalue().splitlines()


def test_an_answer_is_one_line_of_the_pages_width(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    (line,) = shown(result(body='{\n  "cat": 0.9,\n  "text": "' + "x" * 500 + '"\n}'))
    assert line.startswith('in/a.png              200  {"cat":0.9,"text":"xxx')
    assert line.endswith("…      1.2 ms")
    assert len(line) <= 80


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"body": "AAEC", "body_encoding": "base64"}, "3 bytes"),
        ({"body": "AAEC", "body_encoding": "base64", "content_type": "image/png"}, "3 bytes of image/png"),
        ({"status": 0, "body": ""}, "(no answer)"),
        ({"reset": True, "body": ""}, "(connection reset)"),
        ({"reset": True, "body": "begun"}, "begun"),
        ({"body": ""}, ""),
        ({"body": "a\nb\tc"}, "a b c"),
        ({"body": "\x1b[31mred\x07"}, "·[31mred·"),
        ({"body": "[NaN, 1]"}, "[NaN, 1]"),
        ({"body": "x" * 100_000}, "x" * 39 + "…"),
    ],
)
def test_answers_in_short(values: dict[str, Any], text: str):
    assert answer_in_short(result(**values), 40) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("short", "short     "),
        ("a/very/long/path.png", "…/path.png"),
        ("漢字漢字漢字.png", "…漢字.png "),
        ("\x1b[2Jx", "·[2Jx     "),
    ],
)
def test_a_long_name_is_cut_at_its_beginning(name: str, text: str):
    assert fit_end(name, 10) == text


@pytest.mark.parametrize(("length", "shown"), [(34, "x" * 34), (35, "x" * 33 + "…")])
def test_a_line_of_code_is_cut_to_its_terminal(length: int, shown: str):
    frame = Frame("handler.py", 3, "handle", "x" * length, user=True)
    console = Console(file=io.StringIO(), width=40, force_terminal=True, color_system=None)
    show_trouble(Trouble(kind="KeyError", message="", stage="handle", frames=(frame,)), console)
    assert f"      {shown}\n" in console.file.getvalue()


def test_the_same_trouble_is_told_at_length_once():
    frames = (Frame("handler.py", 3, "handle", "x = y", user=True),)
    trouble = Trouble(kind="KeyError", message="'gone'", stage="handle", frames=frames, hint="look")
    failed = result(status=503, troubles=(trouble,))
    lines = shown(failed, failed)
    assert lines[1:5] == ["  handle: KeyError: 'gone'", "    handler.py:3 in handle", "      x = y", "    hint: look"]
    assert lines[6:] == ["  handle: KeyError: 'gone'", "    as above"]


def test_prints_and_data_stand_below_their_answer():
    lines = shown(result(logs="one\n[two]\n", data=("0 body: 'x'",)), logs=True)
    assert lines[1:] == ["  > 0 body: 'x'", "  │ one", "  │ [two]"]
    assert len(shown(result(logs="one\n"))) == 1


def test_a_long_log_is_cut_short():
    lines = shown(result(logs="".join(f"{number}\n" for number in range(100))), logs=True)
    assert len(lines) == 22
    assert "80 more lines" in lines[-1]


def test_a_bar_knows_what_is_left_and_what_fell_short():
    progress = Progress(400, io.StringIO())
    for number in range(100):
        progress.step(ok=number > 1)
    assert progress.line(10.0) == "━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 100/400  10/s  2 fell short  0:30 left"
    assert len(progress.line(0.001)) < 80
    unknown = Progress(None, io.StringIO())
    unknown.step(ok=True)
    assert unknown.line(2.0) == "1 answered  0.5/s"


def test_a_bar_is_drawn_after_a_while_and_taken_away_once():
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
