"""The lines of `marpack run`, its totals, and the JSON that streams."""

import io
import json
from contextlib import redirect_stdout
from typing import Any

import click
import msgspec
import pytest
from msgspec.structs import replace
from render.reports import Terminal

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
    given: dict[str, Any] = {"input": "in/a.png", "status": 200, "phrase": "", "headers": {}, "content_type": None}
    given |= {"body": "{}", "body_encoding": "text", "stages": {"handle": 1.25}, "seconds": 0.0}
    return Result(**(given | values))


def shown(*results: Result, stream: io.StringIO | None = None, **options: Any) -> list[str]:
    with redirect_stdout(stream or io.StringIO()) as written:
        lines = Lines(**options)
        for each in results:
            lines.show(each)
    return written.getvalue().splitlines()


@pytest.mark.parametrize(
    ("columns", "name", "room"), [(40, 20, 20), (80, 20, 39), (120, 30, 69), (160, 40, 99), (200, 40, 139)]
)
def test_name_and_response_share_the_width(monkeypatch: pytest.MonkeyPatch, columns: int, name: int, room: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    (line,) = shown(result(input="x" * 300, body="y" * 300))
    assert line == f"…{'x' * (name - 1)}  200  {'y' * (room - 1)}…      1.2 ms"
    assert shown(result(status=0, body="", stages={})) == [f"{'in/a.png':{name}}    -  (no answer)"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"body": "AAEC", "body_encoding": "base64"}, "3 bytes"),
        ({"body": "AAEC", "body_encoding": "base64", "content_type": "image/png"}, "3 bytes of image/png"),
        ({"reset": True, "body": ""}, "(connection reset)"),
        ({"reset": True, "body": "begun"}, "begun"),
        ({"body": ""}, ""),
        ({"body": "a\nb\tc"}, "a b c"),
        ({"body": '{\n  "a": 1}'}, '{"a":1}'),
        ({"body": "\x1b[31mred\x07"}, "·[31mred·"),
        ({"body": "[NaN, 1]"}, "[NaN, 1]"),
        ({"body": "x" * 100_000}, "x" * 39 + "…"),
        ({"body": '{"a":  "' + "x" * ((1 << 16) - 10) + '"}'}, '{"a":"' + "x" * 33 + "…"),
        ({"body": '{"a":  "' + "x" * ((1 << 16) - 9) + '"}'}, '{"a": "' + "x" * 32 + "…"),  # too long to parse
        ({"body": "[" * 3000 + "]" * 3000}, "[" * 39 + "…"),
    ],
)
def test_a_response_in_short(values: dict[str, Any], text: str):
    assert summarize_body(result(**values), 40) == text


def test_names_and_code_are_cut_and_only_the_authors_and_the_last_frames_are_shown():
    names = {"short": "short     ", "a/very/long/path.png": "…/path.png", "漢字漢字漢字.png": "…漢字.png "}
    names["\x1b[2Jx"] = "·[2Jx     "
    assert {name: fit_end(name, 10) for name in names} == names
    for length, cut in ((34, "x" * 34), (35, "x" * 33 + "…")):
        frame = Frame("handler.py", 3, "handle", "x" * length, user=True)
        lines = trouble_lines(Trouble(kind="KeyError", message="", stage="handle", frames=(frame,)), width=40)
        assert f"      {cut}" in lines
    frames = [Frame(name, 1, "f", "", user=name == "mine") for name in ("a", "mine", "b", "c")]
    assert [each.file for each in shown_frames(frames)] == ["mine", "c"]
    assert [each.file for each in shown_frames(frames[:2])] == ["mine"]


FRAMES = (Frame("handler.py", 3, "handle", "x = y", user=True),)


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"hint": "look"}, ["    hint: look"]),
        ({"notes": ("so",)}, ["    so"]),
        ({"frames": FRAMES}, ["    handler.py:3 in handle", "      x = y"]),
    ],
)
def test_a_repeated_trouble_is_shown_in_full_once_for_sixteen_others(values: dict[str, Any], lines: list[str]):
    troubles = [Trouble(kind="KeyError", message=str(number), stage="", **values) for number in range(17)]
    for between, again in ((0, True), (15, True), (16, False)):
        several = (*troubles[: between + 1], troubles[0])
        found = shown(*(result(status=503, troubles=(each,)) for each in several))
        assert found[1 : len(lines) + 2] == ["  KeyError: 0", *lines]
        assert found[-2:] == ["  KeyError: 0", "    as above"] if again else found[-len(lines) :] == lines


def test_logs_and_data_are_below_their_response():
    many = "".join(f"{number}\n" for number in range(21))
    lines = shown(result(logs=many, data=("0 body: 'x'",), restarted=True), logs=True)
    assert lines[1:4] == ["  > 0 body: 'x'", "  the worker was started again", "  │ 0"]
    assert lines[-2:] == ["  │ 19", "  │ … 1 more lines; all of them with --json"]
    assert shown(result(logs=many[:-3]), logs=True)[-1] == "  │ 19"
    assert len(shown(result(logs=many))) == 1


@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_shows_success_by_color(monkeypatch: pytest.MonkeyPatch, no_color: bool):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    good, bad = shown(result(status=200), result(status=503), stream=Terminal())
    style = (lambda text, **_: text) if no_color else click.style
    assert good.startswith(style(f"{'in/a.png':20}", bold=True) + "  " + style("200", fg="green"))
    assert bad.startswith(style(f"{'in/a.png':20}", bold=True) + "  " + style("503", fg="red"))
    assert good.endswith(style("      1.2 ms", dim=True))


def test_lines_below_a_response_are_never_wrapped(monkeypatch: pytest.MonkeyPatch):
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
        ("NotProvidedError", False, " here: marpack does not provide a module that it needs"),
    ],
)
def test_a_handler_that_cannot_be_loaded(capsys: pytest.CaptureFixture[str], kind: str, only_here: bool, so: str):
    failure = LoadFailed(trouble=Trouble(kind=kind, message="no", stage="import", only_here=only_here))
    show_load_error(LoadError(failure, "printed\n", where="a.mar"))
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith(so)
    assert rest == [f"  import: {kind}: no", "  │ printed"]


FAST = Percentiles(1.0, 20.0, 300.0)


def summary(**values: Any) -> Summary:
    given: dict[str, Any] = {"inputs": 2, "answered": 2, "short": 0, "seconds": 1.0, "throughput": 1234.5}
    return Summary(**(given | {"stages": {}, "restarts": 0, "peak_memory": None} | values))


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"inputs": 1}, []),
        ({"inputs": 1, "before": 1}, ["1 answered before, 1 input, all succeeded, 1,234/s"]),
        ({"inputs": 2000, "short": 1001}, ["2,000 inputs, 1,001 failed, 1,234/s"]),
        ({"restarts": 1}, ["2 inputs, all succeeded, 1,234/s", "  1 restart"]),
        (
            {"restarts": 2, "peak_memory": 3_000_000, "load": {"initialize": 12.3}, "stages": {"handle": FAST}},
            [
                "2 inputs, all succeeded, 1,234/s",
                "  stage      p50      p90     p99",
                "  handle  1.0 ms  20.0 ms  300 ms",
                "  initialize 12.3 ms, peak memory 3.0 MB, 2 restarts",
            ],
        ),
    ],
)
def test_the_totals_of_a_run(values: dict[str, Any], lines: list[str]):
    assert [click.unstyle(line) for line in summary_lines(summary(**values))] == lines
    times = {0.0: "0.000 ms", 0.9994: "0.999 ms", 1.0: "1.0 ms", 100.0: "100 ms", 9999.0: "9999 ms", 1e4: "10.0 s"}
    assert {milliseconds: duration(milliseconds) for milliseconds in times} == times


BENCHMARK = """\
   batch    inputs/s         p50         p90         p99   per input
       1       1,235      1.0 ms     20.0 ms      300 ms      1.0 ms
       4       1,235      1.0 ms     20.0 ms      300 ms    0.250 ms
       8           0  1,000 failed
  memory 1.0 MB once warm, 2.0 MB at the end, 3.0 MB at most

batch of 4
  stage      p50      p90     p99
  handle  1.0 ms  20.0 ms  300 ms
"""


def test_a_benchmark_is_a_table(capsys: pytest.CaptureFixture[str]):
    def pace(size: int, short: int = 0, **stages: Percentiles) -> Throughput:
        speed = 0.0 if short else 1234.6
        return Throughput(batch_size=size, inputs=1000, short=short, seconds=1.0, throughput=speed, stages=stages)

    one, four = pace(1, handle=FAST), pace(4, handle=FAST)
    show_columns()
    for each in (one, four, pace(8, short=1000)):
        show_pace(each)
    memory = Memory(before=1_000_000, after=2_000_000, peak=3_000_000)
    figures = BenchmarkFigures(inputs=1, repeat=1, warmup=0, paces=(one, four), memory=memory)
    show_rest(figures)
    assert capsys.readouterr().out == BENCHMARK
    show_rest(replace(figures, memory=None))
    assert capsys.readouterr().out.splitlines() == BENCHMARK.splitlines()[5:]


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"]])
def test_a_streamed_document_equals_one_written_at_once(names: list[str]):
    loaded = Loaded(handler="h", device="cpu", stages={})
    head = RunHead(archive="a.mar", content_digest=None, target="torchserve", loaded=loaded, load_logs="")
    stream = io.BytesIO()
    document = ReportStream(stream, head)
    for name in names:
        document.show(result(input=name))
        assert stream.getvalue().endswith(b"\n    }")  # it can be read at once
    document.close(summary(), interrupted=True)
    text = stream.getvalue().decode()
    told = json.loads(text)
    assert [each["input"] for each in told["results"]] == names
    told_ends = (told["archive"], told["summary"]["inputs"], told["interrupted"], told["failure"])
    assert told_ends == ("a.mar", 2, True, None)
    assert list(told)[-4:] == ["results", "summary", "interrupted", "failure"]
    assert text == msgspec.json.format(text, indent=2) + "\n"
