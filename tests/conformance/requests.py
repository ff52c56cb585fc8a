"""Requests: what a probe asks, as HTTP for the real server and as values for marpack."""

from __future__ import annotations

from urllib.parse import quote_from_bytes

from conformance.probe import Call, Field, Form
from conformance.wire import Message

from marpack.runtime.messages import Part, Request

BOUNDARY = "----conformance"


def message_of(call: Call, model: str) -> Message:
    """Return a call as HTTP."""
    content_type, body = _encoded(call)
    headers = (*((("Content-Type", content_type),) if content_type is not None else ()), *call.headers)
    path = f"/{call.route}/{model}" + (f"/1.0/{call.url_path}" if call.url_path else "")
    return Message("POST", path, headers, body)


def request_of(call: Call) -> Request:
    """Return a call as the server's frontend would hand it to the worker."""
    message = message_of(call, "model")
    headers = (*message.headers, ("Host", "127.0.0.1:8080"), ("Content-Length", str(len(message.body))))
    return Request(
        id=f"request-{call.name}",
        parts=_parts(call),
        headers=tuple((name, value.strip(" ")) for name, value in headers),  # as HTTP reads them
        url_path=call.url_path,
        explain=call.route == "explanations",
    )


def _encoded(call: Call) -> tuple[str | None, bytes]:
    if not isinstance(call.body, Form):
        return call.content_type, call.raw()
    if call.body.urlencoded:
        pairs = (b"=".join((_quoted(one.name.encode()), _quoted(one.value))) for one in call.body.fields)
        return "application/x-www-form-urlencoded", b"&".join(pairs)
    return f"multipart/form-data; boundary={BOUNDARY}", multipart(call.body.fields)


def _quoted(value: bytes) -> bytes:
    return quote_from_bytes(value, safe="").encode()


def multipart(fields: tuple[Field, ...]) -> bytes:
    """Return fields as a multipart body between BOUNDARY lines."""
    lines = [b"".join((_head(one), one.value, b"\r\n")) for one in fields]
    return b"".join((*lines, f"--{BOUNDARY}--\r\n".encode()))


def _head(one: Field) -> bytes:
    filename = f'; filename="{one.filename}"' if one.filename is not None else ""
    content_type = f"\r\nContent-Type: {one.content_type}" if one.content_type is not None else ""
    disposition = f'Content-Disposition: form-data; name="{one.name}"{filename}'
    return f"--{BOUNDARY}\r\n{disposition}{content_type}\r\n\r\n".encode()


def _parts(call: Call) -> tuple[Part, ...]:
    if call.seen_as is not None:
        return tuple(Part(one.name, one.value, one.content_type or "") for one in call.seen_as)
    if isinstance(call.body, Form):
        return tuple(Part(one.name, one.value, _part_type(one)) for one in call.body.fields)
    return (Part("body", call.raw(), _bare(call.content_type or "")),)


def _part_type(one: Field) -> str:
    # Only files carry a type; one that says nothing is of the type that says nothing.
    return _bare(one.content_type or "application/octet-stream") if one.filename is not None else ""


def _bare(content_type: str) -> str:
    return content_type.partition(";")[0].strip()
