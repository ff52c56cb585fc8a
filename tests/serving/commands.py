"""`marpack serve` as a process of its own, on free ports, and its log."""

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from serving.forked import ForkedServer, start

SECONDS = 60.0  # the longest wait

ECHO = """
import time
def handle(data, context):
    if not data:
        return None
    answers = []
    for index, row in enumerate(data):
        body = row.get("body", row)
        text = bytes(body).decode() if isinstance(body, (bytes, bytearray)) else str(body)
        if text.startswith("sleep "):
            time.sleep(float(text.split()[1]))
        if text == "raise":
            raise ValueError("as asked")
        if text == "print":
            print("printed by the handler")
        context.set_response_header(index, "X-Batch", str(len(data)))
        answers.append(f"echo {text}")
    return answers
"""


def wait_until(happens: Callable[[], object], within: float = SECONDS) -> None:
    """Wait until something is true; fail if it is still false in the end."""
    end = time.monotonic() + within
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


class Serving:
    """A running server and its log."""

    def __init__(self, process: ForkedServer) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self.other: list[str] = []  # lines without JSON
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.other.append(line.rstrip("\n"))

    def wait_for(self, event: str, *, times: int = 1, **fields: Any) -> dict[str, Any]:
        """Wait for an event with these fields, and return it."""
        wanted, found = ({"event": event} | fields).items(), list[dict[str, Any]]()

        def logged() -> bool:
            found[:] = [each for each in self.events if wanted <= each.items()]
            return len(found) >= times or not self._reader.is_alive()

        wait_until(logged)
        assert len(found) >= times, f"{wanted}: {self.events} {self.other}"
        return found[times - 1]

    def port(self, what: str = "inference") -> int:
        return int(self.wait_for("listening", what=what)["address"].rsplit(":", 1)[1])

    def workers(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    @contextmanager
    def sending(
        self,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str | None = None,
        what: str = "inference",
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request, and yield the response before its body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(what), timeout=SECONDS)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, dict(headers or {}))
            yield connection.getresponse()
        finally:
            connection.close()

    def request(self, *request: Any, **options: Any) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers (lower case) and body of one response; the arguments are those of `sending`."""
        with self.sending(*request, **options) as response:
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()

    def ask(self, text: str) -> tuple[int, str]:
        """Send a text to the model `probe`; return the status and body."""
        status, _, body = self.request("/predictions/probe", text.encode())
        return status, body.decode()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def serving(
    *words: str,
    cwd: Path,
    loaded: int = 1,
    environment: Mapping[str, str] | None = None,
    forks: bool = False,
    module: str = "",
) -> Iterator[Serving]:
    """Start `marpack serve WORDS` on free ports, or another module's `main`; wait for `loaded` events; end it.

    With `forks`, its workers are forked without torch, and are not its children.
    """
    given = ["serve", "--port", "0", "--metrics-port", "0", "--log-format", "json", *words]
    environment = os.environ | dict(environment or {})
    name = module or "marpack.cli.main"
    process = start(name, words if module else given, cwd=cwd, environment=environment, forks=forks)
    server = Serving(process)
    try:
        if loaded:
            server.wait_for("loaded", times=loaded)
        yield server
    finally:
        process.kill()
        process.wait()
        server._reader.join()
        for stream in (process.stdout, process.stderr):
            stream.close()
