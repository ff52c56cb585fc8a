"""The site is built strictly; its links, and the README's, lead somewhere; its pictures need nothing from elsewhere."""

import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from render.browser import Browser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.*"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Page(HTMLParser):
    """The names and the links of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for key, value in attributes:
            if key in {"id", "name"} and value:
                self.names.add(value)
            if key in {"href", "src"} and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site needs marpack[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.peer  # it builds the site
def test_every_link_of_the_site_leads_somewhere(site: Path):
    pages = {path: parsed(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 15
    for path, page in pages.items():
        for link in page.links:
            if "://" in link or link.startswith(("mailto:", "data:")):
                continue
            target, name = urldefrag(unquote(link))
            found = (path.parent / target).resolve() if target else path
            found = found / "index.html" if found.is_dir() else found
            assert found.is_file(), f"{path.relative_to(site)}: {link}"
            known = pages[found].names if found in pages else {name}
            assert not name or name in known, f"{path.relative_to(site)}: {link}"


@pytest.mark.peer
def test_the_site_fetches_nothing_from_elsewhere(site: Path):
    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"https?:|<link[^>]+rel=\"(?:stylesheet|preconnect)\"[^>]+https?:"
    )
    for path in site.rglob("*.html"):
        assert not fetched.search(path.read_text()), path


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("tutorial/index.html", marks=pytest.mark.peer),
        pytest.param("**/index.html", marks=pytest.mark.slow),  # two pictures of each page take a quarter of a minute
    ],
)
def test_every_page_fits_its_window(site: Path, served: str, browser: Browser, pattern: str):
    for path in sorted(site.glob(pattern)):
        page = f"{served}/{path.parent.relative_to(site).as_posix()}/"
        for width, dark in ((1280, False), (390, True)):  # no width depends on the colors
            browser.open(page, width=width, dark=dark)
            browser.value("localStorage.clear()")  # where the theme keeps which palette it showed first
            browser.open(page, width=width, dark=dark)
            assert browser.value("document.body.dataset.mdColorScheme") == ("slate" if dark else "default"), page
            assert browser.value("document.documentElement.scrollWidth") == width, page
            assert not browser.complaints, page


def parsed(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text())
    return page


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for path in DOCS.rglob("*.md"):
        assert f": {path.relative_to(DOCS).as_posix()}\n" in navigation


def test_the_readmes_links_lead_somewhere():
    links = LINK.findall((ROOT / "README.md").read_text())
    assert links
    for link in links:
        assert "://" in link or (ROOT / urldefrag(link)[0]).is_file(), link


def test_the_readme_is_short_and_has_the_two_commands_for_a_fresh_machine():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert text.index("make demo") < text.index("make test") < text.index("marpack init")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_shown_and_needs_nothing_else(picture: Path):
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    assert any(f"pictures/{picture.name}" in page.read_text() for page in pages)
    if picture.suffix != ".svg":
        return
    text = picture.read_text()
    ET.fromstring(text)
    assert not re.search(r"url\(.?https?:|@import|<script", text)
    assert not re.search(r"/(?:tmp|home|root|work|Users)/", text)
