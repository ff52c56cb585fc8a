"""What a notebook shows of each result: all of it escaped, visible and bounded, and nothing beyond its own cell."""

import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from render.browser import Browser

from marpack.archive.protocol import ArchiveForm, Method
from marpack.archive.reader import Unpacked
from marpack.findings import Finding, Severity
from marpack.gate.verdicts import CheckResult, GateReport, GateVerdict, Verdict
from marpack.inspection.diff import Change, Diff, FieldDifference, TensorDiff
from marpack.inspection.facts import (
    ConfigFacts,
    HandlerFacts,
    Inspection,
    LabelFacts,
    MemberFacts,
    TensorFacts,
    WeightsFacts,
)
from marpack.inspection.pickles import PickleFacts, PickleScan, PickleVerdict
from marpack.project.plan import Format
from marpack.protocol.messages import Frame, Loaded, Trouble
from marpack.render import notebook
from marpack.render.build import BuildReport, InitReport
from marpack.render.failure import Failure
from marpack.render.run import RunReport
from marpack.runner.inputs import Input
from marpack.runner.results import AnsweredInput, Percentiles, Result, Summary
from marpack.torchserve.http import Part, Request
from marpack.weights.kind import WeightsFormat
from marpack.weights.programs import Program, ProgramKind

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\"' onmouseover=alert(1) x='\"",
    "{{ 7*7 }}{% include 'x' %}",
    "a\x00b\x1b[31mc\x7f",
    "\u202egnp.exe",
    "\ud800",
    "x" * 1_000_000,
    "line\nline",
    "&amp;&lt;",
)
MANY = 100


def finding(text: str) -> Finding:
    return Finding(code=text, severity=Severity.ERROR, message=text, where=text, hint=text)


def build(text: str) -> str:
    findings = (finding(text),) * MANY
    return notebook.shown(
        BuildReport(
            path=text,
            format=Format.DEFAULT,
            size=1,
            content_digest=text,
            members=1,
            seconds=1.0,
            modules=(text,),
            findings=findings,
        )
    )


def init(text: str) -> str:
    names = (text,) * MANY
    return notebook.shown(
        InitReport(
            folder=text,
            name=text,
            template=text,
            written=names,
            replaced=names,
            skipped=names,
            findings=(finding(text),),
        )
    )


def unpack(text: str) -> str:
    return notebook.shown(Unpacked(source=text, folder=text, files=(text,) * MANY, bytes=1, findings=(finding(text),)))


def inspect(text: str) -> str:
    tensor = TensorFacts(name=text, dtype=text, shape=(1,), bytes=1)
    pickle = PickleFacts(
        where=text,
        verdict=PickleVerdict.DANGEROUS,
        globals=(text,) * MANY,
        opcodes=1,
        weights_only=False,
        runs_no_code=False,
    )
    weights = WeightsFacts(
        member=text,
        kind=WeightsFormat.STATE_DICT,
        tensors=1,
        dtypes={text: 1},
        largest=(tensor,),
        metadata={text: text},
    )
    facts = Inspection(
        source=text,
        form=ArchiveForm.MAR,
        content_digest=text,
        manifest={"model": {"modelName": text, "modelVersion": text}, "runtime": text, "createdOn": text},
        provenance={"builder": text},
        members=(MemberFacts(name=text, size=2, compressed_size=1, method=Method.STORED, sha256=text),) * MANY,
        handler=HandlerFacts(entry_point=text, file=text, class_name=text, bases=(text,)),
        config=ConfigFacts(file=text, text=f"a: 1\n  b: {text}\n" * MANY),
        labels=LabelFacts(count=9, first=(text,)),
        requirements=(text,) * MANY,
        weights=(weights,) * 50,
        pickles=PickleScan(verdict=PickleVerdict.DANGEROUS, pickles=(pickle,) * MANY),
        programs=(Program(text, ProgramKind.NATIVE),) * MANY,
        findings=(finding(text),) * MANY,
    )
    return notebook.shown(facts)


def diff(text: str) -> str:
    part = FieldDifference(name=text, change=Change.CHANGED, before=text, after=[text])
    tensors = TensorDiff(
        member=text,
        other=f"{text}2",
        same=1,
        problem=text,
        differences=(FieldDifference(name=text, change=Change.ADDED, after={"dtype": text, "shape": [1]}),) * MANY,
    )
    return notebook.shown(
        Diff(
            before=text,
            after=text,
            same=False,
            manifest=(part,) * MANY,
            config=(part,),
            labels=(part,),
            tensors=(tensors,),
        )
    )


def check(text: str) -> str:
    result = CheckResult(
        name="loads",
        title="it loads",
        verdict=Verdict.FAILED,
        reason=text,
        findings=(finding(text),) * MANY,
        seconds=1.0,
    )
    return notebook.shown(
        GateReport(
            archive=text,
            project=text,
            content_digest=text,
            target=text,
            model=text,
            loaded=text,
            device=text,
            verdict=GateVerdict.REFUSED,
            deployable=False,
            checks=(result,),
            seconds=1.0,
        )
    )


def result_of(text: str, **changes: Any) -> Result:
    frame = Frame(text, 1, text, text, user=True)
    trouble = Trouble(kind=text, message=text, stage=text, frames=(frame,) * MANY, hint=text)
    values: dict[str, Any] = {
        "input": text,
        "status": 200,
        "phrase": text,
        "headers": {text: text},
        "content_type": text,
        "body": text,
        "body_encoding": "text",
        "stages": {"handle": 1.5, "preprocess": 0.5},
        "seconds": 1.0,
        "logs": text,
        "troubles": (trouble,) * MANY,
    }
    return Result(**values | changes)


def run(text: str) -> str:
    summary = Summary(
        inputs=MANY,
        answered=MANY,
        short=0,
        seconds=1.0,
        throughput=1.0,
        stages={text: Percentiles(1, 2, 3)},
        restarts=1,
        peak_memory=1,
    )
    return notebook.shown(
        RunReport(
            archive=text,
            content_digest=text,
            target=text,
            loaded=Loaded(handler=text, stages={}, device=text),
            load_logs=text,
            findings=(finding(text),),
            results=(result_of(text),) * MANY,
            summary=summary,
            failure=Failure(error=text, code=text, exit_code=1),
        )
    )


def answer(text: str, **changes: Any) -> str:
    request = Request(id="1", parts=(Part(text, text.encode("utf-8", "surrogatepass"), "text/plain"),))
    return notebook.answer(AnsweredInput(Input(text, request), result_of(text, **changes)), {"0": text}, text)


def classes(text: str) -> str:

    return answer(text, body=json.dumps({text: 0.5, "b": 0.25}))


SHOWN: dict[str, Callable[[str], str]] = {
    "build": build,
    "init": init,
    "unpack": unpack,
    "inspect": inspect,
    "diff": diff,
    "check": check,
    "run": run,
    "answer": answer,
    "classes": classes,
}


class Elements(HTMLParser):
    """Every element of a page with its attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"img", "meta"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("text", HOSTILE, ids=[repr(text[:12]) for text in HOSTILE])
def test_nothing_of_the_archives_is_obeyed(name: str, text: str) -> None:
    page = SHOWN[name](text)
    calm = Elements(SHOWN[name]("calm"))
    elements = Elements(page)
    assert elements.open == []
    assert {tag for tag, _ in elements.found} <= {tag for tag, _ in calm.found} | {"p"}
    attributes = {attribute for _, each in elements.found for attribute in each}
    assert attributes <= {
        "class",
        "style",
        "src",
        "alt",
        "title",
        "width",
        "height",
        "loading",
        "decoding",
        "aria-hidden",
    }
    assert not {"script", "id"} & ({tag for tag, _ in elements.found} | attributes)
    letters = set(page) - {"\n", "\t"}
    assert all(letter.isprintable() for letter in letters), sorted(
        letter for letter in letters if not letter.isprintable()
    )
    page.encode()
    assert len(page) < 250_000


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_one_element_that_fetches_nothing(name: str) -> None:
    page = SHOWN[name]("calm")
    elements = Elements(page)
    assert elements.found[0] == ("div", {"class": "marpack"})
    assert page.strip().endswith("</div>")
    assert "calm" in "".join(elements.text)
    sources = [value for _, each in elements.found for key, value in each.items() if key in {"src", "href"}]
    assert all((source or "").startswith("data:") for source in sources)
    style = page[page.index("<style>") + 7 : page.index("</style>")].strip()
    assert style.startswith(".marpack.marpack {")
    assert not re.search(r"@import|url\(", style)


@pytest.mark.parametrize(("name", "more"), [("inspect", 60), ("diff", 60), ("run", 60), ("build", 60), ("check", 60)])
def test_no_more_than_forty_rows_are_shown(name: str, more: int) -> None:
    page = SHOWN[name]("calm")
    assert f"… and {more} more" in page
    for table in re.findall(r"<tbody>.*?</tbody>", page, re.DOTALL):
        assert table.count("<tr>") <= 40


def test_a_picture_stands_beside_its_answer() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 30)).save(buffer, "PNG")
    request = Request(id="1", parts=(Part("body", buffer.getvalue(), "image/png"),))
    page = notebook.answer(
        AnsweredInput(Input("x", request), result_of("x", body='{"cat": 0.75, "dog": 0.25}')), {}, ""
    )
    assert "data:image/png;base64," in page
    assert "75.0 %" in page


def test_each_theme_is_legible(browser: Browser, tmp_path: Path) -> None:
    cells = "".join(SHOWN[name]("calm") for name in SHOWN)
    for system in (False, True):
        for theme, background in (("true", "rgb(255, 255, 255)"), ("false", "rgb(31, 33, 35)")):
            page = tmp_path / f"{theme}.html"
            page.write_text(f'<!doctype html><meta charset=utf-8><body data-jp-theme-light="{theme}">{cells}')
            browser.open(page, dark=system)
            script = "[...document.querySelectorAll('.card, article')].map(e => getComputedStyle(e).backgroundColor)"
            assert set(browser.value(script)) == {background}
            assert (browser.complaints, browser.fetched[1:]) == ([], [])


def test_the_page_around_it_stays_as_it_is(browser: Browser, tmp_path: Path) -> None:
    own = "<p id=own>own</p><table id=table><tr><td>1</td></tr></table><h2 id=h2>own</h2><article id=a>own</article>"
    script = (
        "['own', 'table', 'h2', 'a'].map(id => document.getElementById(id)).map(e => getComputedStyle(e)).map(style =>"
        " [...style].map(name => `${name}: ${style.getPropertyValue(name)}`).join(';')).join('|')"
    )
    seen = []
    for name, cells in (("without", ""), ("with", "".join(SHOWN[each]("calm") for each in SHOWN))):
        page = tmp_path / f"{name}.html"
        page.write_text(f"<!doctype html><meta charset=utf-8><body style='width:500px;overflow-y:scroll'>{own}{cells}")
        browser.open(page)
        seen.append(browser.value(script))
    assert seen[0] == seen[1]


def test_a_check_that_nobody_asked_for_is_not_shown() -> None:
    left_out = CheckResult(name="memory", title="it stays", verdict=Verdict.SKIPPED, reason="left out")
    asked = CheckResult(name="labels", title="they fit", verdict=Verdict.SKIPPED, reason="no labels")
    page = notebook.shown(
        GateReport(
            archive="x",
            content_digest=None,
            target="torchserve",
            verdict=GateVerdict.PARTIAL,
            deployable=False,
            checks=(left_out, asked),
            seconds=1.0,
        )
    )
    assert "no labels" in page
    assert "it stays" not in page
    assert "1 left out" in page
