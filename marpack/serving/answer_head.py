"""Answers as the HTTP library writes them: with the headers that the server sends, and no others."""

import re
import uuid
from typing import Self

from aiohttp import web
from aiohttp.http_writer import StreamWriter
from multidict import CIMultiDict

from marpack.torchserve.messages import Response

_UNASKED = ("Server", "Date", "Content-Type")  # headers that the HTTP library adds
# Characters that HTTP forbids in a head; of those that would end a line, the library says so, loudly.
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NO_CACHE = {
    "Pragma": "no-cache",
    "Cache-Control": "no-cache; no-store, must-revalidate, private",
    "Expires": "Thu, 01 Jan 1970 00:00:00 UTC",
}  # as the server sets them, on whatever passed a route


def head_of(
    response: Response, further: tuple[tuple[str, str], ...], request_id: str | None, *, closes: bool
) -> CIMultiDict[str]:
    """Return the headers of an answer.

    Args:
        response: The answer, whose own headers win over further ones.
        further: Beside the answer's own.
        request_id: Of the request; None: the answer did not pass a route, and has none of its headers.
        closes: Whether the connection ends with it.
    """
    headers = CIMultiDict(further)
    for name, value in response.headers:
        if not _CONTROL.search(name + value):
            headers[name] = value
    if response.content_type is not None and not _CONTROL.search(response.content_type):
        headers["content-type"] = response.content_type
    if request_id is not None:
        headers["x-request-id"] = request_id
        headers.update(_NO_CACHE)
    headers["connection"] = "close" if closes else "keep-alive"
    return headers


def _unasked(headers: CIMultiDict[str]) -> tuple[str, ...]:
    """Return which headers the HTTP library would add though neither the server nor the handler has them."""
    return tuple([name for name in _UNASKED if name not in headers])


def _phrase(response: Response) -> str:
    """Return an answer's reason phrase as it may be sent."""
    return _CONTROL.sub(" ", response.phrase)


class FrontRequest(web.BaseRequest):
    """Has no header sent that nobody asked for."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        for name in getattr(response, "unasked", ()):
            response.headers.popall(name, None)


class _Head(web.StreamResponse):
    """Writes its headers in Latin-1, as the server does; the library writes UTF-8."""

    unasked: tuple[str, ...] = ()
    _send_headers_immediately = False

    async def _write_headers(self) -> None:
        await super()._write_headers()
        writer = self._payload_writer
        if isinstance(writer, StreamWriter) and writer._headers_buf and not writer._headers_buf.isascii():  # noqa: SLF001
            writer._headers_buf = writer._headers_buf.decode().encode("latin-1", "replace")  # noqa: SLF001


class WholeResponse(_Head, web.Response):
    """An answer that is all there."""


class StreamResponse(_Head):
    """An answer in pieces."""

    @classmethod
    def of(cls, head: Response, headers: CIMultiDict[str]) -> Self:
        """Return an answer with a head, and no piece yet."""
        answer = cls(status=head.status, reason=_phrase(head), headers=headers)
        answer.unasked = _unasked(headers)
        return answer


def routeless(response: Response, further: tuple[tuple[str, str], ...]) -> web.StreamResponse:
    """Return an answer that no route gave, and that ends the connection."""
    return whole(response, head_of(response, further, str(uuid.uuid4()), closes=True))


def whole(response: Response, headers: CIMultiDict[str]) -> WholeResponse:
    """Return an answer that is all there."""
    answer = WholeResponse(body=response.body, status=response.status, reason=_phrase(response), headers=headers)
    answer.unasked = _unasked(headers)
    if headers["connection"] == "close":
        answer.force_close()
    return answer
