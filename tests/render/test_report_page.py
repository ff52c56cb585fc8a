"""The page as a file, and as Chromium shows it."""

import io
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from invoking import invoke
from msgspec.structs import replace
from render.browser import CONTRAST, Browser

from marpack.archive.reader import open_archive
from marpack.protocol.messages import Loaded
from marpack.render.report import HtmlReport
from marpack.render.run import RunHead
from marpack.runner.inputs import Input
from marpack.runner.results import Percentiles, Result, Summary
from marpack.torchserve.http import Part, Request

HANDLER = textwrap.dedent(
    """
    import time
    def handle(data, context):
        if data is None: return
        return [answer(row, index, context) for index, row in enumerate(data)]

    def answer(row, index, context):
        body = row["body"]
        if body == "raise": return {}["<i>gone</i>"]
        if body == "evil": return "</pre><script>document.title='taken'</script><img src=https://example.invalid/x>"
        if isinstance(body, str): return {"<script>alert(1)</script>": 0.9, body: 0.1}
        if len(body) > 400: return [{"cat": [100, 50, 300, 150], "score": 0.9}]
        return [[[x // 8, 0.9] for x in range(16)] for y in range(16)]
    """
)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    from PIL import Image

    path = tmp_path / "in" / "photo.jpg"
    path.parent.mkdir(exist_ok=True)
    Image.effect_noise((400, 200), 50).convert("RGB").save(path)
    return path


@pytest.fixture
def report(make_mar, tmp_path: Path, photo: Path, png: bytes) -> Path:
    (photo.parent / "tiny.png").write_bytes(png)
    (photo.parent / "<b>&.txt").write_text("dog")
    (photo.parent / "evil.txt").write_text("evil")
    (photo.parent / "fails.txt").write_text("raise")
    labels = {"index_to_name.json": '{"0": "sky", "1": "<em>tree</em>"}'}
    archive = str(make_mar(HANDLER, files=labels))
    return run(archive, tmp_path, "--input", "in", code=1)


def run(archive: str, folder: Path, *args: str, code: int = 0) -> Path:
    invoke("run", archive, *args, "--report", "out.html", cwd=folder, code=code)
    return folder / "out.html"


@pytest.mark.slow
def test_the_page_draws_every_response_and_fetches_nothing(report: Path, browser: Browser):
    browser.open(report)
    assert browser.fetched == [report.as_uri()]
    assert browser.complaints == []
    assert browser.value("document.title") == "probe 1.0"
    names = "[...document.querySelectorAll('article .name')].map(e => e.textContent)"
    assert browser.value(names) == ["in/<b>&.txt", "in/evil.txt", "in/fails.txt", "in/photo.jpg", "in/tiny.png"]
    assert browser.value("document.scripts.length") == 0
    bars = "[...document.querySelectorAll('.bar .label')].map(e => e.textContent)"
    assert browser.value(bars) == ["<script>alert(1)</script>", "dog"]
    box = "(b => [b.offsetLeft / p, b.offsetWidth / p])(document.querySelector('.box'))"
    left, width = browser.value(f"(p => {box})(document.querySelector('.box').offsetParent.offsetWidth)")
    assert (left, width) == (pytest.approx(0.25, abs=0.02), pytest.approx(0.5, abs=0.02))
    legend = "[...document.querySelectorAll('.legend li')].map(e => e.textContent.trim().replace(/\\s+/g, ' '))"
    assert browser.value(legend) == ["sky 50.0 %", "<em>tree</em> 50.0 %"]
    loaded = "Promise.all([...document.images].map(i => (i.loading = 'eager', i.decode())))"
    assert browser.value(f"{loaded}.then(all => all.length)") == 3
    trouble = browser.value("document.querySelector('article.short .trouble').textContent")
    assert "KeyError" in trouble
    assert "handler.py:9" in trouble


@pytest.mark.peer
@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_text_is_legible_by_light_and_dark(report: Path, browser: Browser, dark: bool):
    browser.open(report, dark=dark)
    found = browser.value(CONTRAST)
    assert len(found) > 30
    assert [each for each in found if each[0] < 4.5] == []


@pytest.mark.slow
def test_a_thousand_inputs_open_at_once(make_mar, tmp_path: Path, photo: Path, browser: Browser):
    for number in range(1000):
        (photo.parent / f"{number:04}.jpg").hardlink_to(photo)
    browser.open(run(str(make_mar(HANDLER)), tmp_path, "--input", "in", "--batch-size", "8"))
    assert browser.value("document.querySelectorAll('article').length") == 1001
    decoded = "[...document.images].filter(image => image.complete).length"
    assert browser.value(decoded) < 200  # those near the view: the others wait until they are scrolled to
    seen = "filter(name => name.checkVisibility({contentVisibilityAuto: true})).length"
    assert browser.value(f"[...document.querySelectorAll('article .name')].{seen}") < 50


def test_a_report_that_cannot_be_written_is_an_error_before_the_model_loads(make_mar, tmp_path: Path):
    archive = str(make_mar("raise ValueError('no')"))
    (tmp_path / "in.html").touch()
    for name, code, cause in (("out.txt", 2, "not-html"), ("in.html/x.html", 1, "output")):
        assert invoke("run", archive, "--data", "x", "--report", name, cwd=tmp_path, code=code).cause == cause
    invoke("run", archive, "--data", "x", "--report", "out.html", cwd=tmp_path, code=4)
    assert not (tmp_path / "out.html").exists()  # the model did not load


def answer(body: str = "{}", **values: Any) -> Result:
    given: dict[str, Any] = {"input": "x", "status": 200, "phrase": "", "headers": {}, "content_type": None}
    return Result(body=body, **({"body_encoding": "text", "stages": {}, "seconds": 0.0} | given | values))


def asked(value: bytes = b"", content_type: str = "text/plain") -> Input:
    return Input("x", Request(id="1", parts=(Part("body", value, content_type),)))


def loaded(archive: Path, **values: Any) -> RunHead:
    ready = Loaded(handler="handler:handle", stages={}, **values)
    return RunHead(archive=str(archive), content_digest=None, target="torchserve", loaded=ready, load_logs="")


def written(archive: Path, *shown: tuple[Input, Result], head: RunHead | None = None, **ends: Any) -> str:
    given: dict[str, Any] = {"inputs": 1, "answered": 1, "short": 0, "seconds": 1.0, "throughput": 1.0, "stages": {}}
    with HtmlReport(str(archive.with_suffix(".html"))) as report, open_archive(archive) as opened:
        report.begin(head or loaded(archive), opened)
        for each in shown:
            report.show(*each)
        report.end(Summary(**({"restarts": 0, "peak_memory": None} | given | ends)))
    return archive.with_suffix(".html").read_text()


@pytest.fixture
def mar(make_mar) -> Path:
    return make_mar("def handle(data, context): ...")


def facts_of(page: str) -> dict[str, str]:
    return dict(re.findall(r'<tr><th>(.*?)</th><td class="mono">(.*?)</td></tr>', page))


def test_the_page_names_what_was_run_and_where(mar: Path):
    facts = facts_of(written(mar))
    told = {"file": str(mar), "content digest": "none", "target": "torchserve", "handler": "handler:handle"}
    assert list(facts.items())[:5] == [*told.items(), ("device", "unknown")]
    assert {"python", "system", "processor", "marpack", "torch", "numpy"} <= set(facts)
    head = replace(loaded(mar, device="cuda:0"), content_digest="sha256:12")
    facts = facts_of(written(mar, head=head))
    assert (facts["content digest"], facts["device"]) == ("sha256:12", "cuda:0")


@pytest.mark.parametrize(
    ("stages", "told", "shares"),
    [
        ({}, "", []),
        ({"handle": 5.0}, "5.0 ms", []),
        (
            {"handle": 10.0, "postprocess": 2.0, "preprocess": 1.0, "inference": 4.0},
            "preprocess 1.0 + inference 4.0 + postprocess 2.0 of 10.0 ms",
            ["10.0", "40.0", "20.0", "30.0"],
        ),
        ({"handle": 1.0, "inference": 1.01}, "inference 1.0 of 1.0 ms", ["101.0", "0"]),
        ({"handle": 0.0, "inference": 0.0}, "inference 0.0 of 0.0 ms", []),
    ],
)
def test_each_answers_time_is_shared_out(mar: Path, stages: dict[str, float], told: str, shares: list[str]):
    page = written(mar, (asked(), answer(stages=stages)))
    assert f'<span class="time dim">{told}</span>' in page
    assert re.findall(r'<i class="(?:s\d|rest)" style="width:([\d.]+)%"></i>', page) == shares


@pytest.mark.parametrize(
    ("value", "content_type", "text"),
    [
        (b"x" * 1500, "text/plain", "x" * 1500),
        (b"x" * 1501, "text/plain", "x" * 1500 + "…"),
        (b"\xff\xfe", "text/plain", "2 bytes text/plain"),
        (b"\xff\xfe", "", "2 bytes"),
        ("ü" * 1499 + "🦆" * 751, "text/plain", "ü" * 1499 + "🦆…"),
        ("x" + "🦆" * 1500, "text/plain", "x" + "🦆" * 1499),  # cut in the middle of a letter
    ],
)
def test_what_was_asked_is_shown_as_text_where_it_is_some(mar: Path, value: Any, content_type: str, text: str):
    data = value if isinstance(value, bytes) else value.encode()
    assert f"<pre>{text}</pre></div>" in written(mar, (asked(data, content_type), answer("{}")))


@pytest.mark.parametrize(
    ("content_type", "is_picture"),
    [("image/png", True), ("", True), ("application/octet-stream", True), ("text/plain", False)],
)
def test_a_picture_is_shown_unless_it_is_called_something_else(
    mar: Path, png: bytes, content_type: str, is_picture: bool
):
    page = written(mar, (asked(png, content_type), answer()))
    assert ('<img src="data:image/png' in page) == is_picture


BOX = '[{"cat": [0, 0, 1, 1], "score": 0.5}]'


@pytest.mark.parametrize(
    ("size", "body", "shown"),
    [
        ((8, 4), "{}", (96, 48)),
        ((95, 95), "{}", (190, 190)),
        ((8, 4), BOX, (240, 120)),
        ((239, 10), BOX, (384, 16)),
        ((500, 100), "{}", (384, 77)),
    ],
)
def test_small_pictures_are_enlarged(mar: Path, size: tuple[int, int], body: str, shown: tuple[int, int]):
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("L", size).save(buffer, "PNG")
    page = written(mar, (asked(buffer.getvalue(), "image/png"), answer(body)))
    assert f'width="{shown[0]}" height="{shown[1]}"' in page


def test_a_stage_has_one_color_wherever_it_is_drawn(mar: Path):
    stages = {"postprocess": 2.0, "explain_handle": 1.0, "compile": 3.0, "handle": 9.0}
    times = [{**stages, "preprocess": 1.0}, stages]  # neither has all, and the first seen is plotted first
    seen = dict.fromkeys(["postprocess", "explain_handle", "compile", "handle", "preprocess"], Percentiles(1, 2, 3))
    page = written(mar, *((asked(), answer(stages=each)) for each in times), stages=seen)
    plotted = re.findall(r'<text x="0" y="\d+\.0">(\w+)</text>\s*<rect class="(\w+)"', page)
    colors = dict(plotted)
    assert colors["compile"] == colors["handle"]
    assert len(set(colors.values())) == 4
    strips = [re.findall(r'<i class="(\w+)" style="width', strip) for strip in re.findall('<div class="strip".*', page)]
    assert strips == [
        [colors[name] for name in ("preprocess", "postprocess", "explain_handle", "handle")],
        [colors[name] for name in ("postprocess", "explain_handle", "handle")],
    ]
    columns = re.findall(r'<rect class="(\w+)" x="[\d.]+" y="[\d.]+" width="219', page)
    assert columns == [colors["handle"]] * 2


def test_inputs_are_plotted_by_the_time_of_their_call(mar: Path):
    times = [{"handle": 1.0}, {}, {"handle": 3.0}]
    spread = {"handle": Percentiles(1.0, 2.0, 3.0)}
    page = written(mar, *((asked(), answer(stages=stages)) for stages in times), stages=spread)
    assert page.count("<rect class=") == 2 + 2  # of the stage, and of the inputs that reached the handler
    assert "up to 3.0 ms" in page
