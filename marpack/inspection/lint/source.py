"""A Python file's bytes → its syntax tree, whatever the bytes are; nothing is executed."""

import ast
import codecs
import io
import re
import tokenize
import warnings

from msgspec import Struct

MAX_SOURCE = 256 << 10  # bytes; a parse takes up to half a second and 150 MB for these, and no hand has written more

# The parser joins dotted names piece by piece, so that a long one costs memory by its square.
_ENDLESS_NAME = re.compile(rb"(?<![\w\x80-\xff])(?:[\w\x80-\xff]++(?:\s|\\\r?\n)*+\.(?:\s|\\\r?\n)*+){300}")
# Codecs whose decoders are slow by design, or that no editor writes.
_ODD_CODECS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf-7", "undefined", "mbcs"})


class Broken(Struct, frozen=True):
    """Why a file has no syntax tree; where only we give up, the server may well read it."""

    reason: str
    line: int | None = None
    certain: bool = True  # the server cannot import it either


def parse(data: bytes) -> ast.Module | Broken:
    """Parse a file as Python would import it: with its byte-order mark and its coding line (PEP 263)."""
    if len(data) > MAX_SOURCE:
        return Broken(f"it is larger than {MAX_SOURCE >> 10} KiB, and was not looked into", certain=False)
    if _ENDLESS_NAME.search(data):
        return Broken("it holds a dotted name of hundreds of parts, and was not looked into", certain=False)
    odd = _odd_codec(data)
    return odd or _parse(data)


def _odd_codec(data: bytes) -> Broken | None:
    try:
        name, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, ValueError) as error:
        return Broken(f"its encoding is unknown or contradicts its bytes: {_first_line(error)}", 1)
    if codecs.lookup(name).name in _ODD_CODECS:
        return Broken(f"it is written in the encoding {name}, and was not looked into", certain=False)
    return None


def _parse(data: bytes) -> ast.Module | Broken:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except SyntaxError as error:
        return Broken(error.msg, error.lineno)
    except (RecursionError, MemoryError):
        return Broken("it is nested too deeply, and was not looked into", certain=False)
    except ValueError as error:  # null bytes, bytes that are not of its encoding
        return Broken(_first_line(error))


def _first_line(error: Exception) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text.splitlines()[0][:200] if text else type(error).__name__
