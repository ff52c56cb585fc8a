"""A response as HTTP: phrases, JSON errors, the headers that are kept; requests without a sequence (contract §9).

Facts read off a real TorchServe 0.12; docs/conformance.md lists them.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Self

from msgspec import Struct

from marpack.torchserve.context import Context, RequestProcessor
from marpack.torchserve.frontend.headers import FormError, TooLargeError
from marpack.torchserve.http import Response

# Statuses under which HTTP carries no body.
_BODILESS = {204, 205, 304}
# Headers that the frontend sets itself, whatever the handler says.
_RESERVED = {
    "x-request-id", "pragma", "cache-control", "expires", "content-length", "connection", "transfer-encoding",
}  # fmt: skip
_JSON = "application/json"

# The reason phrases of the server's HTTP library where they are not Python's, or not every Python's. Of a code that it
# does not know, the class and the code.
_OWN_PHRASES = {
    413: "Request Entity Too Large",
    414: "Request-URI Too Long",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
    425: "Unordered Collection",
}
_UNKNOWN = {208, 226, 418, 451, 508}
_PHRASES = {status.value: status.phrase for status in HTTPStatus if status not in _UNKNOWN} | _OWN_PHRASES
_CLASSES = {1: "Informational", 2: "Success", 3: "Redirection", 4: "Client Error", 5: "Server Error"}
_SIGKILL = 9
# What the frontend's Java says of the lock that it makes only where there is an idle time.
_NO_LOCK = (
    'Cannot invoke "java.util.concurrent.locks.ReentrantLock.isHeldByCurrentThread()" '
    'because "this.jobGroupLock" is null'
)


def phrase_of(status: int) -> str:
    """Return the reason phrase that the frontend gives its own answers."""
    return _PHRASES.get(status) or f"{_CLASSES.get(status // 100, 'Unknown Status')} ({status})"


def carried(status: int, body: bytes) -> bytes:
    """Return the bytes that reach the client under a status."""
    informational = 100 <= status < 200 and status != 101
    return b"" if informational or status in _BODILESS else body


def kept_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return the handler's headers as they reach the client: without the frontend's own, in Latin-1.

    Of names that differ only in case one survives: the last in the order of the frontend's (Java's) hash map.
    """
    kept: dict[str, tuple[str, str]] = {}
    for name in _hash_map_order(list(headers)):
        if name.lower() not in _RESERVED:
            kept[name.lower()] = (name, "".join(map(_latin, headers[name])))
    return dict(kept.values())


def _latin(letter: str) -> str:
    """Return a letter as it stands in a header: one "?" for each of Java's two halves of an emoji."""
    return letter if letter <= "\xff" else "?" if letter <= "\uffff" else "??"


def _hash_map_order(names: list[str]) -> list[str]:
    """Return names in the order in which a java.util.HashMap lists them."""
    buckets = 16
    while len(names) > buckets * 0.75:
        buckets *= 2
    return sorted(names, key=lambda name: _spread_hash(name) % buckets)


def _spread_hash(name: str) -> int:
    code = 0
    units = name.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + high * 256 + low) & 0xFFFFFFFF
    return code ^ (code >> 16)


def refusal(error: FormError) -> Response:
    """Return the frontend's own answer to a body that it cannot take in, or a form that it cannot take apart."""
    if isinstance(error, TooLargeError):
        return Response(status=error.status, phrase=phrase_of(error.status), body=b"", failed=True)
    return error_response(error.status, error.message, kind=error.kind)


def error_response(status: int, message: str, *, kind: str = "InternalServerException") -> Response:
    """Return the frontend's JSON for a batch that failed with a status and a message."""
    if status == 200:  # an "error" that claims success goes out as the worker's placeholder
        return Response(status=200, body=b"error", failed=True)
    fields = {"code": status, "type": kind, "message": message}
    text = json.dumps(fields, indent=2, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    body = carried(status, f"{text}\n".encode())
    return Response(status=status, phrase=phrase_of(status), body=body, content_type=_JSON, failed=True)


def no_answer(why: str) -> Response:
    """Return what stands for an answer that never comes: the client waits until it gives up."""
    return Response(status=0, phrase=f"no answer: {why}", body=b"", failed=True)


def is_no_answer(response: Response) -> bool:
    """Say whether this stands for an answer that never comes; a handler's own answer may have the status 0, too."""
    return response.failed and response.status == 0 and not response.body


def death_response(signal: int | None, *, lost: bool = False) -> Response:
    """Return what a client gets whose worker ended while it was answering.

    Args:
        signal: The signal that ended it, or None. A SIGKILL counts as out of memory: 507.
        lost: Whether the server forgets the request with the worker, as it does under asyncCommunication.
    """
    if lost:
        return no_answer("asyncCommunication forgets the request")
    return error_response(507 if signal == _SIGKILL else 500, "Worker died.")


class Sequences(Struct, frozen=True):
    """The `sequenceBatching` of a model config."""

    stuck: bool  # the server answers no request at all: it cannot without an idle time

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:  # Any: YAML as it stands
        """Return what a config asks for, None if it asks for no sequences."""
        if config.get("sequenceBatching") is not True:
            return None
        idle = config.get("sequenceMaxIdleMSec")  # ms
        return cls(stuck=not isinstance(idle, int) or isinstance(idle, bool) or idle <= 0)

    def refusals(self, count: int) -> tuple[Response, ...]:
        """Return what clients get instead."""
        return (error_response(500, _NO_LOCK, kind="NullPointerException"),) * count

    def enter(self, request: RequestProcessor, context: Context) -> None:
        """Begin a sequence with a request that names none, as the frontend does."""
        from uuid import uuid4  # noqa: PLC0415 - few models have sequences

        keys = vars(context)
        headers = request.get_request_properties()
        if not headers.get(keys["header_key_sequence_id"]):
            headers[keys["header_key_sequence_id"]] = f"ts-seq-{uuid4()}"
            headers[keys["header_key_sequence_start"]] = "true"
