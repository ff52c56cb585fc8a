"""Answers as they are written: with the headers that the server sends, in Latin-1, and no others."""

import re
import uuid
from functools import lru_cache
from typing import Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from marpack.torchserve.http import Response

# Characters that HTTP forbids in a head; of those that would end a line, `_expect_lines` says so, loudly.
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
# As the server sets them, on whatever passed a route.
_ROUTED = (
    "x-request-id: {}\r\nPragma: no-cache\r\nCache-Control: no-cache; no-store, must-revalidate, private\r\n"
    "Expires: Thu, 01 Jan 1970 00:00:00 UTC\r\n"
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
            head = self._head(request, f"content-length: {len(body)}\r\n" if has_length else "")
            await request.writer.write_eof(head + body if self._takes_body(request) else head)
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Send nothing: all of it was sent before."""

    async def begin(self, request: web.BaseRequest) -> bool:
        """Send the head of an answer in pieces, which are for the request's writer; say whether it may have any."""
        self._is_sent = True
        takes_body = self._takes_body(request)
        is_chunked = takes_body and request.version >= (1, 1)
        await request.writer.write(self._head(request, "transfer-encoding: chunked\r\n" if is_chunked else ""))
        if is_chunked:
            request.writer.enable_chunking()
        return takes_body

    def _takes_body(self, request: web.BaseRequest) -> bool:
        return request.method != "HEAD" and self.status not in _BODILESS

    def _head(self, request: web.BaseRequest, framing: str) -> bytes:
        """Return the head with the line that says where the body ends, where it needs one."""
        first = _first_line(request.version, self.status, self._response.phrase)
        routed = "" if self._request_id is None else _ROUTED.format(self._request_id)
        connection = "connection: close\r\n" if self._closes else "connection: keep-alive\r\n"
        return f"{first}{self._own()}{routed}{connection}{framing}\r\n".encode("latin-1", "replace")

    def _own(self) -> str:
        """Return a line for each of the answer's own headers and the further ones, each name once."""
        response = self._response
        if not self._further and not response.headers and response.content_type is None:
            return ""
        fields = {name.lower(): (name, value) for name, value in (*self._further, *response.headers)}
        if response.content_type is not None:
            fields["content-type"] = ("content-type", response.content_type)
        lines = [f"{name}: {value}\r\n" for name, value in fields.values() if not _CONTROL.search(name + value)]
        return _expect_lines("".join(lines), len(lines))


@lru_cache(maxsize=1024)
def _first_line(version: tuple[int, int], status: int, phrase: str) -> str:
    return _expect_lines(f"HTTP/{version[0]}.{version[1]} {status} {_CONTROL.sub(' ', phrase)}\r\n", 1)


def _expect_lines(text: str, count: int) -> str:
    """Return a part of a head; raises ValueError for one in which more lines end than its own."""
    if text.count("\r") != count or text.count("\n") != count or "\0" in text:
        raise ValueError("a header, or the reason phrase, has a line end in it")
    return text
