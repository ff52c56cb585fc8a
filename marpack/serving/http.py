"""The front: aiohttp's requests → our own struct, our answers → aiohttp's. The only module that knows the library."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct

from marpack.serving.answer_head import Answer
from marpack.serving.connections import ConnectionBound, WriteWatch, bound, reset, room_for, wait_for
from marpack.serving.jobs import BrokenOffError, StreamedAnswer
from marpack.serving.settings import Address
from marpack.torchserve.http import HeadError, RequestError, Response, TooLargeError, error_response

_BODY_PACE = 16_384  # bytes a second that a body must come with beyond its grace
_FAREWELL = 0.25  # seconds in which a server that is to end still answers what comes on open connections
_STARTING = 0.02  # seconds in which what was received by then comes to its handler
_CLOSING = 1.0  # seconds that what is left after the drain has to take leave
_MAX_LINE = 4096  # bytes of a request's line
_MAX_HEAD = 8192  # bytes of a header; that of all together is held in `received`
_QUIET = logging.getLogger("marpack.serving.http")  # what aiohttp says of clients that send nonsense
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class FrontSettings(Struct, frozen=True, kw_only=True):
    """What one listening address bounds."""

    max_request_size: int  # bytes of a body
    max_connections: int  # open at once, over all addresses
    keep_alive: float = 75.0  # seconds that a connection may be idle, or be at its head
    body_grace: float = 20.0  # seconds that a body may take, whatever its size
    write_grace: float = 20.0  # seconds that a client may take nothing of its answer
    linger: float = 2.0  # seconds that what an answered client still sends is read and dropped
    drain: float = 30.0  # seconds that running requests have once the server is to end
    headers: tuple[tuple[str, str], ...] = ()  # of answers that no route gave, beside the usual ones


class HttpRequest:
    """One request: its head is here, its body comes when asked for."""

    __slots__ = ("_request", "_settings", "headers", "method", "target")

    def __init__(self, request: web.BaseRequest, settings: FrontSettings) -> None:
        self._request = request
        self._settings = settings
        self.method = request.method
        self.target = request.raw_path  # as it was sent
        self.headers = tuple([(str(name, "latin-1"), str(value, "latin-1")) for name, value in request.raw_headers])

    @property
    def remote(self) -> str:
        """The client's address."""
        return self._request.remote or ""

    def header(self, name: str) -> str | None:
        """Return the first header of a name, in whatever letters."""
        value: str | None = self._request.headers.get(name)
        return value

    def check_length(self) -> None:
        """Raise TooLargeError for a body that is announced beyond the bound."""
        announced = self._request.content_length
        if announced is not None and announced > self._settings.max_request_size:
            raise TooLargeError(announced, self._settings.max_request_size)

    async def body(self) -> bytes:
        """Return the whole body.

        Raises TooLargeError for one beyond the bound, HeadError for one that comes too slowly or in broken chunks.
        """
        content, limit = self._request.content, self._settings.max_request_size
        if "Expect" in self._request.headers and self._request.version >= (1, 1):
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
            raise RequestError("", status=417, kind="")
        writer = self._request.writer
        await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.output_size = 0  # nothing of the answer was sent yet

    async def _arriving(self, limit: int) -> bytes:
        pieces, size, begun = [], 0, time.monotonic()
        try:
            while not self._request.content.at_eof():
                left = begun + self._settings.body_grace + size / _BODY_PACE - time.monotonic()
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


class _Connection(RequestHandler):
    """Answers what is no HTTP as the server does, and leaves a client that does not take its answer."""

    __slots__ = ("_further", "_watch")

    def __init__(self, manager: web.Server, *, front: FrontSettings, **settings: Any) -> None:  # Any: the library's
        super().__init__(manager, **settings)
        self._further = front.headers
        self._watch = WriteWatch(self._loop, front.write_grace)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(0)  # whatever is not taken at once counts as a pause

    def connection_lost(self, exc: BaseException | None) -> None:
        self._watch.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.transport is not None:
            self._watch.begin(self.transport)

    def resume_writing(self) -> None:
        self._watch.end()
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - the library's signature
    ) -> web.StreamResponse:
        """Return the answer to what could not be parsed, or to what failed in our own hands."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client has gone, or was left
        if status == 400:
            return Answer.routeless(HeadError().response, self._further)
        self._loop.call_exception_handler({"message": "a request could not be answered", "exception": exc})
        if request.writer.output_size > 0:  # the answer has begun
            return _cut(request)
        failure = error_response(500, "the server failed on this request; what it prints says why")
        return Answer.routeless(failure, self._further)


class _Listener(web.Server):
    """Makes a connection of ours for every client, as long as there are not too many."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], front: "Front") -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            keepalive_timeout=front.settings.keep_alive,
            lingering_time=front.settings.linger,
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_HEAD,
            logger=_QUIET,
            front=front.settings,
        )
        self._bound = front.connections

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if not self._bound.opened():
            transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._bound.closed()
        super().connection_lost(handler, exc)


class Front:
    """Addresses that are listened on, and the handlers behind them."""

    def __init__(self, settings: FrontSettings, noted: Callable[[str], None] = lambda _: None) -> None:
        """Take what is bounded, and who is told what whoever runs the server should know."""
        self.settings = settings
        self.draining = False
        most = room_for(settings.max_connections)
        if most < settings.max_connections:
            noted(f"there can be {most} connections at most: the system lends no more descriptors (ulimit -Hn)")
        self.connections = ConnectionBound(most, noted)
        self._busy: set[object] = set()  # connections whose requests are not answered to the end
        self._runners: list[web.ServerRunner] = []
        self._sockets: list[Path] = []  # files to be removed

    async def listen(self, address: Address, handler: Handler) -> Address:
        """Answer on an address from now on; return it with the port that it got.

        Raises UsageError for one that cannot be listened on.
        """
        sock = bound(address)
        runner = web.ServerRunner(_Listener(partial(self._answer, handler), self), shutdown_timeout=_CLOSING)
        self._runners.append(runner)
        self._sockets += [Path(address.path)] if address.path else []
        await runner.setup()
        await web.SockSite(runner, sock, backlog=1024).start()
        return address.bound_to(sock)

    async def drain(self, seconds: float, *, until: Callable[[], bool]) -> None:
        """Stop accepting, and wait so long for the requests at hand, or until one need not wait any more.

        For a moment, what comes on open connections is still answered: it may have been sent before.
        """
        self.draining = True
        begun = time.monotonic()
        for runner in self._runners:
            for site in runner.sites:
                await site.stop()
        await wait_for(lambda: until() or not self.connections.count, begun + min(seconds, _FAREWELL))
        for connection in self._all():
            connection.close()  # once its requests are answered; it takes no more
        await asyncio.sleep(_STARTING)  # what has arrived by now begins
        for connection in self._all():
            if connection not in self._busy:
                connection.force_close()
        await wait_for(lambda: until() or not self._busy, begun + seconds)

    def _all(self) -> list[RequestHandler]:
        return [each for runner in self._runners if runner.server for each in runner.server.connections]

    async def close(self) -> None:
        """Close every address and connection; what is still being answered is broken off."""
        for connection in self._all():
            if connection in self._busy and connection.transport is not None:
                connection.transport.abort()
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))
        for path in self._sockets:
            path.unlink(missing_ok=True)

    async def _answer(self, handler: Handler, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._busy.add(connection)
        try:
            if request.version < (1, 0):  # a line without a version
                return Answer.routeless(HeadError().response, self.settings.headers)
            reply = await handler(HttpRequest(request, self.settings))
            response = reply.response
            if response.reset:  # what there is to send is here
                reply.stream = StreamedAnswer(response)
                reply.stream.end(response.pieces, broken=True)
            closes = self.draining or _closes(request, reply)
            answer = Answer(response, reply.headers, reply.request_id, closes=closes)
            if reply.stream is not None:
                return await _streamed(request, answer, reply.stream)
            await answer.prepare(request)  # here: a request is at hand until its answer is written
            return answer
        finally:
            self._busy.discard(connection)


def _closes(request: web.BaseRequest, reply: Reply) -> bool:
    """Say whether the connection ends with an answer."""
    if not request.keep_alive:
        return True
    if reply.response.status >= 400:  # a client that asked whether its body may come may send it all the same, or not
        return not reply.keeps_open or "Expect" in request.headers
    return reply.stream is not None and request.version < (1, 1)  # only its end tells such a client that all has come


async def _streamed(request: web.BaseRequest, answer: Answer, stream: StreamedAnswer) -> web.StreamResponse:
    try:
        takes_body = await answer.begin(request)
        async for piece in stream.pieces():
            if takes_body:
                await request.writer.write(piece)
        await request.writer.write_eof()
    except BrokenOffError:
        return _cut(request)
    finally:
        stream.leave()
    return answer


def _cut(request: web.BaseRequest) -> web.StreamResponse:
    """Reset a connection: its answer cannot be told to the end."""
    if request.transport is not None:
        reset(request.transport)
    raise ConnectionResetError
