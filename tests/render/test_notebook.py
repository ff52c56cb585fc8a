"""Results in a notebook: escaped, visible, bounded, and without effects outside their cell."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from render.browser import Browser
from render.reports import Markup

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
from marpack.weights.kind import Program, ProgramKind, WeightsFormat

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "\"' onmouseover=alert(1) x='\"",
    "{{ 7*7 }}{% include 'x' %}",
    "a\x00b\x1b[31mc\x7f",
    "\u202egnp.exe",
    "\ud800",
    "x" * 300_000,
    "line\nline",
    "&amp;&lt;",
)
MANY = 100


def findings(text: str) -> tuple[Finding, ...]:
    return (Finding(code=text, severity=Severity.ERROR, message=text, where=text, hint=text),) * MANY


def build(text: str) -> BuildReport:
    values: dict[str, Any] = {"path": text, "content_digest": text, "modules": (text,), "findings": findings(text)}
    return BuildReport(format=Format.DEFAULT, size=1, members=1, seconds=1.0, **values)


def init(text: str) -> InitReport:
    values: dict[str, Any] = dict.fromkeys(("written", "replaced", "skipped"), (text,) * MANY)
    return InitReport(folder=text, name=text, template=text, findings=findings(text), **values)


def unpack(text: str) -> Unpacked:
    return Unpacked(source=text, folder=text, files=(text,) * MANY, bytes=1, findings=findings(text))


def inspect(text: str) -> Inspection:
    tensor = TensorFacts(name=text, dtype=text, shape=(1,), bytes=1)
    imported: dict[str, Any] = {"globals": (text,) * MANY, "opcodes": 1, "weights_only": False, "runs_no_code": False}
    pickle = PickleFacts(where=text, verdict=PickleVerdict.DANGEROUS, **imported)
    held: dict[str, Any] = {"tensors": 1, "dtypes": {text: 1}, "largest": (tensor,), "metadata": {text: text}}
    weights = WeightsFacts(member=text, kind=WeightsFormat.STATE_DICT, **held)
    model = {"modelName": text, "modelVersion": text}
    values: dict[str, Any] = {"manifest": {"model": model, "runtime": text, "createdOn": text}}
    stored = MemberFacts(name=text, size=2, compressed_size=1, method=Method.STORED, sha256=text)
    values |= {"members": (stored,) * MANY}
    values |= {"handler": HandlerFacts(entry_point=text, file=text, class_name=text, bases=(text,))}
    values |= {"config": ConfigFacts(file=text, text=f"a: 1\n  b: {text}\n" * MANY), "weights": (weights,) * 50}
    values |= {"labels": LabelFacts(count=9, first=(text,)), "requirements": (text,) * MANY}
    values |= {"pickles": PickleScan(verdict=PickleVerdict.DANGEROUS, pickles=(pickle,) * MANY)}
    values |= {"programs": (Program(text, ProgramKind.NATIVE),) * MANY, "findings": findings(text)}
    return Inspection(source=text, form=ArchiveForm.MAR, content_digest=text, provenance={"builder": text}, **values)


def diff(text: str) -> Diff:
    part = FieldDifference(name=text, change=Change.CHANGED, before=text, after=[text])
    added = FieldDifference(name=text, change=Change.ADDED, after={"dtype": text, "shape": [1]})
    tensors = TensorDiff(member=text, other=f"{text}2", same=1, problem=text, differences=(added,) * MANY)
    parts: dict[str, Any] = {"manifest": (part,) * MANY, "config": (part,), "labels": (part,), "tensors": (tensors,)}
    return Diff(before=text, after=text, same=False, **parts)


def gate_report(text: str, *checks: CheckResult) -> GateReport:
    values: dict[str, Any] = dict.fromkeys(("archive", "project", "content_digest", "target", "model", "loaded"), text)
    values |= {"device": text, "verdict": GateVerdict.PARTIAL, "deployable": False}
    return GateReport(checks=checks, seconds=1.0, **values)


def check(text: str) -> GateReport:
    values: dict[str, Any] = {"verdict": Verdict.FAILED, "reason": text, "findings": findings(text), "seconds": 1.0}
    return gate_report(text, CheckResult(name="loads", title="it loads", **values))


def result_of(text: str, **changes: Any) -> Result:
    frame = Frame(text, 1, text, text, user=True)
    trouble = Trouble(kind=text, message=text, stage=text, frames=(frame,) * MANY, hint=text)
    values: dict[str, Any] = dict.fromkeys(("input", "phrase", "content_type", "body", "logs"), text)
    values |= {"status": 200, "headers": {text: text}, "body_encoding": "text", "seconds": 1.0}
    values |= {"stages": {"handle": 1.5, "preprocess": 0.5}, "troubles": (trouble,) * MANY}
    return Result(**values | changes)


def run(text: str) -> RunReport:
    summed: dict[str, Any] = {"inputs": MANY, "answered": MANY, "short": 0, "seconds": 1.0, "throughput": 1.0}
    summary = Summary(stages={text: Percentiles(1, 2, 3)}, restarts=1, peak_memory=1, **summed)
    values: dict[str, Any] = dict.fromkeys(("archive", "content_digest", "target", "load_logs"), text)
    values |= {"loaded": Loaded(handler=text, stages={}, device=text), "findings": findings(text)[:1]}
    failure = Failure(error=text, code=text, exit_code=1)
    return RunReport(results=(result_of(text),) * MANY, summary=summary, failure=failure, **values)


def answer(text: str, **changes: Any) -> str:
    request = Request(id="1", parts=(Part(text, text.encode("utf-8", "surrogatepass"), "text/plain"),))
    return notebook.answer(AnsweredInput(Input(text, request), result_of(text, **changes)), {"0": text}, text)


PAGES: tuple[Callable[[str], object], ...] = (build, init, unpack, inspect, diff, check, run)
SHOWN: dict[str, Callable[[str], str]] = {
    make.__name__: lambda text, make=make: notebook.shown(make(text))  # type: ignore[misc]
    for make in PAGES
}
SHOWN |= {"answer": answer, "classes": lambda text: answer(text, body=json.dumps({text: 0.5, "b": 0.25}))}


@pytest.mark.parametrize("name", SHOWN)
def test_hostile_text_of_an_archive_stays_text(name: str) -> None:
    calm = Markup(SHOWN[name]("calm"))
    sizes = {"width", "height", "loading", "decoding", "aria-hidden"}
    for text in HOSTILE:
        page = SHOWN[name](text)
        elements = Markup(page)
        assert set(elements.tags) <= {*calm.tags, "p"}
        attributes = {attribute for attribute, _ in elements.attributes}
        assert attributes <= {"class", "style", "src", "alt", "title"} | sizes
        assert not {"script", "id"} & ({*elements.tags} | attributes)
        assert [letter for letter in set(page) - {"\n", "\t"} if not letter.isprintable()] == []
        page.encode()
        assert len(page) < 250_000


@pytest.mark.parametrize("name", SHOWN)
def test_a_result_is_one_element_and_fetches_nothing(name: str) -> None:
    page = SHOWN[name]("calm")
    elements = Markup(page)
    assert (elements.tags[0], elements.attributes[0]) == ("div", ("class", "marpack"))
    assert page.strip().endswith("</div>")
    assert "calm" in elements.text
    assert all(source.startswith("data:") for source in (*elements.values("src"), *elements.values("href")))
    style = page[page.index("<style>") + 7 : page.index("</style>")].strip()
    assert style.startswith(".marpack.marpack {")
    assert not re.search(r"@import|url\(", style)


@pytest.mark.parametrize("name", ["inspect", "diff", "run", "build", "check"])
def test_no_more_than_forty_rows_are_shown(name: str) -> None:
    page = SHOWN[name]("calm")
    assert "… and 60 more" in page
    for table in re.findall(r"<tbody>.*?</tbody>", page, re.DOTALL):
        assert table.count("<tr>") <= 40


def test_a_picture_is_beside_its_response_and_a_check_that_was_left_out_is_not_shown(png: bytes) -> None:
    request = Input("x", Request(id="1", parts=(Part("body", png, "image/png"),)))
    page = notebook.answer(AnsweredInput(request, result_of("x", body='{"cat": 0.75, "dog": 0.25}')), {}, "")
    assert "data:image/png;base64," in page
    assert "75.0 %" in page
    left_out = CheckResult(name="memory", title="it stays", verdict=Verdict.SKIPPED, reason="left out")
    asked = CheckResult(name="labels", title="they fit", verdict=Verdict.SKIPPED, reason="no labels")
    page = notebook.shown(gate_report("x", left_out, asked))
    assert ("no labels" in page, "it stays" in page, "1 left out" in page) == (True, False, True)


@pytest.mark.peer
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


@pytest.mark.slow
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
