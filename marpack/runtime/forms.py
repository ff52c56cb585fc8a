"""The body of an HTTP request → the parts a handler gets: raw, urlencoded or multipart (contract §4).

The rules are the server's, read off a real one: docs/conformance.md lists them.
"""

import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from marpack.runtime.messages import Part

_URLENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_OCTETS = "application/octet-stream"
_BOUNDARY = re.compile(r';\s*boundary="?([^";]+)"?', re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class FormError(ValueError):
    """A form that the server's frontend answers with an error of its own."""


def bare_type(content_type: str) -> str:
    """Return a content type without its parameters, as the frontend hands it on."""
    return content_type.partition(";")[0].strip()


def parts_of(content_type: str | None, body: bytes) -> tuple[Part, ...]:
    """Return the parts of a request with this content type and body.

    Raises FormError for a urlencoded form with a broken escape.
    """
    kind = bare_type(content_type or "")
    if kind == _URLENCODED:
        return last_wins(_urlencoded(body))
    boundary = _BOUNDARY.search(content_type or "")
    if kind == _MULTIPART and boundary is not None:
        return last_wins(_multipart(body, boundary[1].encode("latin-1", "replace")))
    return (Part("body", body, kind),)


def last_wins(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts with distinct names: of duplicates the first's place and the last's value."""
    by_name: dict[str, Part] = {}
    for part in parts:
        by_name[part.name] = part
    return tuple(by_name.values())


def _urlencoded(body: bytes) -> Iterable[Part]:
    if _BAD_ESCAPE.search(body):
        raise FormError("the urlencoded body holds a % without two hexadecimal digits")
    for pair in body.split(b"&"):
        name, equals, value = pair.replace(b"+", b" ").partition(b"=")
        if equals:
            yield Part(unquote_to_bytes(name).decode("utf-8", "replace"), unquote_to_bytes(value))


def _multipart(body: bytes, boundary: bytes) -> Iterable[Part]:
    delimiter = b"--" + boundary
    if not body.startswith(delimiter):
        return
    for section in (b"\r\n" + body).split(b"\r\n" + delimiter)[1:-1]:
        head, blank, value = section.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not blank:
            return
        part = _section(head.decode("utf-8", "replace"), value)
        if part is not None:
            yield part


def _section(head: str, value: bytes) -> Part | None:
    headers = dict(_header(line) for line in head.split("\r\n"))
    disposition = headers.get("content-disposition", "")
    name = re.search(r'[;\s]name="?([^";]*)"?', disposition, re.IGNORECASE)
    if name is None:
        return None
    is_file = re.search(r"[;\s]filename\*?=", disposition, re.IGNORECASE) is not None
    # Only files carry a type; a plain field's own is ignored.
    kind = bare_type(headers.get("content-type", _OCTETS)) if is_file else ""
    return Part(name[1], value, kind)


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()
