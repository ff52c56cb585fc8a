"""The page that a served model is tried on, clicked through in Chromium."""

import json
import shlex
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from render.browser import CONTRAST, Browser
from serving.page_server import HOSTILE, MODELS, SAMPLES, PageServer, model, picture

from marpack.serving.models import ModelState

pytestmark = pytest.mark.slow  # a browser costs more than most of the day's tests

ANSWERED = "!document.querySelector('#answer').hidden && document.querySelector('#send').textContent === 'Send'"
LOOKED_AT = "document.dispatchEvent(new Event('visibilitychange')) && true"
# Of an element that has been scrolled to and moves no more.
CENTRE = """(async () => {
    const element = document.querySelector(%s);
    const frame = () => new Promise((seen) => requestAnimationFrame(seen));
    for (let last = null; ; ) {
        element.scrollIntoView({block: 'center'});
        await frame();
        const box = element.getBoundingClientRect();
        if (box.y === last) return [box.x + box.width / 2, box.y + box.height / 2];
        last = box.y;
    }
})()"""
DRAWN = "document.querySelector('#drawn')"


@pytest.fixture(scope="module")
def server(browser: Browser) -> Iterator[PageServer]:
    with PageServer() as server:
        yield server
        browser.open("about:blank")  # ends its polling


@pytest.fixture
def page(server: PageServer, browser: Browser) -> Iterator[Browser]:
    """Open the page again; after the test, the browser's log must be empty."""
    server.models = MODELS
    server.asked.clear()
    browser.open(server.address)
    yield browser
    # The page polls its state; on a busy machine Chromium may lose one of these connections, and the page polls again.
    lost = f"Failed to load resource: net::ERR_CONNECTION_RESET {server.address}/page/state"
    assert [complaint for complaint in browser.complaints if complaint != lost] == []
    assert {address.split("/")[2] for address in browser.fetched if address.startswith("http")} == {
        server.address.removeprefix("http://")
    }
    assert browser.value("document.title") == "marpack serve"


def wait(page: Browser, script: str) -> Any:
    """Return a script's value as soon as it is true."""
    end = time.monotonic() + 60
    while not (value := page.value(script)):
        assert time.monotonic() < end, f"this never came true: {script}"
        time.sleep(0.005)
    return value


def click(page: Browser, selector: str) -> None:
    """Click as a mouse does, where the element is."""
    x, y = page.value(CENTRE % json.dumps(selector))
    for kind in ("mousePressed", "mouseReleased"):
        page.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def press(page: Browser, key: str, code: int, modifiers: int = 0, text: str = "") -> None:
    given = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
    page.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **given)
    page.ask("Input.dispatchKeyEvent", type="keyUp", **given)


def write(page: Browser, text: str) -> None:
    page.value("document.querySelector('#text').focus()")
    page.ask("Input.insertText", text=text)


def choose_model(page: Browser, name: str) -> None:
    number = [each.name for each in MODELS].index(name) + 1
    click(page, f".model:nth-child({number})")
    title = page.value("document.querySelector('#asked-model').textContent")
    assert title.startswith(f"Send an input to {name.rstrip()[:40]}")


def send(page: Browser, button: str = "#send") -> None:
    page.value("document.querySelector('#answer').hidden = true")  # that of before
    click(page, button)
    wait(page, ANSWERED)


def send_text(page: Browser, text: str, kind: str = "text") -> None:
    click(page, f"label[for=kind-{kind}]")
    write(page, text)
    send(page)


def texts(page: Browser, selector: str) -> list[str]:
    found: list[str] = page.value(f"[...document.querySelectorAll('{selector}')].map(e => e.textContent)")
    return found


def command_of(page: Browser) -> list[str]:
    """Return the words of the command as a shell takes them."""
    return shlex.split(page.value("document.querySelector('#curl').textContent").replace("|\n", "| "))


def test_the_models_are_listed(page: Browser):
    assert texts(page, ".model .name") == [each.name for each in MODELS]
    assert texts(page, ".model .facts b") == ["ready"] * 4 + ["loading", "failed", "ready"]
    colors = page.value("[...document.querySelectorAll('.model .facts b')].map(e => e.className)")
    assert colors == ["good"] * 4 + ["warn", "bad", "good"]
    assert texts(page, ".model .detail") == [each.detail for each in MODELS if each.detail]
    first = page.value("document.querySelector('.model .facts').textContent")
    assert first == "ready1 workerp50 12.1 ms"
    assert page.value("document.querySelectorAll('.model svg').length") == 1
    assert page.value("document.querySelector('.model polyline').getAttribute('points').split(' ').length") == 7


def test_changes_of_the_models_are_shown_without_a_click(page: Browser, server: PageServer):
    choose_model(page, "segmenter")
    server.models = (MODELS[3], model("slow", latencies=(5.0,)), model("late", state=ModelState.LOADING))
    page.value(LOOKED_AT)
    wait(page, "document.querySelectorAll('.model').length === 3")
    assert texts(page, ".model .name") == ["segmenter", "slow", "late"]
    assert texts(page, ".model .facts b") == ["ready", "ready", "loading"]
    assert page.value("document.activeElement.closest('.model')?.querySelector('.name').textContent") == "segmenter"
    server.models = (model("idle", state=ModelState.EMPTY, workers=0),)
    page.value(LOOKED_AT)
    wait(page, "document.querySelector('.model .name').textContent === 'idle'")
    assert page.value("document.querySelector('.model .facts').textContent") == "no workers"
    server.models = ()
    page.value(LOOKED_AT)
    wait(page, "document.querySelectorAll('.model').length === 0")
    assert page.value("document.querySelector('#send').disabled")
    assert not page.value("document.querySelector('#asked-model').textContent").startswith("Ask")


def test_a_picture_from_the_picker(page: Browser, server: PageServer, tmp_path: Path):
    file = tmp_path / "a b'c.png"
    file.write_bytes(picture())
    root = page.ask("DOM.getDocument")["root"]["nodeId"]
    node = page.ask("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.ask("DOM.setFileInputFiles", nodeId=node, files=[str(file)])
    wait(page, "document.querySelector('#preview').naturalWidth")
    send(page)
    assert server.asked == [("digits", "1.0", "image/png", file.read_bytes())]
    assert texts(page, "#drawn .bar .label") == ["seven", "nine", "<b>two</b>", "four"]
    assert texts(page, "#drawn article > h2 .name") == ["digits: a b'c.png"]
    words = ["curl", "-H", "Content-Type: image/png", "--data-binary", "@a b'c.png"]
    assert command_of(page) == [*words, f"{server.address}/predictions/digits"]


def test_typed_inputs_and_the_command_to_send_them(page: Browser, server: PageServer):
    for kind, typed in (("text", 'it\'s $(a)\n"b" `c` \\ @d'), ("json", '{"a": "it\'s"}')):
        page.value("document.querySelector('#text').value = ''")
        send_text(page, typed, kind)
        content_type = {"text": "text/plain", "json": "application/json"}[kind]
        assert server.asked[-1] == ("digits", "1.0", content_type, typed.encode())
        command = ["curl", "-H", f"Content-Type: {content_type}", "--data-raw", typed]
        assert command_of(page) == [*command, f"{server.address}/predictions/digits"]
    click(page, "label[for=kind-text]")
    for number, path in ((2, "detector/1.0"), (3, "detector")):
        click(page, f".model:nth-child({number})")
        send_text(page, "x")
        assert command_of(page)[-1].endswith(f"/predictions/{path}")
    send_text(page, "x" * 4001)
    assert command_of(page)[3:5] == ["--data-binary", "@input.txt"]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_goes_with_one_click_as_it_was_packed(page: Browser, server: PageServer, name: str):
    number = list(SAMPLES).index(name)
    send(page, f".samples button:nth-child({number + 1})")
    assert server.asked == [("digits", "1.0", *SAMPLES[name])]
    words = command_of(page)
    if words[:2] == ["curl", "-s"]:  # what no text field holds comes from the server
        with urllib.request.urlopen(words[2]) as response:
            assert response.read() == SAMPLES[name][1]
        assert words[3:] == ["|", "curl", "-H", f"Content-Type: {SAMPLES[name][0]}", "--data-binary", "@-", words[-1]]
    else:
        assert words[4] == SAMPLES[name][1].decode()


def test_the_positions_of_bars_boxes_and_masks(page: Browser):
    send(page, ".samples button")
    share = "[...document.querySelectorAll('#drawn .bar i')].map(i => i.offsetWidth / i.parentElement.offsetWidth)"
    assert page.value(share)[:2] == [pytest.approx(0.93, abs=0.02), pytest.approx(0.04, abs=0.02)]
    click(page, ".model:nth-child(3)")
    send(page)
    box = "(b => [b.offsetLeft / b.offsetParent.offsetWidth, b.offsetWidth / b.offsetParent.offsetWidth])"
    left, width = page.value(f"{box}({DRAWN}.querySelector('.box'))")
    assert (left, width) == (pytest.approx(20 / 300, abs=0.02), pytest.approx(70 / 300, abs=0.02))
    assert texts(page, "#drawn .box") == ["person 0.98", "dog 0.71"]
    assert texts(page, "#drawn article > h2 .name") == ["detector 2.0: scene.png"]
    choose_model(page, "segmenter")
    send(page, ".samples button")
    assert wait(page, f"{DRAWN}.querySelector('.over').naturalWidth") == 60
    over = "(o => o.offsetHeight / o.offsetParent.offsetHeight)"
    assert page.value(f"{over}({DRAWN}.querySelector('.over'))") == pytest.approx(0.875, abs=0.02)
    legend = [text.split()[0] for text in texts(page, "#drawn .legend li")]
    assert legend == ["0", "<em>car</em>", "tree"]


def test_failed_long_and_binary_responses(page: Browser):
    send_text(page, "please fail")
    assert "KeyError" in page.value(f"{DRAWN}.querySelector('.trouble').textContent")
    assert page.value("document.querySelector('#progress').textContent").startswith("500 Internal Server Error after")
    for text in ("long", "bytes"):
        page.value("document.querySelector('#text').value = ''")
        send_text(page, text)
        assert text == "bytes" or texts(page, "#body") == ["x" * 100_000 + "\n… and 1 more"]
    assert page.value("document.querySelector('#raw').hidden")
    assert wait(page, f"{DRAWN}.querySelector('img').naturalWidth") == 64


def test_a_request_can_be_cancelled_or_replaced_by_another(page: Browser, server: PageServer):
    waits = "document.querySelector('#send').textContent === 'Cancel'"
    choose_model(page, "slow")
    for button in (".samples button", "#send"):  # sends another, cancels
        server.cancelled.clear()
        click(page, ".samples button")
        wait(page, waits)
        assert texts(page, "#progress") == ["Sending to slow…"]
        click(page, button)
        assert server.cancelled.wait(60)
        if button == "#send":
            wait(page, "document.querySelector('#progress').textContent === 'Cancelled.'")
            assert page.value("document.querySelector('#send').textContent") == "Send"
    choose_model(page, "segmenter")
    send(page, ".samples button")
    assert texts(page, "#drawn article > h2 .name") == ["segmenter: scene.png"]
    assert texts(page, "#progress")[0].startswith("200 OK")


def test_a_hostile_name_is_only_a_name(page: Browser, server: PageServer):
    click(page, f".model:nth-child({len(MODELS)})")
    send_text(page, "x")
    assert server.asked == [(HOSTILE, "1.0", "text/plain", b"x")]
    assert texts(page, "#asked-model") == [f"Send an input to {HOSTILE}"]
    url = command_of(page)[-1]
    assert urllib.parse.unquote(url.removeprefix(f"{server.address}/predictions/")) == HOSTILE
    assert page.value("document.querySelectorAll('img[src=\"x\"]').length") == 0
    page.open(f"{server.address}{MODELS[0].samples[-1].url}")  # a sample that is a page with a script
    assert page.value("document.title") == ""
    page.open(server.address)


def test_the_page_works_with_the_keyboard(page: Browser, server: PageServer):
    def tab_to(script: str) -> None:
        for _ in range(30):
            press(page, "Tab", 9)
            if page.value(f"(e => {script})(document.activeElement)"):
                return
        pytest.fail(f"no tab stop: {script}")

    tab_to("e.name === 'model'")
    press(page, "ArrowDown", 40)
    assert texts(page, "#asked-model") == ["Send an input to detector 1.0"]
    tab_to("e.name === 'kind'")
    press(page, "ArrowRight", 39)
    tab_to("e.id === 'text'")
    page.ask("Input.insertText", text="hello")
    press(page, "Enter", 13, modifiers=2)  # Ctrl
    wait(page, ANSWERED)
    assert server.asked == [("detector", "1.0", "text/plain", b"hello")]
    tab_to("e.id === 'send'")
    tab_to("e.id === 'copy'")
    tab_to("e.tagName === 'SUMMARY'")
    press(page, "Enter", 13, text="\r")
    assert page.value("document.activeElement.parentElement.open")


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_is_legible_by_light_and_dark(page: Browser, server: PageServer, dark: bool):
    page.open(server.address, dark=dark)
    send_text(page, "please fail")
    page.value("document.querySelector('#raw').open = document.querySelector('#head').open = true")
    page.value("document.querySelector('#problem').textContent = 'a problem'")
    seen = page.value(CONTRAST)
    assert len(seen) > 40
    assert [each for each in seen if each[0] < 4.5] == []
