"""Headers of multipart bodies and their sections (contract §4)."""

import re
from itertools import pairwise

from marpack.torchserve.frontend.headers import BAD_ESCAPE, FormError, kept_name

# Of the names that Java knows, in lower case, those that clients send.
_CHARSETS = frozenset(
    """
    utf-8 utf8 utf-16 utf16 utf-16be utf-16le utf-32 us-ascii ascii latin1 l1 iso8859_1 iso8859-1 iso8859-15
    iso-8859-1 iso-8859-2 iso-8859-3 iso-8859-4 iso-8859-5 iso-8859-6 iso-8859-7 iso-8859-8 iso-8859-9 iso-8859-13
    iso-8859-15 windows-1250 windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256
    windows-1257 windows-1258 cp1252 cp866 koi8-r koi8-u tis-620 gbk gb2312 gb18030 big5 shift_jis sjis euc-jp
    iso-2022-jp euc-kr
    """.split()  # noqa: SIM905 - a list of one a line says no more
)
MULTIPART = "multipart/form-data"
OCTETS = "application/octet-stream"
NOT_AN_INDEX = "ArrayIndexOutOfBoundsException"

_AFTER_NAME = re.compile(r"[:\s]")
_QUOTED_OR_SEMICOLON = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|;', re.DOTALL)
_CHARSET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:_-]*\Z")
_TO_BLANKS = str.maketrans({":": " ", ",": " ", "=": " ", ";": " ", "\t": " ", '"': None})
_CONTROLS = "".join(map(chr, range(33)))  # what Java trims off a text: controls and blanks


def boundary_of(content_type: str) -> tuple[str, str] | None:
    """Return the boundary of a form's sections and the charset of their headers; None for what only begins as a form.

    Raises FormError for a form that the frontend refuses.
    """
    # Cut at its first two semicolons, whatever they stand in: the third piece holds all that follows.
    first, second = [*(piece.strip() for piece in content_type.split(";", 2)[1:]), "", ""][:2]
    for piece, other in ((first, second), (second, first)):
        if piece.lower().startswith("boundary"):
            return _boundary(piece), _form_charset(other)
    return None


def _boundary(piece: str) -> str:
    _, equals, boundary = piece.partition("=")
    if not equals:
        raise FormError("Needs a boundary value")
    if not boundary:
        raise FormError("String index out of range: 0", kind="StringIndexOutOfBoundsException")
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
    name = _AFTER_NAME.split(text, maxsplit=1)[0]
    return [name, *_pieces(text[len(name) :].partition(":")[2])]


def _pieces(value: str) -> list[str]:
    """Return a value's pieces: between the semicolons outside quotes, or the commas where there is no semicolon."""
    text = value.strip(_CONTROLS)
    pieces = _between_semicolons(text) if ";" in text else _between_commas(text)
    return [piece.strip(_CONTROLS) for piece in pieces]


def _between_semicolons(text: str) -> list[str]:
    if '"' not in text:
        return text.split(";")
    cuts = [found.start() for found in _QUOTED_OR_SEMICOLON.finditer(text) if found[0] == ";"]
    return [text[start + 1 : end] for start, end in pairwise((-1, *cuts, len(text)))]


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
    if BAD_ESCAPE.search(pieces[2]):
        raise FormError(f"java.lang.IllegalArgumentException: {pieces[2]}")
    return value


def check_charset(name: str) -> None:
    """Raise FormError for a charset that the server does not know."""
    if not _is_charset(name):
        raise FormError(f"java.nio.charset.UnsupportedCharsetException: {name}")


def _is_charset(name: str) -> bool:
    """Say whether the server knows a charset; raises FormError for what cannot be the name of any."""
    if not _CHARSET_NAME.match(name):
        raise FormError(name, status=403, kind="IllegalCharsetNameException")
    return name.lower() in _CHARSETS
