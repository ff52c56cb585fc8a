import asyncio
import resource
import socket
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from refusals import has_code
from serving.fronts import LARGE, LIMIT, Client, Listening, eventually, in_loop, listening, request
from serving.logs import recording

from marpack.errors import UsageError
from marpack.serving.api import Call, Route
from marpack.serving.http import HttpServer, HttpSettings, Reply, _status_line, raise_fd_limit
from marpack.serving.settings import Address
from marpack.torchserve.http import Response

CHUNKED = "transfer-encoding: chunked"
slow = pytest.mark.slow(reason="a second of a slow client each")
PATIENCE = 0.2  # seconds, of servers that lose it soon


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@in_loop
async def test_a_response_has_no_further_headers():
    async with listening() as at, await at.connect() as client:
        answer = await client.get("/echo")
        assert answer.head.startswith(b"HTTP/1.1 200 \r\n")
        assert answer.headers == {
            "connection": "keep-alive",
            "content-length": "0",
            "x-request-id": "an-id",
            "pragma": "no-cache",
            "cache-control": "no-cache; no-store, must-revalidate, private",
            "expires": "Thu, 01 Jan 1970 00:00:00 UTC",
        }
        await client.send(request("/echo", body=b"abc"))
        assert "content-type" not in (await client.answer()).headers


@in_loop
async def test_a_bug_is_logged_and_gets_a_response_as_the_next_request_does():
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    async with listening() as at:
        said = await at.said(request("/fail"))
        assert b" 500 Internal Server Error\r\n" in said
        assert b"InternalServerException" in said
        assert [type(error) for error in told] == [KeyError]
        async with await at.connect() as client:
            assert (await client.get("/echo")).status == 200


@in_loop
async def test_connections_beyond_the_limit_are_closed_and_noted_once():
    async with listening(max_connections=3) as at:
        kept = [await at.connect() for _ in range(3)]
        assert [(await client.get("/echo")).status for client in kept] == [200] * 3
        for _ in range(3):
            assert await at.said(request("/echo")) == b""
        assert [(await client.get("/echo")).status for client in kept] == [200] * 3
        assert len(at.notes) == 1
        assert at.notes[0].startswith("3 connections ")
        for client in kept:
            await client.__aexit__()
        await eventually(lambda: at.http.connection_count == 0)
        async with await at.connect() as client:
            assert (await client.get("/echo")).status == 200


@in_loop
async def test_a_client_that_does_not_read_its_response_is_disconnected():
    async with listening(write_grace=PATIENCE) as at, await at.connect() as client:
        client.writer.transport.pause_reading()
        await client.send(request("/large"))
        await eventually(lambda: at.http.connection_count == 1)
        await eventually(lambda: at.http.connection_count == 0)


@slow
@in_loop
async def test_a_client_that_reads_slowly_gets_the_whole_response_and_may_send_another_request():
    async with listening(write_grace=3 * PATIENCE) as at, await at.connect() as client:
        await client.send(request("/large"))
        await client.reader.readuntil(b"\r\n\r\n")
        size, begun = 0, time.monotonic()
        while size < LARGE:
            size += len(await client.reader.read(1 << 18))
            await asyncio.sleep(0.05)
        assert time.monotonic() - begun > 4 * PATIENCE
        await asyncio.sleep(4 * PATIENCE)
        assert (await client.get("/echo")).status == 200


def test_the_limit_of_descriptors_is_raised_where_possible(monkeypatch: pytest.MonkeyPatch):
    limits = [(1000, 5000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert raise_fd_limit(500) == 500
    assert limits == [(1000, 5000)]
    assert raise_fd_limit(2000) == 2000
    assert limits[-1] == (2256, 5000)
    assert raise_fd_limit(5000) == 5000 - 256
    assert limits[-1] == (5000, 5000)
    limits.append((300, 300))
    with recording() as log:
        HttpServer(HttpSettings(max_request_size=1, max_connections=1000))
    (note,) = log.notes
    assert "44 connections" in note
    assert "ulimit -Hn" in note


@in_loop
async def test_a_unix_socket_is_served_and_removed_and_a_used_address_is_an_error(tmp_path: Path):
    path, file = tmp_path / "socket", tmp_path / "file"
    file.write_text("mine")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # without a listener
    async with listening() as at:
        with pytest.raises(UsageError, match=f" 127.0.0.1:{at.port}: ", check=has_code("address-in-use")):
            await at.http.listen(Address("127.0.0.1", at.port), at.probe.handle)
        address = Address("", 0, str(path))
        assert await at.http.listen(address, at.probe.handle) == address
        async with Client(*await asyncio.open_unix_connection(path)) as client:
            assert (await client.get("/echo")).status == 200
        reasons = dict.fromkeys((path, file), "Address already in use")
        reasons |= {tmp_path / "no" / "x": "No such file", tmp_path / ("x" * 200): "path too long"}
        for place, reason in reasons.items():
            with pytest.raises(UsageError, match=reason):
                await at.http.listen(Address("", 0, str(place)), at.probe.handle)
    assert not path.exists()
    assert file.read_text() == "mine"


PIECES = chunk(bytes(600)) + chunk(bytes(600)) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("version", "headers", "body", "status", "stays"),
    [
        ("1.1", (), b"abc", 200, True),
        ("1.1", ("Connection: close",), b"abc", 200, False),
        ("1.0", (), b"abc", 200, False),
        ("1.0", ("Connection: keep-alive",), b"abc", 200, True),
        ("1.0", ("expect: 100-continue",), b"abc", 200, False),
        ("1.1", (), bytes(LIMIT), 200, True),
        ("1.1", (), bytes(LIMIT + 1), 413, True),
        ("1.1", (CHUNKED,), chunk(bytes(LIMIT)) + b"0\r\n\r\n", 200, True),
        ("1.1", (CHUNKED,), PIECES, 413, False),
        ("1.1", ("expect: 100-continue", f"content-length: {LIMIT + 1}"), b"", 413, False),
        ("1.1", ("expect: a-miracle", "content-length: 3"), b"", 417, False),
    ],
)
@in_loop
async def test_the_status_of_a_body_and_whether_its_connection_stays(
    version: str, headers: tuple[str, ...], body: bytes, status: int, stays: bool
):
    async with listening() as at, await at.connect() as client:
        await client.send(request("/echo", *headers, body=body, version=version))
        answer = await client.answer()
        assert answer.status == status
        assert answer.body == body or body != b"abc"
        assert answer.headers["connection"] == ("keep-alive" if stays else "close")
        if stays:
            assert (await client.get("/echo")).status == 200
        else:
            assert await client.rest() == b""


@pytest.mark.parametrize("headers", [("content-length: 3",), (CHUNKED,)])
@in_loop
async def test_a_client_that_expects_100_gets_it(headers: tuple[str, ...]):
    async with listening() as at, await at.connect() as client:
        await client.send(request("/echo", "expect: 100-Continue", *headers))
        assert (await client.answer(bodiless=True)).status == 100
        await client.send(b"abc" if headers != (CHUNKED,) else chunk(b"abc") + b"0\r\n\r\n")
        assert (await client.answer()).body == b"abc"
        assert (await client.get("/echo")).status == 200


@in_loop
async def test_head_gets_the_head_and_http_1_0_need_not_name_the_host():
    async with listening() as at, await at.connect() as client:
        await client.send(request("/echo", body=b"abc", method="HEAD"))
        answer = await client.answer(bodiless=True)
        assert (answer.status, answer.headers["content-length"]) == (200, "3")
        at.probe.streamed.end((b"one", b"two"))
        await client.send(request("/stream", method="HEAD"))  # and gets no piece
        assert (await client.answer(bodiless=True)).status == 200
        assert (await client.get("/echo")).status == 200
        assert (await at.said(b"GET /echo HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 200 \r\n")


@in_loop
async def test_pipelined_requests_are_answered_in_their_order():
    async with listening() as at, await at.connect() as client:
        marks = [b"%d" % number for number in range(100)]
        await client.send(b"".join(request("/echo", body=mark) for mark in marks))
        assert [(await client.answer()).body for _ in marks] == marks


@pytest.mark.parametrize("leaves", [False, True])
@in_loop
async def test_a_client_that_leaves_or_sends_no_more_has_its_request_cancelled(leaves: bool):
    async with listening() as at, await at.connect() as client:
        await client.send(request("/wait"))
        await eventually(lambda: at.probe.begun)
        if leaves:
            client.writer.close()
        else:
            client.writer.write_eof()
            assert await client.rest() == b""
        await eventually(lambda: at.probe.cancelled == 1)
        await eventually(lambda: at.http.connection_count == 0)


@pytest.mark.parametrize("broken", [False, True])
@in_loop
async def test_a_stream_arrives_piece_by_piece_and_an_aborted_one_has_no_last_chunk(broken: bool):
    async with listening() as at, await at.connect() as client:
        at.probe.streamed.put(b"one")
        await client.send(request("/stream"))
        head = await client.reader.readuntil(b"3\r\none\r\n")
        assert b"transfer-encoding: chunked" in head.lower()
        at.probe.streamed.put(b"three")
        assert await client.reader.readexactly(10) == b"5\r\nthree\r\n"
        at.probe.streamed.end(broken=broken)
        assert await (client.rest() if broken else client.reader.readexactly(5)) == (b"" if broken else b"0\r\n\r\n")


@in_loop
async def test_a_stream_to_http_1_0_ends_with_its_connection():
    async with listening() as at:
        at.probe.streamed.end((b"one", b"two"))
        said = await at.said(request("/stream", "connection: keep-alive", version="1.0"))
        head, _, body = said.partition(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        assert b"chunked" not in head.lower()
        assert body == b"onetwo"


@in_loop
async def test_a_stream_whose_client_leaves_takes_no_more_in():
    async with listening() as at:
        async with await at.connect() as client:
            at.probe.streamed.put(b"one")
            await client.send(request("/stream"))
            await client.reader.readuntil(b"one\r\n")
        await eventually(lambda: at.http.connection_count == 0)
        at.probe.streamed.put(b"two")
        assert at.probe.streamed.unread == 0


async def dribble(client: Client, data: bytes) -> None:
    """Send a byte now and then until the connection closes."""
    for byte in data:
        if client.writer.is_closing():
            return
        await client.send(bytes((byte,)))
        await asyncio.sleep(PATIENCE / 4)


async def endless(client: Client, data: bytes) -> None:
    """Send without a pause until the connection closes."""
    for _ in range(1000):
        if client.writer.is_closing():
            return
        await client.send(data)
        await asyncio.sleep(0)


SLOW = {
    "silent": (b"", b"", b""),
    "trickled head": (b"", request("/echo", "x: " + "y" * 1000), b""),
    "trickled second head": (request("/echo"), request("/echo", "x: " + "y" * 1000), b""),
    "second silence": (request("/echo"), b"", b""),
    "stalled body": (request("/echo", "content-length: 900") + b"abc", b"", b""),
    "trickled body": (request("/echo", "content-length: 900"), bytes(900), b""),
    "trickled chunks": (request("/echo", CHUNKED), chunk(b"a") * 900, b""),
    "body that nobody asked for": (request("/stream", "content-length: 900"), bytes(900), b""),
    "endless line": (b"GET /", b"", b"x" * 1000),
    "endless header": (b"GET /echo HTTP/1.1\r\nhost: a\r\nx: ", b"", b"y" * 1000),
    "endless headers": (b"GET /echo HTTP/1.1\r\nhost: a\r\n", b"", b"x: y\r\n" * 100),
    "endless empty lines": (b"", b"", b"\r\n" * 100),
    "endless extension": (request("/echo", CHUNKED) + b"1;", b"", b"x" * 1000),
    "endless trailers": (request("/echo", CHUNKED) + b"0\r\n", b"", b"x: y\r\n" * 100),
    "endless body": (request("/echo", CHUNKED), b"", chunk(bytes(500))),
    "broken chunks": (request("/echo", CHUNKED), b"zz\r\n", b""),
}


async def outlasted(at: Listening, first: bytes, slowly: bytes, for_ever: bytes) -> float:
    """Return how long a client that behaves so keeps its connection, in seconds."""
    begun = time.monotonic()
    async with await at.connect() as client:
        await client.send(first)
        sending = asyncio.create_task(endless(client, for_ever) if for_ever else dribble(client, slowly))
        await client.rest()
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
    return time.monotonic() - begun


@in_loop
async def test_slow_clients_are_disconnected_in_time_and_do_not_block_others():
    async with listening(keep_alive=PATIENCE, body_grace=PATIENCE) as at:
        at.probe.streamed.end((b"one",))
        slow = asyncio.gather(*(outlasted(at, *each) for each in SLOW.values()))
        answers = 0
        while not slow.done():
            async with await at.connect() as client:
                assert (await client.get("/echo")).status == 200
            answers += 1
            await asyncio.sleep(0.01)
        assert answers
        late = {name: took for name, took in zip(SLOW, slow.result(), strict=True) if took > 30}  # of 45 s or more
        assert not late
        assert at.http.connection_count == 0


@slow
@in_loop
async def test_a_slow_but_honest_upload_is_taken():
    async with listening(max_request_size=1 << 20, body_grace=PATIENCE) as at, await at.connect() as client:
        await client.send(request("/echo", "content-length: 200000"))
        for _ in range(10):
            await client.send(bytes(20_000))
            await asyncio.sleep(PATIENCE / 5)
        assert len((await client.answer()).body) == 200_000


@in_loop
async def test_what_comes_on_an_open_connection_while_the_server_ends_is_answered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marpack.serving.http._DRAIN_GRACE", 1.0)
    async with listening() as at, await at.connect() as kept, await at.connect() as idle:
        assert (await kept.get("/echo")).status == 200
        assert (await idle.get("/echo")).status == 200
        draining = asyncio.create_task(at.http.drain(60.0, until=lambda: False))
        await eventually(lambda: at.http.draining)
        answer = await kept.get("/echo")
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await idle.rest() == b""
        await draining
        with pytest.raises(OSError):
            await at.connect()


@pytest.mark.parametrize("path", ["/wait", "/large"])
@in_loop
async def test_the_drain_waits_for_running_requests_and_for_answers_that_are_being_taken(path: str):
    async with listening() as at, await at.connect() as client:
        client.writer.transport.pause_reading()
        await client.send(request(path))
        await asyncio.sleep(0.05)
        draining = asyncio.create_task(at.http.drain(60.0, until=lambda: False))
        await asyncio.sleep(2 * PATIENCE)
        assert not draining.done()
        at.probe.go.set()
        client.writer.transport.resume_reading()
        assert len((await client.answer()).body) == (LARGE if path == "/large" else len(b"waited"))
        await draining


@pytest.mark.parametrize("path", ["/wait", "/stream"])
@in_loop
async def test_what_outlasts_the_drain_is_cut(monkeypatch: pytest.MonkeyPatch, path: str):
    monkeypatch.setattr("marpack.serving.http._CLOSE_TIMEOUT", 60.0)
    async with listening() as at, await at.connect() as client:
        await client.send(request(path))
        await eventually(lambda: at.probe.begun)
        begun = time.monotonic()
        await at.http.drain(60.0, until=lambda: True)  # which need not wait
        await at.http.drain(PATIENCE, until=lambda: False)
        await at.http.close()
        assert time.monotonic() - begun < 30  # it is broken off, not waited for
        assert not (await client.rest()).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "response",
    [
        Response(status=200, body=b"", phrase="two\r\nlines"),
        Response(status=200, body=b"", headers=(("x", "two\r\nlines"),)),
        Response(status=200, body=b"", headers=(("x\r\ny", "z"),)),
        Response(status=200, body=b"", content_type="two\r\nlines"),
    ],
)
@in_loop
async def test_a_head_that_cannot_be_sent_splits_no_answer(response: Response):
    async def odd(call: Call) -> Reply:
        return Reply(response=response, request_id="an-id")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with listening(Route("/odd", odd)) as at:
        said = await at.said(request("/odd"))
        assert said.split(b"\r\n")[0].endswith(b" 500 Internal Server Error")
        assert b"\r\nlines" not in said


@in_loop
async def test_a_body_in_small_pieces_takes_little_memory():
    size = 6_000
    async with listening(max_request_size=size) as at, await at.connect() as client:
        await client.send(request("/echo", f"content-length: {size}"))
        await eventually(lambda: at.http._busy)
        tracemalloc.start()
        for _ in range(0, size, 2):
            client.writer.write(b"xy")
            await asyncio.sleep(0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (await client.answer()).body == b"xy" * (size // 2)
        assert peak < 8 * size


@in_loop
async def test_no_long_reason_phrase_is_kept():
    async def phrased(call: Call) -> Reply:
        return Reply(response=Response(status=200, body=b"", phrase=f"{call.query}{'x' * 1000}"), request_id="an-id")

    async with listening(Route("/phrased", phrased)) as at:
        kept = _status_line.cache_info().currsize
        for number in range(10):
            assert (await at.said(request(f"/phrased?{number}", "connection: close"))).startswith(
                f"HTTP/1.1 200 {number}xx".encode()
            )
        assert _status_line.cache_info().currsize == kept


@in_loop
async def test_an_answer_that_is_broken_off_ends_with_a_reset():
    async def broken(call: Call) -> Reply:
        return Reply(response=Response(status=404, body=b"", pieces=(b"a",), reset=True), request_id="an-id")

    async with listening(Route("/broken", broken)) as at, await at.connect() as client:
        await client.send(request("/broken"))
        with pytest.raises(ConnectionResetError):
            await client.reader.read()


GET = b"GET /echo HTTP/1.1\r\nhost: a\r\n"
POST = b"POST /echo HTTP/1.1\r\nhost: a\r\n"
IN_CHUNKS = POST + b"transfer-encoding: chunked\r\n\r\n"

# what is sent, and the statuses that may answer it; without one the connection ends
MALFORMED: dict[str, tuple[bytes, tuple[int, ...]]] = {
    # lines
    "empty line": (b"\r\n\r\n", ()),
    "blank line": (b"  \r\n\r\n", (400,)),
    "one byte": (b"G", ()),
    "head without its end": (GET, ()),
    "no version": (b"GET /echo\r\n\r\n", (400,)),
    "no path": (b"GET HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "line feeds alone": (b"GET /echo HTTP/1.1\nhost: a\n\n", (400,)),
    "two blanks": (b"GET  /echo HTTP/1.1\r\nhost: a\r\n\r\n", (200, 400)),
    "tabs": (b"GET\t/echo\tHTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "HTTP/0.9": (b"GET /echo HTTP/0.9\r\n\r\n", (200, 400)),
    "HTTP/1.7": (b"GET /echo HTTP/1.7\r\nhost: a\r\n\r\n", (400,)),
    "HTTP/2.0": (b"GET /echo HTTP/2.0\r\nhost: a\r\n\r\n", (200,)),
    "HTTP/3": (b"GET /echo HTTP/3\r\n\r\n", (400,)),
    "HTTP/1.1x": (b"GET /echo HTTP/1.1x\r\nhost: a\r\n\r\n", (400,)),
    "small letters": (b"get /echo HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "unknown method": (b"BREW /echo HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "connect": (b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n", (404,)),
    "connect and bytes": (b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n" + b"x" * 500, (404,)),
    "trace": (b"TRACE /echo HTTP/1.1\r\nhost: a\r\n\r\n", (200,)),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", (404,)),
    "absolute form": (b"GET http://a/echo HTTP/1.1\r\nhost: a\r\n\r\n", (404,)),
    "impossible port": (b"GET http://a:99999999/ HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "open bracket": (b"GET http://[::1 HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "fragment": (b"GET /echo#x HTTP/1.1\r\nhost: a\r\n\r\n", (200,)),
    "zero byte in a path": (b"GET /ec\x00ho HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "high bytes in a path": (b"GET /\xff\xfe HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "broken escape": (b"GET /%zz HTTP/1.1\r\nhost: a\r\n\r\n", (403,)),
    "escaped zero byte": (b"GET /%00 HTTP/1.1\r\nhost: a\r\n\r\n", (404,)),
    "way out": (b"GET /../../etc/passwd HTTP/1.1\r\nhost: a\r\n\r\n", (404,)),
    "two slashes": (b"GET //echo HTTP/1.1\r\nhost: a\r\n\r\n", (404,)),
    "long line": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    # headers
    "no host": (b"GET /echo HTTP/1.1\r\n\r\n", (400,)),
    "two hosts": (GET + b"host: b\r\n\r\n", (400,)),
    "long value": (GET + b"x: " + b"a" * 20_000 + b"\r\n\r\n", (400,)),
    "long name": (GET + b"a" * 20_000 + b": x\r\n\r\n", (400,)),
    "many headers": (GET + b"x: 1\r\n" * 200 + b"\r\n", (400,)),
    "no colon": (GET + b"nonsense\r\n\r\n", (400,)),
    "no name": (GET + b": 1\r\n\r\n", (400,)),
    "blank before the colon": (GET + b"x : 1\r\n\r\n", (400,)),
    "folded value": (GET + b"x: 1\r\n  2\r\n\r\n", (400,)),
    "zero byte in a value": (GET + b"x: 1\x002\r\n\r\n", (400,)),
    "carriage return in a value": (GET + b"x: 1\r2\r\n\r\n", (400,)),
    "high bytes in a value": (GET + b"x: \xff\xfe\r\n\r\n", (200,)),
    "high byte in a name": (GET + b"\xff: 1\r\n\r\n", (400,)),
    "odd connection": (GET + b"connection: ,,,\x7f\r\n\r\n", (400,)),
    "odd cookie": (GET + b'cookie: ;;;=;"\\\r\n\r\n', (200,)),
    "odd content type": (POST + b"content-type: ;;;;\r\ncontent-length: 3\r\n\r\nabc", (200,)),
    # lengths
    "negative length": (POST + b"content-length: -1\r\n\r\n", (400,)),
    "signed length": (POST + b"content-length: +3\r\n\r\nabc", (400,)),
    "length in hex": (POST + b"content-length: 0x3\r\n\r\nabc", (400,)),
    "length in words": (POST + b"content-length: three\r\n\r\nabc", (400,)),
    "empty length": (POST + b"content-length:\r\n\r\nabc", (400,)),
    "huge length": (POST + b"content-length: 99999999999999999999999\r\n\r\nabc", (400,)),
    "two lengths": (POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", (400,)),
    "one length twice": (POST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc", (400,)),
    "list of lengths": (POST + b"content-length: 3, 3\r\n\r\nabc", (400,)),
    "body too short": (POST + b"content-length: 10\r\n\r\nabc", (400,)),
    "body too long": (POST + b"content-length: 3\r\n\r\nabcGARBAGE\r\n\r\n", (200, 400)),
    # codings
    "length and chunks": (POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    "request in a body": (
        POST + b"content-length: 44\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + GET + b"\r\n",
        (400,),
    ),
    "other coding": (POST + b"transfer-encoding: gzip\r\n\r\nabc", (400,)),
    "chunks twice": (POST + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n", (400,)),
    "chunks first": (POST + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n", (400,)),
    "chunks misspelt": (POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", (400,)),
    "chunk without a size": (IN_CHUNKS + b"zz\r\nabc\r\n", (400,)),
    "negative chunk": (IN_CHUNKS + b"-3\r\nabc\r\n", (400,)),
    "huge chunk": (IN_CHUNKS + b"ffffffffffffffffffff\r\nabc\r\n", (400,)),
    "chunk too long": (IN_CHUNKS + b"3\r\nabcdef\r\n", (400,)),
    "chunks by line feeds": (IN_CHUNKS + b"3\nabc\n0\n\n", (400,)),
    "long extension": (IN_CHUNKS + b"3;" + b"x" * 40_000 + b"\r\nabc\r\n0\r\n\r\n", (200, 400)),
    "trailer without a colon": (IN_CHUNKS + b"0\r\nbad trailer\r\n\r\n", (400,)),
    "long trailer": (IN_CHUNKS + b"0\r\nx: " + b"y" * 40_000 + b"\r\n\r\n", (400,)),
    "many trailers": (IN_CHUNKS + b"0\r\n" + b"x: y\r\n" * 10_000 + b"\r\n", (400,)),
    "chunks without an end": (IN_CHUNKS + b"3\r\nabc\r\n", (400,)),
    # other protocols
    "upgrade to websocket": (
        GET + b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n\x81\x05hello",
        (200, 400),
    ),
    "websocket with a body": (
        POST + b"connection: upgrade\r\nupgrade: websocket\r\ncontent-length: 3\r\n\r\nabc",
        (200,),
    ),
    "upgrade to HTTP/2": (
        POST + b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIA\r\n"
        b"content-length: 3\r\n\r\nabc",
        (200,),
    ),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400,)),
    "an answer": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", (400,)),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), (400,)),
    "SMTP": (b"EHLO a\r\nMAIL FROM:<a@b>\r\n", (400,)),
    "SSH": (b"SSH-2.0-OpenSSH_9.0\r\n", (400,)),
    "Redis": (b"*1\r\n$4\r\nPING\r\n", (400,)),
    "PROXY": (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET /echo HTTP/1.1\r\nhost: a\r\n\r\n", (400,)),
    "bytes": (b"\x00\x01\x02\x03\xff\xfe\r\n\r\n", (400,)),
}


@pytest.mark.parametrize("halves", [False, pytest.param(True, marks=slow)], ids=["at once", "in halves"])
def test_what_is_malformed_is_refused_and_the_next_client_is_answered(halves: bool):
    async def statuses(at: Listening, sent: bytes) -> tuple[int, ...]:
        middle = len(sent) // 2 if halves else len(sent)
        async with await at.connect() as client:
            await client.send(sent[:middle])
            await asyncio.sleep(0.01 if halves else 0)
            await client.send(sent[middle:])
            said = await client.rest()
        return tuple(int(line.split(b" ")[1]) for line in said.split(b"\r\n") if line.startswith(b"HTTP/"))

    async def one(at: Listening, name: str) -> str | None:
        sent, allowed = MALFORMED[name]
        got = await statuses(at, sent)
        again = await at.said(request("/echo", "connection: close", body=b"abc"))
        if again.endswith(b"abc") and set(got) <= set(allowed) and (got or not allowed):
            return None
        return f"{name}: {got}"

    async def main() -> None:
        async with listening(keep_alive=5 * PATIENCE, body_grace=5 * PATIENCE) as at:
            assert [wrong for wrong in await asyncio.gather(*(one(at, name) for name in MALFORMED)) if wrong] == []
            assert at.http.connection_count == 0

    in_loop(main)()
