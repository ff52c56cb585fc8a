"""What the headers of multipart bodies and of their sections say, as the server takes them apart (contract §4)."""

import re

from msgspec import Struct

from marpack.runtime.fields import BAD_ESCAPE, kept_name
from marpack.runtime.java_charsets import charset_names
from marpack.runtime.refusals import FormError

MULTIPART = "multipart/form-data"
OCTETS = "application/octet-stream"
NOT_AN_INDEX = "ArrayIndexOutOfBoundsException"
_NO_SUCH_RANGE = "StringIndexOutOfBoundsException"

_EMPTY_PIECE = re.compile(r"[^;]*;\s* (?=;)")
_HEADER_NAME = re.compile(r"[^:\s]*")
_QUOTED_OR_SEMICOLON = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|;', re.DOTALL)
_CHARSET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:_-]*\Z")
_TO_BLANKS = str.maketrans({":": " ", ",": " ", "=": " ", ";": " ", "\t": " ", '"': None})
_CONTROLS = "".join(map(chr, range(33)))  # what Java trims off a text: controls and blanks


class Delimiter(Struct, frozen=True):
    """What separates a form's sections, and in what their headers are written."""

    boundary: str
    charset: str


def delimiter_of(content_type: str) -> Delimiter | None:
    """Return what a form's content type says of its sections; None where it is no form's.

    Raises FormError for a form that the frontend refuses.
    """
    if not content_type.startswith(MULTIPART) or ";" not in content_type:
        return None
    if (empty := _EMPTY_PIECE.match(content_type)) is not None:
        where = f"begin {empty.end()}, end {empty.end() - 1}, length {len(content_type)}"
        raise FormError(where, kind=_NO_SUCH_RANGE)
    # Cut at its first two semicolons, whatever they stand in: the third piece holds all that follows.
    first, second = [*(piece.strip() for piece in content_type.split(";", 2)[1:]), ""][:2]
    for piece, other in ((first, second), (second, first)):
        if piece.lower().startswith("boundary"):
            return Delimiter(_boundary(piece), _form_charset(other))
    return None


def _boundary(piece: str) -> str:
    _, equals, boundary = piece.partition("=")
    if not equals:
        raise FormError("Needs a boundary value")
    if not boundary:
        raise FormError("String index out of range: 0", kind=_NO_SUCH_RANGE)
    if boundary == '"':  # without quotes it would have -1 letters
        raise FormError("begin 1, end 0, length 1", kind=_NO_SUCH_RANGE)
    return unquoted(boundary)


def _form_charset(piece: str) -> str:
    name, equals, charset = piece.partition("=")
    if not equals or not names_charset(name):
        return "utf-8"
    if not _is_charset(charset):
        raise FormError(charset, status=403, kind="UnsupportedCharsetException")
    return charset


def part_type(content_type: str) -> str:
    """Return the type that a file part with this Content-Type has: its last piece that names no charset."""
    types = [piece for piece in _pieces(content_type) if not names_charset(piece)]
    return types[-1] if types else OCTETS


def field_name(name: str) -> str:
    """Return a field's name after its way through a multipart body; raises FormError for one with nothing in it."""
    return kept_name(cleaned(name))


def split_header(line: str) -> list[str]:
    """Return a header's name and the pieces of its value."""
    text = line.strip(_CONTROLS)
    name = text[: _name_end(text)]
    return [name, *_pieces(text[len(name) :].partition(":")[2])]


def _name_end(text: str) -> int:
    found = _HEADER_NAME.match(text)
    return found.end() if found else 0


def _pieces(value: str) -> list[str]:
    """Return a value's pieces: between the semicolons outside quotes, or the commas where there is no semicolon."""
    text = value.strip(_CONTROLS)
    pieces = _between_semicolons(text) if ";" in text else _between_commas(text)
    return [piece.strip(_CONTROLS) for piece in pieces]


def _between_semicolons(text: str) -> list[str]:
    if '"' not in text:
        return text.split(";")
    cuts = [found.start() for found in _QUOTED_OR_SEMICOLON.finditer(text) if found[0] == ";"]
    return [text[start + 1 : end] for start, end in zip((-1, *cuts), (*cuts, len(text)), strict=True)]


def _between_commas(text: str) -> list[str]:
    # Java's split leaves empty pieces at the end out, but one of an empty text.
    return text.rstrip(",").split(",") if text.strip(",") or not text else []


def item(header: list[str], index: int) -> str:
    """Return a piece of a header; raises FormError where it has none there."""
    if index >= len(header):
        raise FormError(f"Index {index} out of bounds for length {len(header)}", kind=NOT_AN_INDEX)
    return header[index]


def names_charset(piece: str) -> bool:
    """Say whether a piece is taken for the parameter `charset`."""
    return piece.lower().startswith("charset")


def cleaned(text: str) -> str:
    """Return a parameter's name or value without quotes, and with blanks for what separates."""
    return text.translate(_TO_BLANKS).strip(_CONTROLS)


def unquoted(text: str) -> str:
    """Return a text without the quotes around it, if there are any."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def extended(value: str) -> str:
    """Return the value of a `filename*` as it stands; raises FormError where it cannot be decoded."""
    pieces = value.split("'", 2)
    if len(pieces) < 3:
        raise FormError(f"java.lang.{NOT_AN_INDEX}: Index 2 out of bounds for length {len(pieces)}")
    check_charset(pieces[0])
    bad = BAD_ESCAPE.search(pieces[2])
    if bad is not None:
        raise FormError(f"java.lang.IllegalArgumentException: {_why_no_escape(pieces[2], bad.start())}")
    return value


def _why_no_escape(text: str, at: int) -> str:
    byte = text[at + 1 : at + 3]
    if len(byte) < 2:
        return f"unterminated escape sequence at index {at} of: {text}"
    return f"invalid hex byte '{byte}' at index {at + 1} of '{text}'"


def check_charset(name: str) -> None:
    """Raise FormError for a charset that the server does not know."""
    if not _is_charset(name):
        raise FormError(f"java.nio.charset.UnsupportedCharsetException: {name}")


def _is_charset(name: str) -> bool:
    """Say whether the server knows a charset; raises FormError for what cannot be the name of any."""
    if not _CHARSET_NAME.match(name):
        raise FormError(name, status=403, kind="IllegalCharsetNameException")
    return name.lower() in charset_names()
