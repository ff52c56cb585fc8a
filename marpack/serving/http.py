"""HTTP with aiohttp: sockets, connections with limits, requests and responses. The only module that imports aiohttp."""

import asyncio
import errno
import logging
import math
import re
import socket
import struct
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import UsageError, describe_os_error
from marpack.serving.jobs import StreamAbortedError, StreamedResponse
from marpack.serving.settings import Address
from marpack.torchserve.http import HeadError, RequestError, Response, TooLargeError, error_response

_LOG = logging.getLogger(__name__)
_AIOHTTP_LOG = logging.getLogger(f"{__name__}.aiohttp")  # reports every malformed request: not for the server's log
_AIOHTTP_LOG.addHandler(logging.NullHandler())
_AIOHTTP_LOG.propagate = False

_MIN_BODY_RATE = 16_384  # bytes per second of a request body after its grace period
_DRAIN_GRACE = 0.25  # seconds in which an ending server still accepts requests on open connections
_DRAIN_START = 0.02  # seconds for received requests to reach their handler
_CLOSE_TIMEOUT = 1.0  # seconds for connections to close after the drain
_POLL = 0.02  # seconds
_MAX_LINE = 4096  # bytes of a request line
_MAX_HEADER = 8192  # bytes of one header; `received` limits the sum
_MAX_CACHED = 100  # characters of a reason phrase whose status line is kept
_BACKLOG = 1024  # connections that wait to be accepted
_OTHER_DESCRIPTORS = 256  # for workers, archives and logs
_WARN_AGAIN = 0.9  # fraction of the connection limit below which reaching it is reported again
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # for SO_LINGER

# Control characters that HTTP forbids in a head, except line ends: `_expect_lines` raises an error for those.
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
# The headers that TorchServe sets on every response of a route.
_ROUTED = (
    "x-request-id: {}\r\nPragma: no-cache\r\nCache-Control: no-cache; no-store, must-revalidate, private\r\n"
    "Expires: Thu, 01 Jan 1970 00:00:00 UTC\r\n"
)
_LENGTHLESS = frozenset({100, 101, 102, 103, 204})  # statuses without a body and without a length
_BODILESS = _LENGTHLESS | {304}

Headers = tuple[tuple[str, str], ...]


class HttpSettings(Struct, frozen=True, kw_only=True):
    """The limits of all addresses of a server."""

    max_request_size: int  # bytes of a body
    max_connections: int
    keep_alive: float = 75.0  # seconds that a connection may be idle, or take to send a head
    body_grace: float = 20.0  # seconds that a body of any size may take
    write_grace: float = 20.0  # seconds without progress after which a slow reader is disconnected
    linger: float = 2.0  # seconds in which data after a response is read and dropped
    drain: float = 30.0  # seconds for running requests when the server ends
    headers: Headers = ()  # of all responses


class HttpRequest:
    """One request, before its body is read."""

    __slots__ = ("_request", "_settings", "headers", "max_size", "method", "target")

    def __init__(self, request: web.BaseRequest, settings: HttpSettings) -> None:
        self._request = request
        self._settings = settings
        self.max_size = settings.max_request_size  # of the body
        self.method = request.method
        self.target = request.raw_path  # as the client sent it
        self.headers = tuple([(str(name, "latin-1"), str(value, "latin-1")) for name, value in request.raw_headers])

    @property
    def remote(self) -> str:
        """The client's address."""
        return self._request.remote or ""

    def header(self, name: str) -> str | None:
        """Return the first header of a name; case does not matter."""
        value: str | None = self._request.headers.get(name)
        return value

    def check_length(self) -> None:
        """Raise TooLargeError for a Content-Length beyond the limit."""
        announced = self._request.content_length
        if announced is not None and announced > self.max_size:
            raise TooLargeError(announced, self.max_size)

    async def body(self) -> bytes:
        """Return the whole body.

        Raises TooLargeError, and HeadError for a body that arrives too slowly or in malformed chunks.
        """
        request, content = self._request, self._request.content
        if "Expect" in request.headers and request.version >= (1, 1):
            if request.headers["Expect"].lower() != "100-continue":
                raise RequestError("", status=417, kind="")
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the response itself has not begun
        body: bytes | bytearray = content.read_nowait() if content.is_eof() else bytearray()
        end = time.monotonic() + self._settings.body_grace
        while len(body) <= self.max_size and not content.at_eof():
            try:
                async with asyncio.timeout(end + len(body) / _MIN_BODY_RATE - time.monotonic()):
                    body += await content.readany()  # small pieces in a list would take many times their size
            except (TimeoutError, web.RequestPayloadError):
                raise HeadError from None
        if len(body) > self.max_size:
            raise TooLargeError(len(body), self.max_size)
        return bytes(body)


class Reply(Struct, kw_only=True):
    """A response on its way to the client."""

    response: Response  # of a stream, its head
    stream: StreamedResponse | None = None
    request_id: str | None = None  # None: no route gave the response, so it lacks a route's headers
    headers: Headers = ()  # the response's own headers replace these
    keeps_open: bool = False  # keep the connection despite an error status


Handler = Callable[[HttpRequest], Awaitable[Reply]]


class _HttpResponse(web.StreamResponse):
    """A response with TorchServe's headers in Latin-1. aiohttp would add Date, Server and Content-Type, in UTF-8."""

    def __init__(self, reply: Reply, *, closes: bool) -> None:
        """Take a response, or the head of a stream, and whether the connection ends with it."""
        super().__init__(status=reply.response.status)
        self._reply = reply
        self._closes = closes
        self._is_sent = False

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open afterwards."""
        return not self._closes

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send the whole response, or the stream, once; raises StreamAbortedError."""
        if self._is_sent:
            return request.writer
        self._is_sent = True
        reply, body, writer = self._reply, self._reply.response.body, request.writer
        takes_body = request.method != "HEAD" and self.status not in _BODILESS
        if reply.stream is None:
            has_length = self.status not in _LENGTHLESS and (body or (self.status != 304 and request.method != "HEAD"))
            head = self._head(request, f"content-length: {len(body)}\r\n" if has_length else "")
            await writer.write_eof(head + body if takes_body else head)
            return writer
        is_chunked = takes_body and request.version >= (1, 1)
        await writer.write(self._head(request, "transfer-encoding: chunked\r\n" if is_chunked else ""))
        if is_chunked:
            writer.enable_chunking()
        async for piece in reply.stream.pieces():
            if takes_body:
                await writer.write(piece)
        await writer.write_eof()
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `prepare` has sent everything."""

    def _head(self, request: web.BaseRequest, framing: str) -> bytes:
        """Return the head; `framing` is the line that says where the body ends. Each header has one line."""
        reply, response, own = self._reply, self._reply.response, ""
        if reply.headers or response.headers or response.content_type is not None:
            fields = {name.lower(): (name, value) for name, value in (*reply.headers, *response.headers)}
            if response.content_type is not None:
                fields["content-type"] = ("content-type", response.content_type)
            lines = [f"{name}: {value}\r\n" for name, value in fields.values() if not _CONTROL.search(name + value)]
            own = _expect_lines("".join(lines), len(lines))
        status_line = _status_line if len(response.phrase) <= _MAX_CACHED else _status_line.__wrapped__
        first = status_line(request.version, self.status, response.phrase)
        routed = "" if reply.request_id is None else _ROUTED.format(reply.request_id)
        connection = "connection: close\r\n" if self._closes else "connection: keep-alive\r\n"
        return f"{first}{own}{routed}{connection}{framing}\r\n".encode("latin-1", "replace")


@lru_cache(maxsize=1024)
def _status_line(version: tuple[int, int], status: int, phrase: str) -> str:
    return _expect_lines(f"HTTP/{version[0]}.{version[1]} {status} {_CONTROL.sub(' ', phrase)}\r\n", 1)


def _expect_lines(text: str, count: int) -> str:
    """Return a part of a head; raises ValueError for a line end inside a header or the reason phrase."""
    if text.count("\r") != count or text.count("\n") != count or "\0" in text:
        raise ValueError("a header, or the reason phrase, has a line end in it")
    return text


def _routeless(response: Response, headers: Headers) -> _HttpResponse:
    """Return a response that no route gave, and that ends the connection."""
    return _HttpResponse(Reply(response=response, headers=headers, request_id=str(uuid.uuid4())), closes=True)


class _Connection(RequestHandler):
    """Answers malformed requests as TorchServe does, and disconnects clients that do not read their response."""

    __slots__ = ("_server", "_write_timer")

    def __init__(self, manager: web.Server, *, server: "HttpServer", **given: Any) -> None:  # Any: aiohttp's
        super().__init__(manager, **given)
        self._server = server
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(0)  # so that any unread data pauses writing
            self._server.count_connection(self.transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._server.connection_count -= 1
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_progress()

    def resume_writing(self) -> None:
        self._stop_timer()
        super().resume_writing()

    def _stop_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _expect_progress(self, unread: float = math.inf) -> None:
        """Disconnect a client that has read nothing since the last call, and call again later."""
        if self.transport is None:
            return
        left = self.transport.get_write_buffer_size()
        if left >= unread:
            self.transport.abort()
        else:
            self._write_timer = self._loop.call_later(self._server.settings.write_grace, self._expect_progress, left)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> web.StreamResponse:
        """Return the response to a malformed request, or to one that met a bug."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client is gone
        if status == 400:
            return _routeless(HeadError().response, self._server.settings.headers)
        self._loop.call_exception_handler({"message": "a request could not be answered", "exception": exc})
        if request.writer.output_size > 0:  # the response has begun
            _reset(request)
        failure = error_response(500, "the server failed on this request; see its log for the error")
        return _routeless(failure, self._server.settings.headers)


class _ConnectionFactory(web.Server):
    """Makes a `_Connection` for each client."""

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class HttpServer:
    """Listening addresses with their handlers."""

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self.draining = False
        self.connection_count = 0
        self._max_connections = raise_fd_limit(settings.max_connections)
        if self._max_connections < settings.max_connections:
            _LOG.warning("the limit of open files (ulimit -Hn) allows only %d connections", self._max_connections)
        self._is_full = False  # and that was reported
        self._busy: set[object] = set()  # connections with a request in progress
        self._runners: list[web.ServerRunner] = []
        self._sockets: list[Path] = []  # files to remove

    async def listen(self, address: Address, handler: Handler) -> Address:
        """Answer on an address from now on; return it with its actual port.

        Raises UsageError for an address that is not available.
        """
        sock = open_socket(address)
        factory = _ConnectionFactory(
            partial(self._answer, handler),
            handler_cancellation=True,
            keepalive_timeout=self.settings.keep_alive,
            lingering_time=self.settings.linger,
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_HEADER,
            logger=_AIOHTTP_LOG,
            server=self,
        )
        runner = web.ServerRunner(factory, shutdown_timeout=_CLOSE_TIMEOUT)
        self._runners.append(runner)
        self._sockets += [Path(address.path)] if address.path else []
        await runner.setup()
        await web.SockSite(runner, sock, backlog=_BACKLOG).start()
        return address if address.path else replace(address, port=sock.getsockname()[1])

    def count_connection(self, transport: asyncio.Transport) -> None:
        """Count a new connection; close it at once beyond the limit."""
        if self.connection_count < self._max_connections * _WARN_AGAIN:
            self._is_full = False
        self.connection_count += 1
        if self.connection_count <= self._max_connections:
            return
        if not self._is_full:
            self._is_full = True
            _LOG.warning("%d connections are open; further ones are closed at once", self._max_connections)
        transport.abort()

    async def drain(self, seconds: float, *, until: Callable[[], bool]) -> None:
        """Stop accepting connections, and wait for running requests, at most `seconds` or until `until()` is true.

        Open connections still get a response for a moment: their requests may have been sent before.
        """
        self.draining = True
        begun = time.monotonic()
        for runner in self._runners:
            for site in runner.sites:
                await site.stop()
        await wait_for(lambda: until() or not self.connection_count, begun + min(seconds, _DRAIN_GRACE))
        for connection in self._connections():
            connection.close()  # after its current request
        await asyncio.sleep(_DRAIN_START)
        for connection in self._connections():
            if connection not in self._busy:
                connection.force_close()
        await wait_for(lambda: until() or not self._busy, begun + seconds)

    def _connections(self) -> list[RequestHandler]:
        return [each for runner in self._runners if runner.server for each in runner.server.connections]

    async def close(self) -> None:
        """Close every address and connection; abort running requests."""
        for connection in self._connections():
            if connection in self._busy and connection.transport is not None:
                connection.transport.abort()
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))
        for path in self._sockets:
            path.unlink(missing_ok=True)

    async def _answer(self, handler: Handler, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._busy.add(connection)
        try:
            if request.version < (1, 0):  # a request line without a version
                return _routeless(HeadError().response, self.settings.headers)
            reply = await handler(HttpRequest(request, self.settings))
            if reply.response.reset:  # send the pieces, then reset the connection
                reply.stream = StreamedResponse(reply.response)
                reply.stream.end(reply.response.pieces, broken=True)
            if reply.request_id is not None and self.settings.headers:
                reply.headers = (*self.settings.headers, *reply.headers)
            response = _HttpResponse(reply, closes=self.draining or _closes(request, reply))
            try:
                await response.prepare(request)  # here, so that the connection stays busy until it is written
            except StreamAbortedError:
                _reset(request)
            finally:
                if reply.stream is not None:
                    reply.stream.leave()
            return response
        finally:
            self._busy.discard(connection)


def _closes(request: web.BaseRequest, reply: Reply) -> bool:
    """Return whether the connection ends with a response."""
    if not request.keep_alive:
        return True
    if reply.response.status >= 400:  # after Expect, the client may or may not send the refused body
        return not reply.keeps_open or "Expect" in request.headers
    return reply.stream is not None and request.version < (1, 1)  # without chunks, closing marks the end


def _reset(request: web.BaseRequest) -> NoReturn:
    """Reset a connection, so that its client does not take a partial response for a complete one.

    Raises ConnectionResetError.
    """
    if request.transport is not None:
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        request.transport.abort()
    raise ConnectionResetError


def open_socket(address: Address) -> socket.socket:
    """Return a socket that listens on an address; raises UsageError for an address that is not available."""
    family, place = socket.AF_UNIX, cast("Any", address.path)  # Any: each address family has its own type
    try:
        if address.path is None:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, place = min(found, key=lambda each: each[0] != socket.AF_INET)  # clients prefer IPv4
        elif Path(address.path).is_socket():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                try:
                    client.connect(address.path)
                except ConnectionRefusedError:  # of a server that was killed
                    Path(address.path).unlink()
        with ExitStack() as on_error:
            sock = on_error.enter_context(socket.socket(family, socket.SOCK_STREAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(place)
            sock.listen(_BACKLOG)  # with SO_REUSEADDR, a port in use may fail only here
            on_error.pop_all()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "Use an address of this machine, and a port above 1023."
        if taken:
            hint = "Stop the process that listens on this address, or choose another port."
        code = "address-in-use" if taken else "address-not-available"
        raise UsageError(
            f"cannot listen on {address.place}: {describe_os_error(error)}", hint=hint, code=code
        ) from error
    return sock


def raise_fd_limit(connections: int) -> int:
    """Raise the soft limit of open files as far as `connections` need; return how many connections it allows.

    Workers inherit the limit and some programs iterate over all of it, so it is not raised further than needed.
    """
    try:
        import resource  # noqa: PLC0415 - not every system has it
    except ImportError:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    return max(1, possible - _OTHER_DESCRIPTORS)


async def wait_for(is_done: Callable[[], bool], end: float) -> None:
    """Wait until `is_done()` is true, or until `end` on the monotonic clock."""
    while not is_done() and time.monotonic() < end:
        await asyncio.sleep(_POLL)


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:  # Any: as in typing.Coroutine
    """Run a server's main coroutine in uvloop, or in asyncio's own loop where uvloop does not exist."""
    try:
        import uvloop  # noqa: PLC0415 - not every system has it
    except ImportError:
        return asyncio.run(main())
    return uvloop.run(main())
