"""Recorded traffic: whole requests, one JSON object a line, sent to the handler as the server would send them."""

import base64
import binascii
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from marpack.errors import UsageError
from marpack.runner.inputs import Input, read_input, request_id, unreadable, why_refused
from marpack.torchserve.frontend.forms import FORM_TYPE, parts_of
from marpack.torchserve.frontend.headers import FormError, check_fields, last_wins, received
from marpack.torchserve.frontend.http_response import refusal
from marpack.torchserve.frontend.multipart_headers import field_name, part_type
from marpack.torchserve.messages import MAX_BODY, Part, Request


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


def recorded_inputs(path: str, lines: Iterable[bytes] | None = None, *, limit: int = MAX_BODY) -> Iterator[Input]:
    """Yield one input per line of a requests file (`-` for stdin); empty lines are skipped.

    What has a body of more than `limit` bytes is refused, as by the server.

    A line that is no request is yielded as an input that is refused. Raises UsageError for a file that cannot be read.
    """
    for where, number, line in _numbered(path, lines):
        try:
            yield _input(where, number, line, _folder(path), limit)
        except UsageError as error:
            yield unreadable(where, error)


def check_requests(path: str) -> None:
    """Raise UsageError if a requests file cannot be read or begins with what is no request: it is the wrong file."""
    for where, number, line in _numbered(path, None):
        _input(where, number, line, _folder(path), MAX_BODY)
        return
    raise UsageError("the file holds no requests", where=path, hint=_HINT)


def _numbered(path: str, lines: Iterable[bytes] | None) -> Iterator[tuple[str, int, bytes]]:
    for number, line in enumerate(_lines(path) if lines is None else lines, 1):
        if line.strip():
            yield f"{path}:{number}", number, line


def _folder(path: str) -> Path:
    return Path() if path == "-" else Path(path).parent


def _lines(path: str) -> Iterator[bytes]:
    if path == "-":
        yield from sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as file:
            yield from file
    except OSError as error:
        raise UsageError(f"the requests cannot be read: {error.strerror}", where=path) from error


_HINT = "each line is one JSON object: docs/requests.md shows its keys"


def _input(where: str, number: int, line: bytes, folder: Path, limit: int) -> Input:
    refused = why = None
    try:
        recorded = _DECODER.decode(line)
        request = _request(recorded, number, folder, limit)
    except FormError as error:
        request = Request(id=recorded.id or request_id(number), parts=())
        refused, why = refusal(error), why_refused(error)
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise UsageError(f"this line is no request: {error}", where=where, hint=_HINT) from error
    batch = None if recorded.batch is None else str(recorded.batch)
    return Input(recorded.name or where, request, batch, refused, why)


def _request(recorded: RecordedRequest, number: int, folder: Path, limit: int) -> Request:
    parts, content_type = _parts(recorded, folder, limit)
    return Request(
        id=recorded.id or request_id(number),
        parts=parts,
        headers=received(_headers(recorded, content_type)),
        url_path=recorded.url_path,
        explain=recorded.explain,
    )


def _parts(recorded: RecordedRequest, folder: Path, limit: int) -> tuple[tuple[Part, ...], str | None]:
    bodies = (recorded.body, recorded.base64, recorded.file, recorded.form)
    if sum(body is not None for body in bodies) + bool(bytes(recorded.json)) > 1:
        raise ValueError("it has more than one of body, base64, file, json and form")
    if recorded.form is not None:
        fields = _form(recorded.form, folder)
        check_fields(fields, limit)
        return fields, recorded.content_type or (None if _named_type(recorded) else FORM_TYPE)
    content_type = recorded.content_type or _named_type(recorded)
    if content_type is None and bytes(recorded.json):
        content_type = "application/json"
    return parts_of(content_type, _body(recorded, folder), limit=limit), content_type


def _named_type(recorded: RecordedRequest) -> str | None:
    return next((value for name, value in _pairs(recorded) if name.lower() == "content-type"), None)


def _pairs(recorded: RecordedRequest) -> tuple[tuple[str, str], ...]:
    headers = recorded.headers
    return tuple(headers.items()) if isinstance(headers, dict) else tuple(headers)


def _headers(recorded: RecordedRequest, content_type: str | None) -> tuple[tuple[str, str], ...]:
    pairs = _pairs(recorded)
    named = any(name.lower() == "content-type" for name, _ in pairs)
    added = () if named or content_type is None else (("Content-Type", content_type),)
    described = (("describe", "True"),) if recorded.describe else ()
    return (*added, *pairs, *described)


def _body(recorded: RecordedRequest, folder: Path) -> bytes:
    if recorded.base64 is not None:
        return base64.b64decode(recorded.base64, validate=True)
    if recorded.file is not None:
        return read_input(str(folder / recorded.file))
    return bytes(recorded.json) or (recorded.body or "").encode()


def _form(form: dict[str, str | RecordedField] | list[RecordedField], folder: Path) -> tuple[Part, ...]:
    if isinstance(form, dict):
        return last_wins(_field(name, field, folder) for name, field in form.items())
    return last_wins(_field(field.name, field, folder) for field in form)


def _field(name: str | None, field: str | RecordedField, folder: Path) -> Part:
    if not name:
        raise ValueError("a form field has no name")
    kept = field_name(name)
    if isinstance(field, str):
        return Part(kept, field.encode())
    is_file = field.filename is not None or field.file is not None or field.content_type is not None
    kind = part_type(field.content_type or "application/octet-stream") if is_file else ""
    if field.base64 is not None:
        return Part(kept, base64.b64decode(field.base64, validate=True), kind)
    if field.file is not None:
        return Part(kept, read_input(str(folder / field.file)), kind)
    return Part(kept, (field.value or "").encode(), kind)
