"""The page's routes on a real server with a real model."""

import json
import shutil
from pathlib import Path

import pytest
from serving.commands import ECHO, serving, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
HTML = {"Accept": "text/html,*/*"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "digits"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.mar", "__pycache__"))
    with serving(cwd=folder) as server:
        yield server


def got(server, path, body=None, headers=None):
    status, _, data = server.request(path, body, headers)
    assert status == 200, data
    return json.loads(data)


def test_a_browser_gets_the_page_and_everything_it_is_made_of(server):
    status, headers, body = server.request("/", headers=HTML)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert b"digits" in body
    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
        status, headers, _ = server.request(f"/page/{name}")
        assert (status, headers["content-type"].partition(";")[0]) == (200, kind)
    assert server.request("/page/other.js")[0] == 404


def test_a_packed_sample_can_be_fetched_and_tried(server):
    (model,) = got(server, "/page/state")["models"]
    assert (model["name"], model["version"], model["state"], model["workers"]) == ("digits", "1.0", "ready", 1)
    assert len(model["samples"]) == 12
    sample = next(each for each in model["samples"] if "seven" in each["name"])
    status, headers, data = server.request(sample["url"])
    assert (status, headers["content-type"], data) == (200, "image/png", (EXAMPLE / "samples/seven.png").read_bytes())
    assert "sandbox" in headers["content-security-policy"]
    server.request("/predictions/digits", data)
    assert got(server, "/page/state")["models"][0]["latencies"]
    tried = got(server, "/page/try/digits/1.0", data, {"Content-Type": "image/png"})
    assert tried["status"] == 200
    assert max(json.loads(tried["text"]).items(), key=lambda pair: pair[1])[0] == "7"
    assert "<svg" in tried["html"] or "bar" in tried["html"]
    assert tried["milliseconds"] >= tried["queue_milliseconds"] >= 0
    assert got(server, "/page/state")["models"][0]["latencies"][-1] == tried["milliseconds"]
    failed = got(server, "/page/try/digits/1.0", b"no picture", {"Content-Type": "image/png"})
    assert failed["status"] == 503
    assert "Prediction failed" in failed["text"]
    assert failed["troubles"][0]["kind"] == "UnidentifiedImageError"


def test_other_requests_have_the_originals_errors(server):
    assert json.loads(server.request("/")[2]).keys() == {"name", "version", "models"}
    assert "openapi" in json.loads(server.request("/", method="OPTIONS")[2])
    for number in ("12", "-1", "x", "99999999999"):
        assert server.request(f"/page/samples/digits/1.0/{number}")[0] == 404
    assert server.request("/page/try/digits/1.0")[0] == 405  # a link tries nothing


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Host", "evil.example"),
        ("Host", "localhost.evil.example"),
    ],
)
def test_pages_of_other_sites_get_and_try_nothing(server, header, value):
    stranger = {header: value}
    for path in ("/", "/page/state", "/page/page.js", "/page/samples/digits/1.0/0"):
        status, _, body = server.request(path, headers=HTML | stranger)
        assert status == 403
        assert json.loads(body)["type"] == "ForbiddenException"
    assert server.request("/", headers=stranger)[0] == 403
    assert server.request("/page/try/digits/1.0", b"x", stranger)[0] == 403


def test_other_names_and_sites_are_let_in_where_they_are_named(make_mar, tmp_path):
    words = ["--allowed-host", "models.example", "--cors-origin", "https://tools.example"]
    with serving(str(make_mar(ECHO)), *words, cwd=tmp_path, forks=True) as server:
        assert server.request("/page/state", headers={"Host": "models.example"})[0] == 200
        _, headers, _ = server.request("/page/state", headers={"Origin": "https://tools.example"})
        assert headers["access-control-allow-origin"] == "https://tools.example"
        assert server.request("/page/state", headers={"Origin": "http://tools.example"})[0] == 403


def test_without_workers_and_without_a_page(make_mar, tmp_path):
    archive = str(make_mar(ECHO))
    with serving(archive, "--management-port", "0", cwd=tmp_path, forks=True) as server:
        scale = "/models/probe?min_worker=0&max_worker=0&synchronous=true"
        assert server.request(scale, method="PUT", what="management")[0] == 200
        (model,) = got(server, "/page/state")["models"]
        assert (model["state"], model["workers"], model["detail"]) == ("no workers", 0, "")
    with serving(archive, "--no-page", cwd=tmp_path, forks=True) as server:
        assert json.loads(server.request("/", headers=HTML)[2])["models"] == ["probe"]
        assert server.request("/page/state")[0] == 404


@pytest.mark.peer
def test_a_click_on_a_sample_draws_its_response(server, browser):
    browser.open(f"http://127.0.0.1:{server.port()}/")
    buttons = "[...document.querySelectorAll('#sample-list button')]"
    browser.value(f"{buttons}.find(e => e.textContent.includes('seven')).click()")
    wait_until(lambda: browser.value("document.querySelector('#answer article') !== null"))
    drawn = browser.value("document.querySelector('#answer').textContent")
    assert "200" in drawn
    assert "7" in drawn
    browser.open("about:blank")  # ends its polling
