"""An HTTP request → the one a handler gets, its body taken apart: raw, urlencoded or multipart (contract §4).

The server's decoder goes by its own rules: a section's headers are pieces between semicolons, each of which may replace
what one before it said, and a body that ends in the middle counts as far as it went. docs/conformance.md lists them.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_plus, unquote_to_bytes

from marpack.torchserve.frontend.headers import (
    BAD_ESCAPE,
    FormError,
    TooLargeError,
    UnreadFormError,
    bare_type,
    check_fields,
    kept_name,
    last_wins,
    received,
)
from marpack.torchserve.frontend.multipart_headers import (
    MULTIPART,
    NOT_AN_INDEX,
    OCTETS,
    boundary_of,
    check_charset,
    cleaned,
    extended,
    field_name,
    item,
    names_charset,
    part_type,
    split_header,
    unquoted,
)
from marpack.torchserve.http import MAX_BODY, Part, Request

_MIXED = "multipart/mixed"
_PLAIN_ENCODINGS = {"7bit", "8bit", "binary"}

_LINE_END = re.compile(rb"\r?\n")
_AFTER_DELIMITER = re.compile(rb"\r?\n|--(?:\r?\n|(?!\r))")
_VISIBLE = re.compile(rb"[^\x00-\x20\x7f-\x9f]")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}\Z")

_NULL = "java.lang.NullPointerException: Cannot invoke"
_NO_NAME = f'{_NULL} "io.netty.handler.codec.http.multipart.Attribute.getValue()" because "nameAttribute" is null'
_NO_CHARSET = f'{_NULL} "String.length()" because "field" is null'
FORM_TYPE = f"{MULTIPART}; boundary=0123456789abcdef"  # of a form whose client is not known
_URLENCODED = "application/x-www-form-urlencoded"
_AFTER_NAME = re.compile(rb"[=&]")
_AFTER_VALUE = re.compile(rb"[&\r\n]")


class _CutShortError(Exception):
    """The body ends, or goes wrong, in the middle: what came before it counts, and nobody is told."""


class _Decoder:
    """Reads a multipart body from front to back; raises FormError for what the frontend refuses."""

    def __init__(self, body: bytes, boundary: str, charset: str) -> None:
        self._body = body
        self._at = 0
        self._charset = charset
        self._delimiter = b"--" + boundary.encode("latin-1", "replace")
        self._fields: dict[str, str] = {}  # what the section at hand has said of itself

    def parts(self) -> Iterator[Part]:
        """Yield the parts as far as the body is whole."""
        try:
            while self._opens_section():
                self._fields = {}
                self._read_head()
                yield self._part()
        except _CutShortError:
            return

    def _opens_section(self) -> bool:
        """Read a delimiter; say whether a section follows it, or it is the last one."""
        self._skip_blanks()
        if not self._body.startswith(self._delimiter, self._at):
            raise _CutShortError
        found = _AFTER_DELIMITER.match(self._body, self._at + len(self._delimiter))
        if found is None:
            raise _CutShortError
        self._at = found.end()
        return not found[0].startswith(b"--")

    def _skip_blanks(self) -> None:
        visible = _VISIBLE.search(self._body, self._at)
        if visible is None:
            raise _CutShortError
        self._at = visible.start()

    def _read_head(self) -> None:
        while not self._reads_empty_line():
            self._skip_blanks()
            header = split_header(self._line())
            name = header[0].lower()
            if name == "content-disposition":
                if item(header, 1).lower() == "form-data":
                    self._read_parameters(header[2:])
            elif name in {"content-transfer-encoding", "content-length"}:
                self._fields[name] = cleaned(item(header, 1))
            elif name == "content-type":
                if item(header, 1).lower() == _MIXED:
                    raise UnreadFormError(f"{_MIXED} within a form: marpack does not read it")
                self._read_types(header[1:])

    def _reads_empty_line(self) -> bool:
        found = _LINE_END.match(self._body, self._at)
        if found is not None:
            self._at = found.end()
        return found is not None

    def _line(self) -> str:
        end = _LINE_END.search(self._body, self._at)
        if end is None:
            raise _CutShortError
        line, self._at = self._body[self._at : end.start()], end.end()
        return line.decode(self._charset, "replace")

    def _read_parameters(self, parameters: list[str]) -> None:
        for parameter in parameters:
            raw, equals, value = parameter.partition("=")
            if not equals:
                raise FormError("Index 1 out of bounds for length 1", kind=NOT_AN_INDEX)
            name = cleaned(raw)
            if name == "filename":
                value = unquoted(value)
            elif name == "filename*":
                name, value = "filename", extended(cleaned(value))
            else:
                value = cleaned(value)
            self._fields[kept_name(name).lower()] = value

    def _read_types(self, pieces: list[str]) -> None:
        # Each piece replaces the one before it: of "text/plain; format=flowed" the parameter is the type.
        for piece in pieces:
            if names_charset(piece):
                _, equals, charset = piece.partition("=")
                if not equals:
                    raise FormError(_NO_CHARSET)
                self._fields["charset"] = cleaned(charset)
            else:
                self._fields["content-type"] = piece

    def _part(self) -> Part:
        """Read a section's value, which ends at the next delimiter."""
        fields, is_file = self._fields, "filename" in self._fields
        if is_file:
            encoding = fields.get("content-transfer-encoding", "7bit").lower()
            if encoding not in _PLAIN_ENCODINGS:
                raise FormError(f"TransferEncoding Unknown: {encoding}")
        if "charset" in fields:
            check_charset(fields["charset"])
        if "name" not in fields:
            raise FormError(_NO_NAME)
        name = field_name(fields["name"])
        start, end = self._at, self._value_end()
        if is_file:
            _check_size((len(self._body) if end is None else end) - start, fields.get("content-length", ""))
        if end is None:
            raise _CutShortError
        self._at = end
        return Part(name, self._body[start:end], fields.get("content-type", OCTETS) if is_file else "")

    def _value_end(self) -> int | None:
        """Return where the line end before the next delimiter begins; None where there is no delimiter."""
        if self._body.startswith(self._delimiter, self._at):
            return self._at
        end = self._body.find(b"\n" + self._delimiter, self._at)
        if end < 0:
            return None
        return end - 1 if self._body.endswith(b"\r", self._at, end) else end


def _check_size(size: int, promised: str) -> None:
    """Raise FormError for a file with more bytes than its Content-Length, where that is a number."""
    length = int(promised) if _WHOLE_NUMBER.match(promised) else 0
    if 0 < length < size:
        raise FormError(f"java.io.IOException: Out of size: {size} > {length}")


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
    """Return an HTTP request as the frontend hands it on, whoever brought it.

    Args:
        headers: As they were sent.
        content: The body, or the fields of a form in place of one.
        request_id: The request's id.
        content_type: Of the body, if it is not to be read off the headers; it is added to those that name none.
        url_path: What follows the version in the path; None: the handler is told nothing of it.
        explain: Whether it was sent to /explanations; None: as above.
        limit: Bytes that a body may have.

    Raises FormError for what the frontend refuses: HeadError for its headers, TooLargeError for its size.
    """
    sent = tuple(headers)
    if content_type and not any(name.lower() == "content-type" for name, _ in sent):
        sent = (("Content-Type", content_type), *sent)
    kept = received(sent)
    if content_type is None:
        content_type = next((value for name, value in kept if name.lower() == "content-type"), None)
    parts = parts_of(content_type, content, limit=limit) if isinstance(content, bytes) else _fields(content, limit)
    return Request(id=request_id, parts=parts, headers=kept, url_path=url_path, explain=explain)


def _fields(fields: Iterable[Part], limit: int) -> tuple[Part, ...]:
    """Return fields under the names and types that a form would give them."""
    given = tuple(fields)
    check_fields(given, limit)
    return last_wins(Part(field_name(each.name), each.value, part_type(each.content_type)) for each in given)


def parts_of(content_type: str | None, body: bytes, *, limit: int = MAX_BODY) -> tuple[Part, ...]:
    """Return the parts of a request with this content type and body.

    Raises FormError for a form that the frontend refuses, and for a body of more than `limit` bytes.
    """
    if len(body) > limit:
        raise TooLargeError(len(body), limit)
    header = (content_type or "").strip(" \t")
    if header.startswith(MULTIPART) and (found := boundary_of(header)) is not None:
        return last_wins(_Decoder(body, *found).parts())
    kind = bare_type(header)
    if kind.lower() == _URLENCODED:
        return last_wins(_pairs(body))
    return (Part("body", body, kind),)


def _pairs(body: bytes) -> Iterator[Part]:
    """Yield the pairs of an urlencoded body, as far as its first line end; a last name without "=" is dropped."""
    position = 0
    while name_end := _AFTER_NAME.search(body, position):
        name = kept_name(_decoded_name(body[position : name_end.start()]))
        if name_end[0] == b"&":
            yield Part(name, b"")
            position = name_end.end()
            continue
        end = _value_end(body, name_end.end())
        yield Part(name, _decoded_value(body[name_end.end() : end]))
        if body[end : end + 1] != b"&":
            return
        position = end + 1


def _value_end(body: bytes, start: int) -> int:
    """Return where a value ends; raises FormError for a carriage return in the midst of a line."""
    found = _AFTER_VALUE.search(body, start)
    if found is None:
        return len(body)
    if found[0] == b"\r" and body[found.end() : found.end() + 1] not in {b"\n", b""}:
        raise FormError("Bad end of line")
    return found.start()


def _decoded_name(name: bytes) -> str:
    text = name.decode("utf-8", "replace")
    if "%" not in text:
        return text.replace("+", " ")
    if BAD_ESCAPE.search(text):
        raise FormError(f"Bad string: '{text}'")
    return unquote_plus(text)  # what the escapes stand for is UTF-8 by itself


def _decoded_value(value: bytes) -> bytes:
    if b"%" not in value:
        return value.replace(b"+", b" ")
    text = value.decode("latin-1")  # a letter a byte: the index is in bytes
    bad = BAD_ESCAPE.search(text)
    if bad is not None:
        shown = value.decode("utf-8", "replace")
        raise FormError(f"Invalid hex byte at index '{bad.start()}' in string: '{shown}'")
    return unquote_to_bytes(value.replace(b"+", b" "))
