"""Answers as they are written: with the headers that the server sends, in Latin-1, and no others."""

import re
import uuid
from collections.abc import Iterator
from typing import Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from marpack.torchserve.messages import Response

# Characters that HTTP forbids in a head; of those that would end a line, `_expect_lines` says so, loudly.
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
# As the server sets them, on whatever passed a route.
_NO_CACHE = (
    "Pragma: no-cache",
    "Cache-Control: no-cache; no-store, must-revalidate, private",
    "Expires: Thu, 01 Jan 1970 00:00:00 UTC",
)
_LENGTHLESS = frozenset({100, 101, 102, 103, 204})  # what these answer has no length; nor has it a body
_BODILESS = _LENGTHLESS | {304}


class Answer(web.StreamResponse):
    """An answer to one request. The library's own would add a date, the library's name and a type, all in UTF-8."""

    def __init__(
        self,
        response: Response,
        further: tuple[tuple[str, str], ...] = (),
        request_id: str | None = None,
        *,
        closes: bool,
    ) -> None:
        """Take an answer, or the head of a stream.

        Args:
            response: The answer, whose own headers win over further ones.
            further: Headers beside the answer's own.
            request_id: Of the request; None: the answer did not pass a route, and has none of its headers.
            closes: Whether the connection ends with it.
        """
        super().__init__(status=response.status)
        self._response = response
        self._further = further
        self._request_id = request_id
        self._closes = closes
        self._is_sent = False

    @classmethod
    def routeless(cls, response: Response, further: tuple[tuple[str, str], ...]) -> Self:
        """Return an answer that no route gave, and that ends the connection."""
        return cls(response, further, str(uuid.uuid4()), closes=True)

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open after it."""
        return not self._closes

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send it whole, unless it was sent."""
        if not self._is_sent:
            self._is_sent = True
            body = self._response.body
            has_length = self.status not in _LENGTHLESS and (body or (self.status != 304 and request.method != "HEAD"))
            head = self._head(request, f"content-length: {len(body)}" if has_length else "")
            await request.writer.write_eof(head + body if self._takes_body(request) else head)
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Send nothing: all of it was sent before."""

    async def begin(self, request: web.BaseRequest) -> bool:
        """Send the head of an answer in pieces, which are for the request's writer; say whether it may have any."""
        self._is_sent = True
        takes_body = self._takes_body(request)
        is_chunked = takes_body and request.version >= (1, 1)
        await request.writer.write(self._head(request, "transfer-encoding: chunked" if is_chunked else ""))
        if is_chunked:
            request.writer.enable_chunking()
        return takes_body

    def _takes_body(self, request: web.BaseRequest) -> bool:
        return request.method != "HEAD" and self.status not in _BODILESS

    def _head(self, request: web.BaseRequest, framing: str) -> bytes:
        """Return the head with what says where the body ends, where it needs that."""
        major, minor = request.version
        lines = [f"HTTP/{major}.{minor} {self.status} {_CONTROL.sub(' ', self._response.phrase)}", *self._own()]
        if self._request_id is not None:
            lines += (f"x-request-id: {self._request_id}", *_NO_CACHE)
        lines.append("connection: close" if self._closes else "connection: keep-alive")
        if framing:
            lines.append(framing)
        head = "\r\n".join(lines)
        _expect_lines(head, len(lines))
        return head.encode("latin-1", "replace") + b"\r\n\r\n"

    def _own(self) -> Iterator[str]:
        """Yield a line for each of the answer's own headers and the further ones, each name once."""
        fields = {name.lower(): (name, value) for name, value in self._further}
        kept = [(name, value) for name, value in self._response.headers if not _CONTROL.search(name + value)]
        fields |= {name.lower(): (name, value) for name, value in kept}
        kind = self._response.content_type
        if kind is not None and not _CONTROL.search(kind):
            fields["content-type"] = ("content-type", kind)
        return (f"{name}: {value}" for name, value in fields.values())


def _expect_lines(head: str, count: int) -> None:
    """Raise ValueError for a head in which more lines end than its own."""
    if head.count("\r") != count - 1 or head.count("\n") != count - 1 or "\0" in head:
        raise ValueError("a header, or the reason phrase, has a line end in it")
