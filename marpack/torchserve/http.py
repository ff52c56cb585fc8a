"""Requests as the frontend hands them to a handler, and responses as clients get them (contract §4, §5)."""

from msgspec import Struct

MAX_BODY = 6_553_500  # bytes: the server's max_request_size and max_response_size, where its operator sets no others


# What comes with every request is without the garbage collector's care (gc=False): none of it can hold itself.


class Part(Struct, frozen=True, gc=False):
    """One input parameter of a request, as the server's frontend hands it to the worker (contract §4)."""

    name: str  # "body" for a raw body, else the form field's name
    value: bytes
    content_type: str = ""


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """One request of a batch."""

    id: str
    parts: tuple[Part, ...]
    headers: tuple[tuple[str, str], ...] = ()  # as sent, names untouched
    url_path: str | None = ""  # what follows the version in the path; None: its route tells nothing of it
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
    """One intermediate streamed answer, to all rows of the batch or some."""

    responses: dict[int, Response]
