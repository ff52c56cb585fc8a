"""The body of an HTTP request → the parts a handler gets: raw, urlencoded or multipart (contract §4).

The rules are the server's, odd ones included, read off a real one: docs/conformance.md lists them.
"""

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus, unquote_to_bytes

from marpack.runtime.fields import BAD_ESCAPE, kept_name, last_wins
from marpack.runtime.heads import bare_type
from marpack.runtime.messages import MAX_BODY, Part
from marpack.runtime.multipart import sections
from marpack.runtime.multipart_headers import MULTIPART, delimiter_of
from marpack.runtime.refusals import FormError, TooLargeError

FORM_TYPE = f"{MULTIPART}; boundary=0123456789abcdef"  # of a form whose client is not known
_URLENCODED = "application/x-www-form-urlencoded"
_AFTER_NAME = re.compile(rb"[=&]")
_AFTER_VALUE = re.compile(rb"[&\r\n]")


def parts_of(content_type: str | None, body: bytes, *, limit: int = MAX_BODY) -> tuple[Part, ...]:
    """Return the parts of a request with this content type and body.

    Raises FormError for a form that the frontend refuses, and for a body of more than `limit` bytes.
    """
    if len(body) > limit:
        raise TooLargeError(len(body), limit)
    header = (content_type or "").strip(" \t")
    delimiter = delimiter_of(header)
    if delimiter is not None:
        return last_wins(sections(body, delimiter))
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
