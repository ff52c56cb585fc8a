"""Requests as the frontend passes them to a handler, and the responses that clients get (contract §4, §5)."""

import json
from functools import lru_cache
from http import HTTPStatus

from msgspec import Struct

_NOT_IN_A_NAME = set("\0\t\n\x0b\x0c\r ,:;=")
_BODILESS = {204, 205, 304}
# Headers that the frontend sets itself, in place of the handler's.
_RESERVED = {
    "x-request-id", "pragma", "cache-control", "expires", "content-length", "connection", "transfer-encoding",
}  # fmt: skip
# Reason phrases; those that newer Pythons have changed as the server writes them.
_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Request Entity Too Large",
    414: "Request-URI Too Long",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}
_SIGKILL = 9


# What comes with every request is without the garbage collector's care (gc=False): none of it can hold itself.


class Part(Struct, frozen=True, gc=False):
    """One input parameter of a request, as the server's frontend passes it to the worker (contract §4)."""

    name: str  # "body" for a raw body, else the form field's name
    value: bytes
    content_type: str = ""


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """One request of a batch."""

    id: str
    parts: tuple[Part, ...]
    headers: tuple[tuple[str, str], ...] = ()  # as sent, names untouched
    url_path: str | None = ""  # the path after the version; None: its route does not pass it on
    explain: bool | None = False  # sent to /explanations; None as above


class Response(Struct, frozen=True, kw_only=True, gc=False):
    """What the client receives for one request (contract §5)."""

    status: int
    body: bytes
    phrase: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # those the handler set, content-type apart
    content_type: str | None = None
    pieces: tuple[bytes, ...] = ()  # streamed before the body
    reset: bool = False  # the connection was reset instead of closed
    failed: bool = False  # the server's own error, not the handler's answer


class ResponseChunk(Struct, frozen=True, tag=True):
    """One intermediate streamed response, to all rows of the batch or some."""

    responses: dict[int, Response]


class RequestError(ValueError):
    """A request that the frontend answers with an error; no handler sees it."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestException") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind

    @property
    def response(self) -> Response:
        """The frontend's error as the client gets it."""
        return error_response(self.status, self.message, kind=self.kind)


class HeadError(RequestError):
    """A request with a head that the frontend refuses."""

    def __init__(self) -> None:
        super().__init__("Invalid HTTP message.")


class TooLargeError(RequestError):
    """A request with a larger body than the frontend takes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the request has {size:,} bytes; the server takes {limit:,}", status=413)

    @property
    def response(self) -> Response:
        """The frontend's error: a status without a body."""
        return Response(status=self.status, phrase=phrase_of(self.status), body=b"", failed=True)


@lru_cache(maxsize=1024)  # clients send the same few
def is_header_name(name: str) -> bool:
    """Return whether the frontend takes a header of this name, in a request or a response."""
    return bool(name) and name.isascii() and not set(name) & _NOT_IN_A_NAME


def phrase_of(status: int) -> str:
    """Return the reason phrase of the frontend's own responses."""
    return _PHRASES.get(status, "")


def sendable_body(status: int, body: bytes) -> bytes:
    """Return the bytes that reach the client under a status: none where HTTP has no body."""
    informational = 100 <= status < 200 and status != 101
    return b"" if informational or status in _BODILESS else body


def sendable_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return a handler's headers as clients get them: without the frontend's own, in Latin-1.

    Of names that differ only in case the one that was set last remains.
    """
    kept = {name.lower(): (name, text) for name, text in headers.items() if name.lower() not in _RESERVED}
    return {name: text.encode("latin-1", "replace").decode("latin-1") for name, text in kept.values()}


def error_response(status: int, message: str, *, kind: str = "InternalServerException") -> Response:
    """Return the frontend's JSON for a batch that failed with a status and a message."""
    if status == 200:  # an "error" that claims success goes out as the worker's placeholder
        return Response(status=200, body=b"error", failed=True)
    fields = {"code": status, "type": kind, "message": message}
    text = json.dumps(fields, indent=2, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    body = sendable_body(status, f"{text}\n".encode())
    return Response(status=status, phrase=phrase_of(status), body=body, content_type="application/json", failed=True)


def no_answer(why: str) -> Response:
    """Return the stand-in for a response that never comes: the client waits until it gives up."""
    return Response(status=0, phrase=f"no answer: {why}", body=b"", failed=True)


def is_no_answer(response: Response) -> bool:
    """Return whether this stands for a response that never comes; a handler may also set the status 0."""
    return response.failed and response.status == 0 and not response.body


def death_response(signal: int | None, *, lost: bool = False) -> Response:
    """Return the response for a worker that a signal ended, or that exited, while it handled the request.

    SIGKILL counts as out of memory: 507. `lost`: the server forgets the request, as under asyncCommunication.
    """
    if lost:
        return no_answer("asyncCommunication forgets the request")
    return error_response(507 if signal == _SIGKILL else 500, "Worker died.")
