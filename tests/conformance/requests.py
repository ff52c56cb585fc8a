"""Requests: what a probe asks, as HTTP for the real server and as values for marpack."""

from urllib.parse import quote_from_bytes

from conformance.probe import Call, Field, Form
from conformance.wire import Message

from marpack.torchserve.forms import receive
from marpack.torchserve.http import Request

BOUNDARY = "----conformance"


def message_of(call: Call, model: str) -> Message:
    """Return a call as HTTP."""
    content_type, body = _encoded(call)
    headers = (*((("Content-Type", content_type),) if content_type is not None else ()), *call.headers)
    path = f"/{call.route}/{model}" + (f"/1.0/{call.url_path}" if call.url_path else "")
    return Message("POST", path, headers, body)


def request_of(call: Call) -> Request:
    """Return a call as the server's frontend would hand it to the worker.

    Raises marpack.torchserve.http.RequestError for what the frontend refuses.
    """
    message = message_of(call, "model")
    headers = (*message.headers, ("Host", "127.0.0.1:8080"), ("Content-Length", str(len(message.body))))
    return receive(
        headers,
        message.body,
        request_id=f"request-{call.name}",
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
