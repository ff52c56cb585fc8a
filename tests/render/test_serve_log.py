"""The log of `marpack serve`: its fields in both formats, slow requests, and clients that imitate log lines."""

import json
import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from serving.commands import wait_until
from serving.fronts import in_loop, listening, request
from serving.served import Served, pack, served

from marpack.render.serve import SERVER_LOG, JsonFormatter, TextFormatter, logging_to_stderr
from marpack.serving.api import Answered, Call, Route
from marpack.serving.http import Reply
from marpack.serving.models import WorkerLoaded

HANDLER = """
import time
def handle(data, context):
    if not data:
        return None
    text = bytes(data[0].get("body") or b"").decode()
    if text.startswith("sleep"):
        time.sleep(0.3)
    if text.startswith("raise"):
        raise ValueError(text)
    if text.startswith("print"):
        print(text)
    return ["x"] * len(data)
"""
Form = Literal["text", "json"]
FORMS: tuple[Form, Form] = ("text", "json")
FORGED = "ready forged 1.0"
# Bytes that end lines, or that a terminal obeys, in UTF-8 and in Latin-1; and no UTF-8.
ENDS = (
    b"\x0b",
    b"\x0c",
    b"\x1b[2K",
    b"\x7f",
    b"\x85",
    b"\x9b31m",
    b"\xc2\x85",
    b"\xc2\x9b",
    b"\xe2\x80\xa8",
    b"\xff",
    b"\r",
    b"\n",
)
PLACED = f"\n{FORGED}\r\x1b[2K\x85\u2028\u202e"


def logged(
    form: Form, use: Callable[[Served], object], capsys: pytest.CaptureFixture[str], *archives: Path, **options: object
) -> list[str]:
    """Return the log of a server that was used; a reader may take any line end of Unicode for one."""
    with logging_to_stderr(form), served(*archives, **options) as server:
        use(server)
        wait_until(lambda: server.server.http.connection_count == 0)
    return capsys.readouterr().err.splitlines()


def send(server: Served, line: bytes, *headers: bytes) -> bytes:
    """Send the exact bytes of a head, and return the whole response."""
    host, port = server.inference.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(b"\r\n".join((line, b"Host: x", b"Connection: close", *headers, b"", b"")))
        with client.makefile("rb") as stream:
            return stream.read()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("models"), "m.mar", HANDLER)


@pytest.mark.parametrize("form", FORMS)
def test_slow_requests_are_warnings_with_all_fields(
    form: Form, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids: list[str] = []

    def use(server: Served) -> None:
        for text in (b"sleep", b"fast", b"sleep"):
            headers = server.request("POST", "/predictions/m", text, {"X-Request-Id": "mine"})[1]
            ids.append(headers["x-request-id"])

    lines = [line for line in logged(form, use, capsys, archive, log_slow=0.2) if "/predictions/m" in line]
    assert "mine" not in ids
    assert [identifier in line for identifier, line in zip((ids[0], ids[2]), lines, strict=True)] == [True, True]
    for line in lines:
        if form == "text":
            number = r"[\d.]+ m?s"
            times = rf"m 1\.0 {number} \(queue {number}, handler {number}\)"
            assert re.fullmatch(rf"slow 200 POST /predictions/m {times} [0-9a-f-]{{36}}", line)
        else:
            event = json.loads(line)
            found = [event[key] for key in ("level", "event", "model", "version", "status")]
            assert found == ["warning", "answered", "m", "1.0", 200]
            assert event["milliseconds"] >= event["handler_ms"] >= 300
            assert event["queue_ms"] >= 0


def test_with_all_requests_logged_the_slow_ones_differ_in_level(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def use(server: Served) -> None:
        for text in (b"sleep", b"fast", b"raise"):
            server.request("POST", "/predictions/m", text)
        server.request("GET", "/nothing")

    lines = [json.loads(line) for line in logged("json", use, capsys, archive, log_requests=True, log_slow=0.2)]
    found = [(line["level"], line["status"], line["model"]) for line in lines if line["event"] == "answered"]
    assert found == [("warning", 200, "m"), ("info", 200, "m"), ("info", 503, "m"), ("info", 404, None)]


@pytest.mark.parametrize("form", FORMS)
def test_a_client_that_left_is_logged_with_its_time_in_the_queue(
    form: Form, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def use(server: Served) -> None:
        host, port = server.inference.split(":")
        head = b"POST /predictions/m HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nsleep"
        with (
            socket.create_connection((host, int(port))) as first,
            socket.create_connection((host, int(port))) as second,
        ):
            first.sendall(head)
            wait_until(lambda: server.server.registry.find("m").workers[0].in_flight)
            second.sendall(head)
            wait_until(lambda: len(server.server.registry.find("m").queue))

    lines = [line for line in logged(form, use, capsys, archive, log_requests=True) if "/predictions/m" in line]
    assert len(lines) == 2
    if form == "json":
        events = sorted(map(json.loads, lines), key=lambda event: event["milliseconds"])
        assert [(event["status"], event["queue_ms"] is None) for event in events] == [(0, False), (0, False)]
    else:
        assert all(line.startswith("gone ") and "(queue " in line for line in lines)


@pytest.mark.parametrize("form", FORMS)
def test_a_client_forges_no_line(form: Form, archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statuses: list[int] = []

    def use(server: Served) -> None:
        for end in ENDS:
            text = end + FORGED.replace(" ", "_").encode()
            places = (b"GET /predictions/%b HTTP/1.1", b"GET /ping?%b HTTP/1.1", b"GE%bT /ping HTTP/1.1")
            sent = [send(server, line % text) for line in places]
            sent.append(send(server, b"GET /ping HTTP/1.1", b"X-Request-Id: " + text))
            statuses.extend(int(each[9:12]) for each in sent)
        escapes = ("%0A", "%1B[2K", "%C2%85", "%E2%80%A8")
        statuses.extend(server.request("POST", f"/predictions/{each}ready_forged")[0] for each in escapes)

    lines = logged(form, use, capsys, archive, log_requests=True)
    assert set(statuses) >= {200, 400, 404}
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith(("ready_forged", "ready forged"))]
    answered = [line for line in lines if "/ping" in line or "/predictions" in line]
    assert len(answered) == len([status for status in statuses if status in {200, 404}])  # the others are no requests
    if form == "json":
        assert {json.loads(line)["event"] for line in lines} <= {"listening", "loaded", "answered"}


@pytest.mark.parametrize("form", FORMS)
def test_a_handler_that_repeats_its_clients_text_forges_no_line(
    form: Form, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def use(server: Served) -> None:
        for verb in ("raise", "print"):
            server.request("POST", "/predictions/m", f"{verb}{PLACED}".encode())
        wait_until(lambda: len(server.log.lines) > 1)

    lines = logged(form, use, capsys, archive)
    assert any(FORGED in line for line in lines)
    assert not [line for line in lines if line.startswith(FORGED) or not line.isprintable()]


@pytest.mark.parametrize("form", FORMS)
def test_a_bug_is_logged_in_the_logs_format(form: Form, capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(call: Call) -> Reply:
        raise KeyError(f"a bug{PLACED}")

    @in_loop
    async def use() -> None:
        async with listening(Route("/bug", fail)) as at:
            assert b" 500 " in await at.said(request("/bug"))

    with logging_to_stderr(form):
        use()
    lines = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() and not line.startswith(FORGED) for line in lines)
    if form == "json":
        (event,) = [event for event in map(json.loads, lines) if event["level"] == "error"]
        assert "KeyError" in event["traceback"]
    else:
        assert all(line.startswith(("note ", " ")) for line in lines)
        assert any("KeyError" in line for line in lines)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_no_name_of_a_model_or_a_request_forges_a_line(formatter: logging.Formatter) -> None:
    name = f"m{PLACED}\udcff"
    fields = {"id": name, "method": name, "target": name, "remote": name, "model": name, "version": name}
    events = (Answered(status=200, milliseconds=1.0, **fields), WorkerLoaded(name, 1, name, name, 1.0), f"note {name}")
    for event in events:
        line = formatter.format(logging.LogRecord(SERVER_LOG.name, logging.INFO, "", 0, event, None, None))
        assert line.encode("utf-8", "backslashreplace").decode().isprintable()
