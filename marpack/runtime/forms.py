"""The body of an HTTP request → the parts a handler gets: raw, urlencoded or multipart (contract §4).

The rules are the server's, odd ones included, read off a real one: docs/conformance.md lists them.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

from marpack.runtime.messages import MAX_BODY, Part

_URLENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_OCTETS = "application/octet-stream"
_PARAMETER = re.compile(r';\s*([\w-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)')
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_PLAIN_ENCODINGS = {"7bit", "8bit", "binary"}
# What the frontend puts a blank for in a parameter's value; quotes it drops.
_BLANKED = str.maketrans({":": " ", ",": " ", "=": " ", ";": " ", "\t": " ", '"': None})


class FormError(ValueError):
    """A form that the server's frontend answers with an error of its own; no handler gets to see it."""

    def __init__(self, message: str, *, status: int = 500, kind: str = "ErrorDataDecoderException") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind


class TooLargeError(FormError):
    """A request that the server's frontend does not take in: its handler never hears of it."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the request has {size:,} bytes; the server takes {limit:,}", status=413)


def bare_type(content_type: str) -> str:
    """Return a content type without its parameters, as the frontend hands it on."""
    return content_type.partition(";")[0].strip()


def parts_of(content_type: str | None, body: bytes, *, limit: int = MAX_BODY) -> tuple[Part, ...]:
    """Return the parts of a request with this content type and body.

    Raises FormError for a form that the frontend refuses, and for a body of more than `limit` bytes.
    """
    if len(body) > limit:
        raise TooLargeError(len(body), limit)
    kind = bare_type(content_type or "")
    parameters = _parameters(content_type or "")
    if kind.lower() == _URLENCODED:
        return last_wins(_urlencoded(body))
    if kind == _MULTIPART and "boundary" in parameters:
        _check_charset(parameters.get("charset"), status=403)
        return last_wins(_multipart(body, parameters["boundary"].encode("latin-1", "replace")))
    return (Part("body", body, kind),)


def check_fields(parts: Iterable[Part], limit: int) -> None:
    """Raise FormError for form fields that a client would need a body of more than `limit` bytes for."""
    size = sum(len(part.value) + len(part.name) + len(part.content_type) + _AROUND for part in parts)
    if size > limit:
        raise TooLargeError(size, limit)


_AROUND = 110  # bytes that a client puts around each field: the boundary and the names of two headers


def last_wins(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts with distinct names: of duplicates the first's place and the last's value."""
    by_name: dict[str, Part] = {}
    for part in parts:
        by_name[part.name] = part
    return tuple(by_name.values())


def _parameters(header: str) -> dict[str, str]:
    return {name.lower(): value.strip().strip('"') for name, value in _PARAMETER.findall(header)}


def _check_charset(charset: str | None, *, status: int) -> None:
    if charset is None:
        return
    try:
        "".encode(charset)
    except LookupError as error:
        if status == 403:
            raise FormError(charset, status=status, kind="UnsupportedCharsetException") from error
        raise FormError(f"java.nio.charset.UnsupportedCharsetException: {charset}") from error


def _urlencoded(body: bytes) -> Iterator[Part]:
    pairs = re.split(rb"[\r\n]", body, maxsplit=1)[0].split(b"&")
    for position, pair in enumerate(pairs, 1):
        last = position == len(pairs)
        name, equals, value = pair.partition(b"=")
        if not name and (equals or not last):
            raise FormError("java.lang.IllegalArgumentException: empty name")
        if equals or not last:  # a last key without "=" is dropped
            yield Part(_decoded_name(name), _decoded_value(value))


def _decoded_name(name: bytes) -> str:
    if _BAD_ESCAPE.search(name):
        raise FormError(f"Bad string: '{name.decode('latin-1')}'")
    return unquote_to_bytes(name.replace(b"+", b" ")).decode("utf-8", "replace")


def _decoded_value(value: bytes) -> bytes:
    bad = _BAD_ESCAPE.search(value)
    if bad is not None:
        raise FormError(f"Invalid hex byte at index '{bad.start()}' in string: '{value.decode('latin-1')}'")
    return unquote_to_bytes(value.replace(b"+", b" "))


def _multipart(body: bytes, boundary: bytes) -> Iterator[Part]:
    delimiter = b"--" + boundary
    text = body.removeprefix(b"\r\n").removeprefix(b"\n")
    if not text.startswith(delimiter):
        return
    sections = re.split(rb"\r?\n" + re.escape(delimiter), b"\n" + text)
    for section in sections[1:-1]:
        head, blank, value = _parted(re.sub(rb"^[ \t]*\r?\n", b"", section, count=1))
        if not blank:
            return
        yield _section(head.decode("utf-8", "replace"), value)


def _parted(section: bytes) -> tuple[bytes, bytes, bytes]:
    end = re.search(rb"\r?\n\r?\n", section)
    return (section[: end.start()], end[0], section[end.end() :]) if end else (section, b"", b"")


def _section(head: str, value: bytes) -> Part:
    headers = dict(_header(line) for line in head.splitlines())
    disposition = headers.get("content-disposition", "")
    parameters = _raw_parameters(disposition)
    if not bare_type(disposition).lower() == "form-data" or "name" not in parameters:
        raise FormError(_NO_NAME)
    name = parameters["name"].translate(_BLANKED).strip()
    if not name:
        raise FormError("java.lang.IllegalArgumentException: empty name")
    encoding = headers.get("content-transfer-encoding", "7bit").lower()
    if encoding not in _PLAIN_ENCODINGS:
        raise FormError(f"TransferEncoding Unknown: {encoding}")
    content_type = headers.get("content-type", _OCTETS)
    _check_charset(_parameters(content_type).get("charset"), status=500)
    # Only files carry a type; a plain field's own is ignored.
    is_file = "filename" in parameters or "filename*" in parameters
    return Part(name, value, bare_type(content_type) if is_file else "")


_NO_NAME = (
    'java.lang.NullPointerException: Cannot invoke "io.netty.handler.codec.http.multipart.Attribute.getValue()" '
    'because "nameAttribute" is null'
)


def _raw_parameters(disposition: str) -> dict[str, str]:
    """Return the parameters of a Content-Disposition, quotes and all."""
    return {
        name.lower(): value.strip()
        for name, value in re.findall(r';\s*([\w*-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)', disposition)
    }


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()
