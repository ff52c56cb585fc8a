"""An HTTP request → the one that a handler gets: its body raw, or as the fields of a form (contract §4).

Forms as curl, requests and browsers send them are read as the server reads them, peculiarities included: a field's
name loses `:` and `=`, a file's type is the last of its parameters, and a body that is cut short counts as far as it
goes. A form that is malformed is an error 400.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from urllib.parse import unquote_plus, unquote_to_bytes

from marpack.torchserve import MAX_BODY
from marpack.torchserve.http import HeadError, Part, Request, RequestError, TooLargeError, is_header_name

MULTIPART = "multipart/form-data"
FORM_TYPE = f"{MULTIPART}; boundary=0123456789abcdef"  # of a form whose client is not known
OCTETS = "application/octet-stream"
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_URLENCODED = "application/x-www-form-urlencoded"
_MAX_HEAD = 8192  # bytes of all header lines without their ends; the server refuses this many
_AROUND = 110  # bytes that a client writes around each field: the boundary and the names of two headers
_PLAIN_ENCODINGS = {"", "7bit", "8bit", "binary"}
_VISIBLE = re.compile(rb"[^\x00-\x20\x7f-\x9f]")
_AFTER_DELIMITER = re.compile(rb"\r?\n")
_QUOTED_OR_SEMICOLON = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|;', re.DOTALL)
_BLANKED = str.maketrans({":": " ", ",": " ", "=": " ", ";": " ", "\t": " ", "\r": " ", "\n": None, '"': None})


def receive(
    headers: Iterable[tuple[str, str]],
    content: bytes | Iterable[Part],
    *,
    request_id: str,
    content_type: str | None = None,
    url_path: str | None = "",
    explain: bool | None = False,
    limit: int = MAX_BODY,
) -> Request:
    """Return an HTTP request as the frontend passes it to the worker.

    Args:
        headers: As they were sent.
        content: The body, or the fields of a form in place of one.
        request_id: The request's id.
        content_type: Of the body, if the headers do not name it; it is then added to them.
        url_path: The path after the version; None: the handler does not see it.
        explain: Whether it was sent to /explanations; None: as above.
        limit: Bytes that a body may have.

    Raises HeadError, TooLargeError, or RequestError for a malformed form.
    """
    sent = tuple(headers)
    if content_type and not any(name.lower() == "content-type" for name, _ in sent):
        sent = (("Content-Type", content_type), *sent)
    kept = read_headers(sent)
    if content_type is None:
        content_type = next((value for name, value in kept if name.lower() == "content-type"), None)
    if isinstance(content, bytes):
        parts = parts_of(content_type, content, limit=limit)
    else:
        given = tuple(content)
        size = sum(len(part.value) + len(part.name) + len(part.content_type) + _AROUND for part in given)
        if size > limit:
            raise TooLargeError(size, limit)
        parts = last_wins(Part(_field_name(each.name), each.value, _part_type(each.content_type)) for each in given)
    return Request(id=request_id, parts=parts, headers=kept, url_path=url_path, explain=explain)


def read_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return a request's headers as its handler sees them: values in Latin-1, without blanks; raises HeadError."""
    size, kept = 0, []
    for name, value in headers:
        size += len(name) + len(": ") + len(value)
        if size >= _MAX_HEAD or not is_header_name(name):
            raise HeadError
        text = value.strip(" \t")
        if not text.isascii() and max(text) > "\xff":  # it was sent as UTF-8
            text = text.encode("utf-8", "replace").decode("latin-1")
        if name.lower() != "expect" or text.lower() != "100-continue":  # the frontend's own business
            kept.append((name, text))
    return tuple(kept)


def bare_type(content_type: str) -> str:
    """Return a content type without its parameters; a blank before the semicolon stays part of it."""
    return content_type.strip(" \t").partition(";")[0]


def parts_of(content_type: str | None, body: bytes, *, limit: int = MAX_BODY) -> tuple[Part, ...]:
    """Return the parts of a body; raises RequestError for a malformed form, or more than `limit` bytes."""
    if len(body) > limit:
        raise TooLargeError(len(body), limit)
    header = (content_type or "").strip(" \t")
    if header.startswith(MULTIPART) and (boundary := _parameters(header).get("boundary")) is not None:
        return last_wins(_multipart(body, boundary))
    kind = bare_type(header)
    if kind.lower() == _URLENCODED:
        return last_wins(_urlencoded(body))
    return (Part("body", body, kind),)


def last_wins(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts with distinct names: of duplicates the first's place and the last's value."""
    return tuple({part.name: part for part in parts}.values())


def _multipart(body: bytes, boundary: str) -> Iterator[Part]:
    """Yield the parts of a body as far as it is whole."""
    if not boundary:
        raise RequestError("multipart/form-data: the parameter boundary of Content-Type is empty")
    delimiter = b"--" + boundary.encode("latin-1", "replace")
    at = 0
    # Nothing but blanks may precede a delimiter; none follows the last one.
    while (visible := _VISIBLE.search(body, at)) and body.startswith(delimiter, visible.start()):
        line_end = _AFTER_DELIMITER.match(body, visible.start() + len(delimiter))
        head = line_end and _read_head(body, line_end.end())
        if not head:
            return
        name, content_type, start = head
        # The value ends before the line that begins with the delimiter; an empty one may have no line of its own.
        end = start if body.startswith(delimiter, start) else body.find(b"\n" + delimiter, start)
        if end < 0:
            return
        at = end
        if end > start and body[end - 1 : end] == b"\r":
            end -= 1
        yield Part(name, body[start:end], content_type)


def _read_head(body: bytes, at: int) -> tuple[str, str, int] | None:
    """Return a section's name, its type ("" for a plain field) and where its value starts; None if it is cut short."""
    disposition: dict[str, str] = {}
    content_type, encoding = OCTETS, ""
    while (end := body.find(b"\n", at)) >= 0:
        line, at = body[at:end].removesuffix(b"\r"), end + 1
        if not line:
            break
        header, _, value = line.decode("utf-8", "replace").partition(":")
        match header.strip().lower():
            case "content-disposition" if value.partition(";")[0].strip().lower() == "form-data":
                if not all("=" in piece for piece in _pieces(value)[1:]):
                    raise RequestError("multipart/form-data: a parameter of Content-Disposition has no value")
                disposition |= _parameters(value)
            case "content-type":
                if value.partition(";")[0].strip().lower() == "multipart/mixed":
                    raise RequestError(
                        "multipart/form-data: a section is multipart/mixed; send each file as its own section"
                    )
                content_type = _part_type(value)
            case "content-transfer-encoding":
                encoding = value.strip().lower()
    else:
        return None
    if "name" not in disposition:
        raise RequestError('multipart/form-data: a section lacks Content-Disposition: form-data; name="…"')
    is_file = "filename" in disposition or "filename*" in disposition
    if is_file and encoding not in _PLAIN_ENCODINGS:
        raise RequestError(
            f"multipart/form-data: the Content-Transfer-Encoding {encoding} is not supported; send the bytes unencoded"
        )
    return _field_name(disposition["name"]), content_type if is_file else "", at


def _parameters(header: str) -> dict[str, str]:
    """Return a header's parameters by their names in lower case, values without the quotes around them."""
    found: dict[str, str] = {}
    for piece in _pieces(header)[1:]:
        name, equals, value = piece.partition("=")
        value = value.strip()
        if equals:
            found[name.strip().lower()] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return found


def _pieces(header: str) -> list[str]:
    """Return the pieces of a header between the semicolons outside quotes."""
    cuts = [found.start() for found in _QUOTED_OR_SEMICOLON.finditer(header) if found[0] == ";"]
    return [header[start + 1 : end].strip() for start, end in pairwise((-1, *cuts, len(header)))]


def _part_type(content_type: str) -> str:
    """Return the type that a file with this Content-Type has: its last piece that names no charset."""
    kinds = [piece for piece in _pieces(content_type) if not piece.lower().startswith("charset")]
    return kinds[-1] if kinds else OCTETS


def _field_name(name: str) -> str:
    """Return a field's name as handlers see it: without quotes, and with blanks for `:,=;`."""
    kept = name.translate(_BLANKED).strip()
    if not kept:
        raise RequestError("the form has a field without a name")
    return kept


def _urlencoded(body: bytes) -> Iterator[Part]:
    """Yield the pairs of an urlencoded body, as far as its first line end; a last name without "=" is dropped."""
    line = body.lstrip(b"\r\n").partition(b"\n")[0].removesuffix(b"\r")
    *pairs, last = line.split(b"&")
    for pair in (*pairs, *([last] if b"=" in last else ())):
        raw_name, _, value = pair.partition(b"=")
        if b"\r" in pair:
            raise RequestError("the urlencoded body has a carriage return; write it as %0D")
        text = pair.decode("utf-8", "replace")
        if BAD_ESCAPE.search(text):
            raise RequestError(f"the urlencoded body has a % without two hexadecimal digits: {text[:80]}")
        name = unquote_plus(raw_name.decode("utf-8", "replace")).strip()
        if not name:
            raise RequestError("the form has a field without a name")
        yield Part(name, unquote_to_bytes(value.replace(b"+", b" ")))
