"""Recorded traffic: whole requests, one JSON object a line, sent to the handler as the server would send them."""

import base64
import binascii
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from marpack.errors import UsageError
from marpack.runner.inputs import Input, described, read_file, refused, request_id, unreadable
from marpack.torchserve.forms import FORM_TYPE, OCTETS, receive
from marpack.torchserve.http import MAX_BODY, Part, Request, RequestError


class RecordedField(Struct, forbid_unknown_fields=True, kw_only=True):
    """One field of a form: a plain value, or a file part if it has a `filename`, a `file` or a `content_type`."""

    name: str | None = None  # needed where the form is a list
    value: str | None = None
    base64: str | None = None
    file: str | None = None  # a path, relative to the requests file
    filename: str | None = None
    content_type: str | None = None


class RecordedRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """One line of a requests file."""

    name: str | None = None  # how results call it; default: FILE:LINE
    id: str | None = None  # the request id the handler sees
    content_type: str | None = None
    headers: dict[str, str] | list[tuple[str, str]] = {}
    body: str | None = None  # text; at most one of body, base64, file, json and form
    base64: str | None = None
    file: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    form: dict[str, str | RecordedField] | list[RecordedField] | None = None
    explain: bool = False
    describe: bool = False
    url_path: str = ""
    batch: str | int | None = None  # requests in a row with the same value are handled in one call


_DECODER = msgspec.json.Decoder(RecordedRequest)


def recorded_inputs(path: str, *, limit: int = MAX_BODY) -> Iterator[Input]:
    """Yield one input per line of a requests file (`-` for stdin); empty lines are skipped.

    What has a body of more than `limit` bytes is refused, as by the server.

    A line that is no request is yielded as an input that is refused. Raises UsageError for a file that cannot be read.
    """
    folder = _folder(path)
    for where, number, line in _numbered(path):
        try:
            yield _input(where, number, line, folder, limit)
        except UsageError as error:
            yield unreadable(where, error)


def check_requests(path: str) -> None:
    """Raise UsageError if a requests file cannot be read or begins with what is no request: it is the wrong file."""
    for where, number, line in _numbered(path):
        _input(where, number, line, _folder(path), MAX_BODY)
        return
    raise UsageError("the file holds no requests", where=path, hint=_HINT)


def _numbered(path: str) -> Iterator[tuple[str, int, bytes]]:
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield f"{path}:{number}", number, line


def _folder(path: str) -> str:
    return "" if path == "-" else str(Path(path).parent)


def _lines(path: str) -> Iterator[bytes]:
    if path == "-":
        yield from sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as file:
            yield from file
    except OSError as error:
        what = f"the requests cannot be read: {error.strerror}"
        raise UsageError(what, where=path, code="unreadable-requests") from error


_HINT = "each line is one JSON object: docs/requests.md shows its keys"


def _input(where: str, number: int, line: bytes, folder: str, limit: int) -> Input:
    try:
        recorded = _DECODER.decode(line)
        content = _content(recorded, folder)
    except RecursionError:
        hint = 'give a body that deep as text, under "body", or as a file, under "file"'
        raise UsageError("this line is nested too deeply to be read", where=where, hint=hint) from None
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise UsageError(f"this line is no request: {error}", where=where, hint=_HINT) from error
    name, identity = recorded.name or where, recorded.id or request_id(number)
    batch = None if recorded.batch is None else str(recorded.batch)
    headers = recorded.headers.items() if isinstance(recorded.headers, dict) else recorded.headers
    try:
        request = receive(
            described(headers, describe=recorded.describe),
            content,
            request_id=identity,
            content_type=_content_type(recorded, headers),
            url_path=recorded.url_path,
            explain=recorded.explain,
            limit=limit,
        )
    except RequestError as error:
        return refused(name, error, Request(id=identity, parts=()), batch)
    return Input(name, request, batch)


def _content_type(recorded: RecordedRequest, headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the content type of a body, or of a form, whose headers do not say it."""
    if recorded.content_type or any(name.lower() == "content-type" for name, _ in headers):
        return recorded.content_type or None
    if recorded.form is not None:
        return FORM_TYPE
    return "application/json" if bytes(recorded.json) else None


def _content(recorded: RecordedRequest, folder: str) -> bytes | tuple[Part, ...]:
    bodies = (recorded.body, recorded.base64, recorded.file, recorded.form)
    if sum(body is not None for body in bodies) + bool(bytes(recorded.json)) > 1:
        raise ValueError("it has more than one of body, base64, file, json and form")
    return _body(recorded, folder) if recorded.form is None else _form(recorded.form, folder)


def _body(recorded: RecordedRequest, folder: str) -> bytes:
    if recorded.base64 is not None:
        return base64.b64decode(recorded.base64, validate=True)
    if recorded.file is not None:
        return read_file(os.path.join(folder, recorded.file))  # noqa: PTH118 - thousands a second
    return bytes(recorded.json) or (recorded.body or "").encode()


def _form(form: dict[str, str | RecordedField] | list[RecordedField], folder: str) -> tuple[Part, ...]:
    if isinstance(form, dict):
        return tuple(_field(name, field, folder) for name, field in form.items())
    return tuple(_field(field.name, field, folder) for field in form)


def _field(name: str | None, field: str | RecordedField, folder: str) -> Part:
    if not name:
        raise ValueError("a form field has no name")
    if isinstance(field, str):
        return Part(name, field.encode())
    is_file = field.filename is not None or field.file is not None or field.content_type is not None
    kind = (field.content_type or OCTETS) if is_file else ""
    if field.base64 is not None:
        return Part(name, base64.b64decode(field.base64, validate=True), kind)
    if field.file is not None:
        return Part(name, read_file(os.path.join(folder, field.file)), kind)  # noqa: PTH118 - as above
    return Part(name, (field.value or "").encode(), kind)
