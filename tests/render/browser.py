"""Chromium, driven through its pipe: open a page, look at it as a person would, listen for what it asks for."""

import base64
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
    # A page that is left ends: it is not kept for a way back, and the next one takes its frame.
    "--disable-features=BackForwardCache,PaintHolding,RenderDocument",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


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

    def picture(self, path: Path, *, whole: bool = False) -> None:
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def fetched(self) -> list[str]:
        """Every address that the page asked for, but those that hold their own data."""
        asked = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        addresses: list[str] = [each["request"]["url"] for each in asked]
        return [address for address in addresses if not address.startswith("data:")]

    @property
    def complaints(self) -> list[str]:
        """What the browser logged, and the page's own errors."""
        entries = [event["params"]["entry"] for event in self.events if event.get("method") == "Log.entryAdded"]
        logged = [f"{entry['text']} {entry.get('url', '')}".strip() for entry in entries]
        return logged + [str(event) for event in self.events if event.get("method") == "Runtime.exceptionThrown"]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the browser's path; without one the pages are not opened, or, where it is demanded, the test fails."""
    if CHROMIUM is None:
        demanded = os.environ.get("MARPACK_REQUIRE_BROWSER") == "1"
        (pytest.fail if demanded else pytest.skip)("no Chromium here: the page is not opened")
    return CHROMIUM


@pytest.fixture(scope="session")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(Path(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser
