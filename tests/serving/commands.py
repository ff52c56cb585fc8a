"""`marpack serve` as a process of its own, on ports of its own, ended by its id."""

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.forked import ForkedServer, start

SECONDS = 30.0  # that anything here may take

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


class Serving:
    """A server that runs, and what it says in its log."""

    def __init__(self, process: ForkedServer) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self.other: list[str] = []  # lines that are no JSON
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            with self._news:
                try:
                    self.events.append(json.loads(line))
                except ValueError:
                    self.other.append(line)
                self._news.notify_all()

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """Return the first event of a kind with these fields, once it is there."""
        end = time.monotonic() + SECONDS
        with self._news:
            while True:
                for each in self.events:
                    if each["event"] == event and all(each.get(name) == value for name, value in fields.items()):
                        return each
                if time.monotonic() > end or (self.process.poll() is not None and not self._reader.is_alive()):
                    raise AssertionError(f"no {event} {fields}: {self.events} {self.other}")
                self._news.wait(0.1)

    def port(self, what: str = "inference") -> int:
        """Return the port that is listened on for something."""
        return int(self.wait_for("listening", what=what)["address"].rsplit(":", 1)[1])

    def request(
        self,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str | None = None,
        what: str = "inference",
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers (lower case) and body of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(what), timeout=SECONDS)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def serving(
    *words: str, cwd: Path, loaded: int = 1, environment: Mapping[str, str] | None = None, forks: bool = False
) -> Iterator[Serving]:
    """Start `marpack serve WORDS` on free ports, wait for so many models to load, and end it.

    `forks`: Its workers are forked, and have no torch imported.
    """
    ports = ["--port", "0", "--metrics-port", "0", "--log-format", "json"]
    process = start(
        "marpack.cli.main",
        ["serve", *ports, *words],
        cwd=cwd,
        environment=os.environ | dict(environment or {}),
        forks=forks,
    )
    server = Serving(process)
    try:
        end = time.monotonic() + SECONDS
        while sum(event["event"] == "loaded" for event in server.events) < loaded:
            assert process.poll() is None, server.other
            assert time.monotonic() < end, server.events
            time.sleep(0.02)
        yield server
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            stream.close()
