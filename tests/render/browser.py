"""Chromium, driven through a pipe: its pages, requests and log."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-site-isolation-trials",
    # A page ends when the next one opens: it is not cached, and the next one takes its frame.
    "--disable-features=BackForwardCache,PaintHolding,RenderDocument",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


# The contrast of each visible text to its background, and the text.
CONTRAST = """[...document.querySelectorAll('body *')].filter(e => e.offsetWidth && e.checkVisibility()
    && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !e.closest('.box, .unseen')).map(e => {
    let paper = e;
    while (getComputedStyle(paper).backgroundColor === 'rgba(0, 0, 0, 0)') paper = paper.parentElement;
    const light = (color) => color.match(/\\d+/g).slice(0, 3).map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, index) => sum + c * [0.2126, 0.7152, 0.0722][index], 0);
    const [one, other] = [light(getComputedStyle(e).color), light(getComputedStyle(paper).backgroundColor)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    return [contrast, e.textContent.slice(0, 40)];
})"""


class Browser:
    """One headless Chromium with one empty page, and a profile of its own."""

    def __init__(self, profile: Path) -> None:
        self._profile = profile
        self._sent = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        # It takes descriptors 3 and 4, which may be the very ones that are to be moved there.
        moved = f'exec "$0" "$@" 9<&{to_read} 8>&{to_write} 3<&9 4>&8'
        self._process = subprocess.Popen(
            ["bash", "-c", moved, str(CHROMIUM), *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        (page,) = [each for each in self._ask("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        attached = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("Browser.close")
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._ask(method, session=self._session, **parameters)

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._sent:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise OSError("the browser is gone")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, page: Path | str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        self.events.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, script: str) -> Any:
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    @property
    def fetched(self) -> list[str]:
        """The address of every request but data: URLs."""
        asked = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        addresses: list[str] = [each["request"]["url"] for each in asked]
        return [address for address in addresses if not address.startswith("data:")]

    @property
    def complaints(self) -> list[str]:
        """The browser's log, and the page's own errors."""
        entries = [event["params"]["entry"] for event in self.events if event.get("method") == "Log.entryAdded"]
        logged = [f"{entry['text']} {entry.get('url', '')}".strip() for entry in entries]
        return logged + [str(event) for event in self.events if event.get("method") == "Runtime.exceptionThrown"]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser; without Chromium, skip the test, or fail it where a browser is required."""
    if CHROMIUM is None:
        required = os.environ.get("MARPACK_REQUIRE_BROWSER") == "1"
        (pytest.fail if required else pytest.skip)("Chromium is not installed, so the page is not opened")
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser
