"""The table of answers, line by line."""

import io
import json
from typing import Any

import click
import msgspec
import pytest
from msgspec.structs import replace

from marpack.findings import Finding, Severity
from marpack.protocol.messages import Frame, Loaded, LoadFailed, Trouble
from marpack.render.console import duration, fit_end
from marpack.render.run import (
    Lines,
    ReportStream,
    RunHead,
    show_columns,
    show_load_error,
    show_pace,
    show_rest,
    shown_frames,
    summarize_body,
    summary_lines,
    trouble_lines,
)
from marpack.runner.client import LoadError
from marpack.runner.results import BenchmarkFigures, Memory, Percentiles, Result, Summary, Throughput


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
    assert summarize_body(result(**values), 40) == text


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
    lines = trouble_lines(Trouble(kind="KeyError", message="", stage="handle", frames=(frame,)), width=40)
    assert f"      {shown}" in lines


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


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.0, "0.000 ms"),
        (0.9994, "0.999 ms"),
        (1.0, "1.0 ms"),
        (99.94, "99.9 ms"),
        (100.0, "100 ms"),
        (9999.0, "9999 ms"),
        (10_000.0, "10.0 s"),
    ],
)
def test_a_time_has_as_many_digits_as_matter(milliseconds: float, text: str):
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("columns", "name", "room"), [(40, 20, 20), (80, 20, 39), (120, 30, 69), (160, 40, 99), (200, 40, 139)]
)
def test_name_and_answer_share_the_width(monkeypatch: pytest.MonkeyPatch, columns: int, name: int, room: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    (line,) = shown(result(input="x" * 300, body="y" * 300))
    assert line == f"…{'x' * (name - 1)}  200  {'y' * (room - 1)}…      1.2 ms"


def test_what_has_no_answer_or_time_has_none_in_its_line():
    failed = result(status=0, body="", stages={})
    (line,) = shown(failed)
    assert line == f"{'in/a.png':20}    -  (no answer)"


def test_a_worker_that_was_started_again_is_mentioned():
    assert len(shown(result(restarted=True))) == len(shown(result())) + 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_shows_at_a_glance_what_was_answered(monkeypatch: pytest.MonkeyPatch, no_color: bool):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    lines = Lines(stream=Terminal())
    for status in (200, 503):
        lines.show(result(status=status))
    good, bad = lines._stream.getvalue().splitlines()
    style = (lambda text, **_: text) if no_color else click.style
    assert good.startswith(style(f"{'in/a.png':20}", bold=True) + "  " + style("200", fg="green"))
    assert bad.startswith(style(f"{'in/a.png':20}", bold=True) + "  " + style("503", fg="red"))
    assert good.endswith(style("      1.2 ms", dim=True))


def trouble(number: int, **values: Any) -> Trouble:
    return Trouble(kind="KeyError", message=str(number), stage="handle", hint="look", **values)


@pytest.mark.parametrize(("between", "again"), [(15, True), (16, False)])
def test_what_was_told_sixteen_troubles_ago_is_told_again(between: int, again: bool):
    numbers = [0, *range(1, between + 1), 0]
    lines = shown(*(result(status=503, troubles=(trouble(number),)) for number in numbers))
    assert lines[-2:] == ["  handle: KeyError: 0", "    as above" if again else "    hint: look"]


@pytest.mark.parametrize(
    "more", [{"hint": "look"}, {"notes": ("so",)}, {"frames": (Frame("h.py", 1, "f", "", user=True),)}]
)
def test_whatever_there_is_to_a_trouble_is_told_once(more: dict[str, Any]):
    failed = result(status=503, troubles=(Trouble(kind="KeyError", message="x", stage="", **more),))
    lines = shown(failed, failed)
    assert [lines[1], lines[4]] == ["  KeyError: x"] * 2
    assert (lines[2] == lines[5], lines[5]) == (False, "    as above")


def test_a_trouble_without_more_is_told_in_one_line():
    lines = shown(*[result(status=503, troubles=(Trouble(kind="KeyError", message="x", stage=""),))] * 2)
    assert [lines[1], lines[3]] == ["  KeyError: x"] * 2
    assert len(lines) == 4


def test_what_is_told_below_an_answer_is_never_broken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    long = "word " * 12 + "end"
    frame = Frame(f"{long}.py", 3, "handle", long, user=True)
    told = Trouble(kind="KeyError", message=long, stage="handle", frames=(frame,), notes=(long,), hint=long)
    lines = shown(result(status=503, troubles=(told,), logs=long, data=(long,)), logs=True)
    assert lines[1:] == [
        f"  > {long}",
        f"  handle: KeyError: {long}",
        f"    {long}.py:3 in handle",
        f"      {long}",
        f"    {long}",
        f"    hint: {long}",
        f"  │ {long}",
    ]


def test_of_the_frames_the_authors_and_the_last_are_told():
    def frame(name: str, *, user: bool) -> Frame:
        return Frame(name, 1, "f", "", user=user)

    libraries = (frame("a", user=False), frame("mine", user=True), frame("b", user=False), frame("c", user=False))
    assert [each.file for each in shown_frames(libraries)] == ["mine", "c"]
    assert [each.file for each in shown_frames(libraries[:2])] == ["mine"]
    lines = shown(result(status=503, troubles=(trouble(1, frames=libraries, notes=("by the way",)),)))
    assert lines[1:] == ["  handle: KeyError: 1", "    mine:1 in f", "    c:1 in f", "    by the way", "    hint: look"]


@pytest.mark.parametrize(("count", "last"), [(20, "  │ 19"), (21, "  │ … 1 more lines; all of them with --json")])
def test_of_a_log_twenty_lines_are_shown(count: int, last: str):
    lines = shown(result(logs="".join(f"{number}\n" for number in range(count))), logs=True)
    assert lines[20] == "  │ 19"
    assert lines[-1] == last


def test_an_answer_is_parsed_up_to_a_length():
    short, long = ('{"a":  "' + "x" * length + '"}' for length in ((1 << 16) - 10, (1 << 16) - 9))
    assert summarize_body(result(body=short), 20) == '{"a":"xxxxxxxxxxxxx…'
    assert summarize_body(result(body=long), 20) == '{"a": "xxxxxxxxxxxx…'
    assert summarize_body(result(body="[" * 3000 + "]" * 3000), 20) == "[" * 19 + "…"


def test_how_the_model_was_loaded(capsys: pytest.CaptureFixture[str]):
    stages = {"start": 100.0, "import": 1000.0, "initialize": 250.0}
    aside = Trouble(kind="Skipped", message="so", stage="")
    Lines(logs=True).head(Loaded(handler="h[0]", stages=stages, device="cpu", troubles=(aside,)), "printed\n")
    told = "loaded h[0] in 1.35 s (initialize 0.25 s) on cpu"
    assert capsys.readouterr() == ("", f"{told}\n  Skipped: so\n  │ printed\n")
    Lines().head(Loaded(handler="h", stages={}), "printed\n")
    assert capsys.readouterr().err == "loaded h in 0.00 s (initialize 0.00 s)\n"


@pytest.mark.parametrize(
    ("kind", "only_here", "so"),
    [
        ("ValueError", False, "; the server's worker would die here also"),
        ("ModuleNotFoundError", True, " here: this Python lacks what the server has"),
        ("NotProvidedError", False, " here: marpack lacks what it needs"),
    ],
)
def test_a_handler_that_cannot_be_loaded(capsys: pytest.CaptureFixture[str], kind: str, only_here: bool, so: str):
    failure = LoadFailed(trouble=Trouble(kind=kind, message="no", stage="import", only_here=only_here))
    show_load_error(LoadError(failure, "printed\n", where="a.mar"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[0].endswith(so)
    assert lines[1:] == [f"  import: {kind}: no", "  │ printed"]


FAST = Percentiles(1.0, 20.0, 300.0)


def summary(**values: Any) -> Summary:
    given: dict[str, Any] = {"inputs": 2, "answered": 2, "short": 0, "seconds": 1.0, "throughput": 1234.5}
    return Summary(**(given | {"stages": {}, "restarts": 0, "peak_memory": None} | values))


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"inputs": 1}, []),
        ({"inputs": 1, "before": 1}, ["1 answered before, 1 input, all succeeded, 1,234/s"]),
        ({}, ["2 inputs, all succeeded, 1,234/s"]),
        ({"inputs": 2000, "short": 1001}, ["2,000 inputs, 1,001 failed, 1,234/s"]),
        ({"restarts": 1}, ["2 inputs, all succeeded, 1,234/s", "  1 restart"]),
        (
            {
                "restarts": 2,
                "peak_memory": 3_000_000,
                "load": {"import": 5.0, "initialize": 12.3},
                "stages": {"handle": FAST},
            },
            [
                "2 inputs, all succeeded, 1,234/s",
                "                           p50         p90         p99",
                "  handle                1.0 ms     20.0 ms      300 ms",
                "  initialize 12.3 ms, peak memory 3.0 MB, 2 restarts",
            ],
        ),
    ],
)
def test_the_totals_of_a_run(values: dict[str, Any], lines: list[str]):
    assert [click.unstyle(line) for line in summary_lines(summary(**values))] == lines


BENCHMARK = """\
   batch    inputs/s         p50         p90         p99   per input
       1       1,235      1.0 ms     20.0 ms      300 ms      1.0 ms
       4       1,235      1.0 ms     20.0 ms      300 ms    0.250 ms
       8           0  1,000 failed

batch of 4                   p50         p90         p99
handle                    1.0 ms     20.0 ms      300 ms

memory  1.0 MB once warm, 2.0 MB at the end, 3.0 MB at most
  warning hm (a-leak)
"""


def test_a_benchmark_is_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")

    def pace(size: int, short: int = 0, **stages: Percentiles) -> Throughput:
        speed = 0.0 if short else 1234.6
        return Throughput(batch_size=size, inputs=1000, short=short, seconds=1.0, throughput=speed, stages=stages)

    one, four = pace(1, handle=FAST), pace(4, handle=FAST)
    show_columns()
    for each in (one, four, pace(8, short=1000)):
        show_pace(each)
    memory = Memory(before=1_000_000, after=2_000_000, peak=3_000_000, per_input=None)
    finding = Finding(code="a-leak", severity=Severity.WARNING, message="hm")
    figures = BenchmarkFigures(inputs=1, repeat=1, warmup=0, paces=(one, four), memory=memory, findings=(finding,))
    show_rest(figures)
    assert capsys.readouterr().out == BENCHMARK
    show_rest(replace(figures, memory=None, findings=()))
    assert capsys.readouterr().out.splitlines() == ["", *BENCHMARK.splitlines()[5:7]]


HEAD = RunHead(
    archive="a.mar",
    content_digest=None,
    target="torchserve",
    loaded=Loaded(handler="h", device="cpu", stages={}),
    load_logs="",
)


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"]])
def test_a_document_that_streams_looks_like_one_written_at_once(names: list[str]):
    stream = io.BytesIO()
    document = ReportStream(stream, HEAD)
    for name in names:
        document.show(result(input=name))
        assert stream.getvalue().endswith(b"\n    }")  # it can be read at once
    document.close(summary(), interrupted=True)
    text = stream.getvalue().decode()
    told = json.loads(text)
    assert [each["input"] for each in told["results"]] == names
    assert (told["archive"], told["summary"]["inputs"], told["interrupted"], told["failure"]) == (
        "a.mar",
        2,
        True,
        None,
    )
    assert list(told)[-4:] == ["results", "summary", "interrupted", "failure"]
    assert text == msgspec.json.format(text, indent=2) + "\n"
