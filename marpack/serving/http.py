"""The front: aiohttp's requests → our own struct, our answers → aiohttp's. The only module that knows the library."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct
from multidict import CIMultiDict

from marpack.errors import UsageError
from marpack.serving.jobs import BrokenOffError, StreamedAnswer
from marpack.serving.settings import Address
from marpack.torchserve.frontend.headers import FormError, HeadError, TooLargeError
from marpack.torchserve.frontend.http_response import refusal
from marpack.torchserve.messages import Response

_BODY_GRACE = 20.0  # seconds that a body may take, whatever its size
_BODY_PACE = 16_384  # bytes a second that it must come with beyond those
_CLOSING = 1.0  # seconds that what is left after the drain has to take leave
_LOOK = 0.02  # seconds between two looks whether all is answered
_LINGER = 2.0  # seconds that what an answered client still sends is read and dropped
_MAX_HEAD = 16_384  # bytes of a line that the parser takes: the server's own bound is held in `received`
_NO_CACHE = {
    "Pragma": "no-cache",
    "Cache-Control": "no-cache; no-store, must-revalidate, private",
    "Expires": "Thu, 01 Jan 1970 00:00:00 UTC",
}  # as the server sets them, on whatever passed a route
_QUIET = logging.getLogger("marpack.serving.http")  # what aiohttp says of clients that send nonsense
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class FrontSettings(Struct, frozen=True, kw_only=True):
    """What one listening address bounds."""

    max_request_size: int  # bytes of a body
    max_connections: int  # open at once, over all addresses
    keep_alive: float = 75.0  # seconds that a connection may be idle, or be at its head
    drain: float = 30.0  # seconds that running requests have once the server is to end


class HttpRequest:
    """One request: its head is here, its body comes when asked for."""

    __slots__ = ("_request", "_settings", "headers", "method", "target")

    def __init__(self, request: web.BaseRequest, settings: FrontSettings) -> None:
        self._request = request
        self._settings = settings
        self.method = request.method
        self.target = request.raw_path  # as it was sent
        self.headers = tuple([(_text(name), _text(value)) for name, value in request.raw_headers])

    @property
    def remote(self) -> str:
        """The client's address."""
        return self._request.remote or ""

    def header(self, name: str) -> str | None:
        """Return the first header of a name, in whatever letters."""
        value: str | None = self._request.headers.get(name)
        return value

    async def body(self) -> bytes:
        """Return the whole body.

        Raises TooLargeError for one beyond the bound, HeadError for one that comes too slowly or in broken chunks.
        """
        content, limit = self._request.content, self._settings.max_request_size
        announced = self._request.content_length
        if announced is not None and announced > limit:
            raise TooLargeError(announced, limit)
        if "Expect" in self._request.headers:
            await self._invite()
        if content.is_eof():
            data: bytes = content.read_nowait()
        else:
            data = await self._arriving(limit)
        if len(data) > limit:
            raise TooLargeError(len(data), limit)
        return data

    async def _invite(self) -> None:
        """Answer a client that asks whether its body may come."""
        if self._request.headers["Expect"].lower() != "100-continue":
            raise FormError("", status=417, kind="")
        writer = self._request.writer
        await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.output_size = 0  # nothing of the answer was sent yet

    async def _arriving(self, limit: int) -> bytes:
        pieces, size, begun = [], 0, time.monotonic()
        try:
            while not self._request.content.at_eof():
                left = begun + _BODY_GRACE + size / _BODY_PACE - time.monotonic()
                async with asyncio.timeout(left):
                    piece = await self._request.content.readany()
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise TooLargeError(size, limit)
        except (TimeoutError, web.RequestPayloadError):
            raise HeadError from None
        return b"".join(pieces)


class Reply(Struct, kw_only=True):
    """What goes back to the client."""

    response: Response  # of a stream, its head
    stream: StreamedAnswer | None = None
    request_id: str | None = None  # None: the answer did not pass a route, and has none of its headers
    headers: tuple[tuple[str, str], ...] = ()  # beside the answer's own, which win
    keeps_open: bool = False  # the connection, whatever the status


Handler = Callable[[HttpRequest], Awaitable[Reply]]


class _Request(web.BaseRequest):
    """Has no header sent that nobody asked for."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        headers = response.headers
        headers.popall("Server", None)
        headers.popall("Date", None)
        if not getattr(response, "has_type", True):
            headers.popall("Content-Type", None)


class _Response(web.Response):
    has_type = True


class _Stream(web.StreamResponse):
    has_type = True


class _Connection(RequestHandler):
    """Answers what is no HTTP as the server does."""

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - the library's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - as above
    ) -> web.StreamResponse:
        """Return the answer to what could not be parsed, or to what failed in our own hands."""
        if status == 500 and exc is not None:
            raise exc  # ours: never silent
        response = refusal(HeadError())
        answer = _Response(body=response.body, status=400, reason=response.phrase)
        answer.content_type = "application/json"
        answer.force_close()
        return answer


class _Listener(web.Server):
    """Makes a connection of ours for every client, as long as there are not too many."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], front: "Front") -> None:
        super().__init__(
            handler,
            request_factory=partial(_Request, loop=asyncio.get_running_loop()),
            handler_cancellation=True,
            keepalive_timeout=front.settings.keep_alive,
            lingering_time=_LINGER,
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_HEAD,
            max_field_size=_MAX_HEAD,
            logger=_QUIET,
        )
        self._front = front

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._front.opened(transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._front.closed()
        super().connection_lost(handler, exc)


class Front:
    """Addresses that are listened on, and the handlers behind them."""

    def __init__(self, settings: FrontSettings) -> None:
        self.settings = settings
        self.connections = 0
        self.draining = False
        self._running = 0  # requests, until their answers are written
        self._runners: list[web.ServerRunner] = []

    async def listen(self, address: Address, handler: Handler) -> Address:
        """Answer on an address from now on; return it with the port that it got.

        Raises UsageError for one that cannot be listened on.
        """
        runner = web.ServerRunner(_Listener(partial(self._answer, handler), self), shutdown_timeout=_CLOSING)
        await runner.setup()
        sock = _bound(address)
        await web.SockSite(runner, sock, backlog=1024).start()
        self._runners.append(runner)
        return address.bound_to(sock)

    def opened(self, transport: asyncio.Transport) -> None:
        """Count a connection; close it at once where there are too many."""
        self.connections += 1
        if self.connections > self.settings.max_connections:
            transport.abort()

    def closed(self) -> None:
        """Count a connection less."""
        self.connections -= 1

    async def drain(self, seconds: float, *, until: Callable[[], bool]) -> None:
        """Stop accepting, and wait so long for the requests at hand, or until one need not wait any more."""
        self.draining = True
        for runner in self._runners:
            for site in runner.sites:
                await site.stop()
            await asyncio.sleep(0)  # what was accepted by now begins
            if runner.server is not None:
                runner.server.pre_shutdown()
        end = time.monotonic() + seconds
        while self._running and time.monotonic() < end and not until():
            await asyncio.sleep(_LOOK)

    async def close(self) -> None:
        """Close every address and connection."""
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))

    async def _answer(self, handler: Handler, request: web.BaseRequest) -> web.StreamResponse:
        self._running += 1
        try:
            return await self._answered(handler, request)
        finally:
            self._running -= 1

    async def _answered(self, handler: Handler, request: web.BaseRequest) -> web.StreamResponse:
        reply = await handler(HttpRequest(request, self.settings))
        response = reply.response
        if response.reset and not response.pieces:
            return _cut(request)
        headers = _headers(request, reply, closes=self.draining)
        if reply.stream is not None:
            return await _streamed(request, reply.stream, headers)
        answer = _Response(body=response.body, status=response.status, reason=response.phrase, headers=headers)
        answer.has_type = response.content_type is not None
        if headers.get("connection") == "close":
            answer.force_close()
        return answer


def _headers(request: web.BaseRequest, reply: Reply, *, closes: bool) -> CIMultiDict[str]:
    response = reply.response
    headers = CIMultiDict(reply.headers)
    for name, value in response.headers:
        headers[name] = value
    if response.content_type is not None:
        headers["content-type"] = response.content_type
    if reply.request_id is not None:
        headers["x-request-id"] = reply.request_id
        headers.update(_NO_CACHE)
    closes = closes or not request.keep_alive or (response.status >= 400 and not reply.keeps_open)
    headers["connection"] = "close" if closes else "keep-alive"
    return headers


async def _streamed(request: web.BaseRequest, stream: StreamedAnswer, headers: CIMultiDict[str]) -> web.StreamResponse:
    answer = _Stream(status=stream.head.status, reason=stream.head.phrase, headers=headers)
    answer.has_type = stream.head.content_type is not None
    if request.version >= (1, 1):
        answer.enable_chunked_encoding()
    else:
        answer.force_close()
    try:
        await answer.prepare(request)
        async for piece in stream.pieces():
            await answer.write(piece)
        await answer.write_eof()
    except BrokenOffError:
        return _cut(request)
    finally:
        stream.leave()
    return answer


def _cut(request: web.BaseRequest) -> web.StreamResponse:
    """Reset a connection: its answer cannot be told to the end."""
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _bound(address: Address) -> socket.socket:
    """Return a socket that is bound to an address; raises UsageError."""
    try:
        family, _, _, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
    except OSError as error:
        with suppress(UnboundLocalError):
            sock.close()
        hint = "end what listens there, or choose another port with --port"
        raise UsageError(f"cannot listen on {address}: {error.strerror}", where=str(address), hint=hint) from error
    return sock


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:  # Any: as typing has it
    """Run a server's main coroutine to its end, in the fastest event loop there is."""
    try:
        import uvloop  # noqa: PLC0415 - not every system has it
    except ImportError:
        return asyncio.run(main())
    return uvloop.run(main())
