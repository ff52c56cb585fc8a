"""An HTTP server in the test's event loop, and clients that send exact bytes."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from msgspec import Struct
from serving.commands import SECONDS
from serving.logs import recording

from marpack.serving.api import Api, Call, Route, ServerStatistics, ServingCore
from marpack.serving.http import HttpServer, HttpSettings, Reply, run
from marpack.serving.jobs import StreamedResponse
from marpack.serving.metrics import ServerMetrics
from marpack.serving.registry import Registry
from marpack.serving.settings import Address
from marpack.torchserve.http import Response

LIMIT = 1000  # bytes of a request's body
LARGE = 8 << 20  # bytes of a large answer: more than any socket's buffers take


def reply(body: bytes = b"", **response: Any) -> Reply:
    return Reply(response=Response(status=response.pop("status", 200), body=body, **response), request_id="an-id")


class Probe(Api):
    """Routes for tests."""

    def __init__(self, *further: Route) -> None:
        core = ServingCore(
            ending=asyncio.Event(),
            registry=Registry(),
            metrics=ServerMetrics(hostname="here"),
            statistics=ServerStatistics(),
        )
        routes = (Route("/echo", self.echo), Route("/wait", self.wait), Route("/large", self.large))
        super().__init__(core, (*further, *routes, Route("/stream", self.stream), Route("/fail", self.fail)))
        self.begun = 0
        self.cancelled = 0
        self.go = asyncio.Event()
        self.streamed = StreamedResponse(Response(status=200, body=b""))

    async def echo(self, call: Call) -> Reply:
        return reply(await call.request.body())

    async def wait(self, call: Call) -> Reply:
        """Respond once the test sets `go`."""
        self.begun += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return reply(b"waited")

    async def large(self, call: Call) -> Reply:
        return reply(bytes(LARGE))

    async def stream(self, call: Call) -> Reply:
        self.begun += 1
        return Reply(response=self.streamed.head, stream=self.streamed, request_id="an-id")

    async def fail(self, call: Call) -> Reply:
        raise KeyError("a bug")


class Listening(Struct):
    http: HttpServer
    port: int
    probe: Probe
    notes: list[str]

    async def connect(self) -> "Client":
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def said(self, *pieces: bytes) -> bytes:
        """Return all that a connection gets back until it is closed."""
        async with await self.connect() as client:
            for piece in pieces:
                await client.send(piece)
            return await client.rest()


class Answer(Struct):
    status: int
    headers: dict[str, str]
    body: bytes
    head: bytes


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def rest(self) -> bytes:
        """Return everything until the connection ends."""
        data = bytearray()
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionError):
                while piece := await self.reader.read(1 << 16):
                    data += piece
        return bytes(data)

    async def answer(self, *, bodiless: bool = False) -> Answer:
        async with asyncio.timeout(SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
            body = b"" if bodiless else await self._body(headers)
        return Answer(int(lines[0].split(" ")[1]), headers, body, head)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers.get("content-length", 0)))
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readline()
        return body

    async def get(self, path: str) -> Answer:
        await self.send(request(path))
        return await self.answer()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


def request(path: str, *headers: str, body: bytes = b"", method: str = "POST", version: str = "1.1") -> bytes:
    """Return a request's bytes, with the length of its body unless a header has one."""
    told = any(header.lower().startswith(("content-length", "transfer-encoding")) for header in headers)
    length = [f"content-length: {len(body)}"] if body and not told else []
    return "\r\n".join([f"{method} {path} HTTP/{version}", "host: here", *headers, *length, "", ""]).encode() + body


@asynccontextmanager
async def listening(*further: Route, **settings: Any) -> AsyncIterator[Listening]:
    """Yield a listening server."""
    given = {"max_request_size": LIMIT, "max_connections": 100, "linger": 0.1, **settings}
    with recording() as log:
        http = HttpServer(HttpSettings(**given))
        probe = Probe(*further)
        address = await http.listen(Address("127.0.0.1", 0), probe.handle)
        try:
            yield Listening(http, address.port, probe, log.notes)
        finally:
            await http.close()


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in the event loop that servers run in."""

    @functools.wraps(test)
    def run_test(*given: Any, **named: Any) -> None:
        async def bounded() -> int:
            async with asyncio.timeout(2 * SECONDS):
                await test(*given, **named)
            return 0

        run(bounded)

    return run_test


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.005)
