"""The page that a served model is tried on, as it leaves the server: whole, escaped, and within its policy."""

import json
import re
from typing import Any

import pytest
from render.reports import Markup

from marpack.protocol.messages import Trouble
from marpack.render.serve import page_renderer
from marpack.runner.inputs import RequestDefaults
from marpack.runner.results import AnsweredInput, Result
from marpack.serving.models import ModelState
from marpack.serving.page import PAGE_HEADERS, SAMPLE_HEADERS, PageModel, TriedResponse

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"' onload='alert(1)",
    "--><svg/onload=alert(1)>",
    "{{ 7 * 7 }}",
    "a\nb\u2028c",
    "lone \ud800 half",
)


def model(name: str = "digits", **given: Any) -> PageModel:
    values = {"version": "1.0", "default": True, "state": ModelState.READY, "workers": 1}
    return PageModel(name=name, **(values | given))


def result(body: str = '{"seven": 0.9, "<b>two</b>": 0.1}', **given: Any) -> Result:
    values: dict[str, Any] = {"status": 200, "phrase": "OK", "headers": {}, "content_type": "application/json"}
    values |= {"body_encoding": "text", "stages": {"inference": 2.0, "handle": 4.0}, "seconds": 0.1}
    return Result(input="input", body=body, **(values | given))


def drawn(answer: Result, body: bytes = b"<u>text</u>", content_type: str = "text/plain", handler: str = "x:y") -> str:
    asked = RequestDefaults().input("input", 0, content_type, body)
    return page_renderer().draw(AnsweredInput(asked, answer), {"1": "<em>tree</em>"}, handler)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_page_keeps_to_its_policy(count: int):
    page = Markup(page_renderer().index([model(name) for name in ("one", "two")[:count]]).decode())
    assert page.tags.count("script") == 1
    assert page.values("src") == ["/page/page.js"]
    assert [link for link in page.values("href") if not link.startswith("data:")] == ["/page/page.css"]
    names = {name for name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on")} | names & {"style", "action", "formaction"}
    assert "style" not in page.tags
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'\bat\("([\w-]+)"\)', page_renderer().assets["page.js"].data.decode()))
    assert used - set(ids) == set()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_adds_no_markup(text: str):
    plain = Markup(page_renderer().index([model()]).decode())
    page = Markup(page_renderer().index([model(text, version=text, detail=text, default=False)]).decode())
    assert page.tags == plain.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in plain.attributes]
    (state,) = page.values("data-state")
    (told,) = json.loads(state)["models"]
    readable = text.replace("\ud800", "\\ud800")
    assert (told["name"], told["version"], told["detail"]) == (readable,) * 3


def test_the_state_has_all_that_the_script_reads():
    (state,) = Markup(page_renderer().index([model(latencies=(1.5, 2.0))]).decode()).values("data-state")
    told = {"name": "digits", "version": "1.0", "default": True, "state": "ready", "workers": 1, "detail": ""}
    assert json.loads(state) == {"models": [told | {"latencies": [1.5, 2.0], "samples": []}]}


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("page.js", "text/javascript", ["/page/try/"]),
        ("page.css", "text/css", ["prefers-color-scheme: dark", ".serve main"]),  # the report's, and the page's own
    ],
)
def test_assets_fetch_nothing_from_other_hosts(name: str, kind: str, words: list[str]):
    asset = page_renderer().assets[name]
    text = asset.data.decode()
    assert asset.content_type == f"{kind}; charset=utf-8"
    assert all(each in text for each in words)
    assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|\burl\(", text)


SCENES = {
    "bars": result(),
    "boxes": result('[{"<b>dog</b>": [1, 1, 6, 6], "score": 0.5}]'),
    "mask": result(json.dumps([[x // 8 for x in range(16)] for _ in range(16)])),
    "text": result("</pre><script>alert(1)</script>"),
    "trouble": result("{}", status=500, troubles=(Trouble(kind="<b>K</b>", message="<em>no</em>", hint="<u>do</u>"),)),
    "printed": result(logs="<script>alert(1)</script>"),
}


@pytest.mark.parametrize("scene", SCENES)
def test_responses_are_drawn_within_the_policy(scene: str, png: bytes):
    for body, kind in ((b"<u>text</u>", "text/plain"), (png, "image/png")):
        markup = Markup(drawn(SCENES[scene], body, kind))
        names = {name for name, _ in markup.attributes}
        assert "style" not in names
        assert not {name for name in names if name.startswith("on")}
        assert not {"script", "style", "b", "em", "u"} & set(markup.tags)
        assert all(source.startswith("data:image/") for source in markup.values("src"))


@pytest.mark.parametrize(
    ("scene", "places"),
    [
        ("bars", ["width:90.0%", "width:10.0%"]),
        ("boxes", ["left:12.5%", "top:12.5%", "width:62.5%", "height:62.5%"]),
        ("mask", ["left:0.0%", "top:0.0%", "width:100%", "height:100%"]),
    ],
)
def test_positions_are_attributes_for_the_script(scene: str, places: list[str], png: bytes):
    told = ";".join(Markup(drawn(SCENES[scene], png, "image/png")).values("data-css"))
    assert set(places) <= set(told.split(";"))
    page = Markup(drawn(SCENES["mask"], png, "image/png", "image_segmenter"))
    assert "<em>tree</em>" in page.text
    assert any(each.startswith("left:6.25%;top:6.25%;width:87.5%") for each in page.values("data-css"))


def test_the_policies():
    page, sample = (dict(headers) for headers in (PAGE_HEADERS, SAMPLE_HEADERS))
    rules = dict(rule.split(" ", 1) for rule in page["Content-Security-Policy"].split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "connect-src": "'self'",
        "form-action": "'none'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert sample["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert page["X-Content-Type-Options"] == sample["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(("answer", "text"), [(result("{}"), "{}"), (result("AAAA", body_encoding="base64"), None)])
def test_what_is_told_of_an_answer(answer: Result, text: str | None):
    told = TriedResponse.of(answer, "<p>", [("A", "1"), ("A", "2")], 1.23456, 0.5)
    assert (told.status, told.phrase, told.html, told.text) == (200, "OK", "<p>", text)
    assert told.headers == (("A", "1"), ("A", "2"))
    assert (told.milliseconds, told.queue_milliseconds) == (1.235, 0.5)
