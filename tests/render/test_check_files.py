"""The verdict as an HTML page: whole, self-contained, escaped."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from render.reports import report

from marpack.gate.verdicts import GateVerdict
from marpack.render.check_files import check_page

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Notes the texts of a page, what it refers to, and tags that do not match."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.feed(data.decode())
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [str(value) for name, value in attrs if name in {"src", "href"}]
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def test_it_says_everything_and_escapes_it():
    page = Page(check_page(report()))
    assert "1 passed, 2 failed, 1 skipped" in page.text
    assert 'a <b>"bold"</b> & ' in page.text
    assert "b" not in page.tags
    assert "handler.py:12" in page.text
    assert re.search("failed: 1 problem,.* warning", page.text)
    assert "skipped: preflight failed" in page.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verdict": GateVerdict.DEPLOYABLE, "deployable": True}, "may be deployed, although memory failed: 1 passed"),
        ({"verdict": GateVerdict.INTERRUPTED}, "was not checked to the end: 1 passed"),
    ],
)
def test_the_verdict_is_told_first(changes: dict, words: str):
    assert words in Page(check_page(report(**changes))).text


@pytest.mark.parametrize("verdict", GateVerdict)
def test_every_verdict_has_a_colour(verdict: GateVerdict):
    page = check_page(report(verdict=verdict)).decode()
    assert f'<p class="verdict {verdict}">' in page
    (colour,) = re.findall(rf"\.{verdict}\b[^{{]*{{ color: var\(--(\w+)\); }}", page)
    assert colour == {"deployable": "good", "refused": "bad", "not-proved": "bad"}.get(verdict, "warn")


def test_it_tells_when_it_was_checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.time", lambda: 1767225659.9)
    data = check_page(report())
    assert "checked 2026-01-01 00:00 UTC" in Page(data).text
    assert b'<time datetime="2026-01-01T00:00:59+00:00">' in data


def test_it_needs_nothing_else_and_follows_light_and_dark():
    data = check_page(report()).decode()
    page = Page(data.encode())
    assert page.links == []
    assert not page.tags & {"script", "iframe", "link", "img", "object"}
    assert not re.search(r"url\(|@import|https?://", data)
    assert "prefers-color-scheme: dark" in data
    assert 'name="color-scheme" content="light dark"' in data
    assert """Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""" in data


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_it(chromium: str, tmp_path: Path, scheme: str):
    from PIL import Image

    (tmp_path / "check.html").write_bytes(check_page(report()))
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=900,900"]
    command = [chromium, *options, *dark, f"--user-data-dir={tmp_path / 'profile'}", "--screenshot=page.png"]
    subprocess.run([*command, "check.html"], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    with Image.open(tmp_path / "page.png") as picture:
        corner = picture.convert("RGB").getpixel((5, 890))
        assert (sum(corner) < 200) == (scheme == "dark")
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 50
