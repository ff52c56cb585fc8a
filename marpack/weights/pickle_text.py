"""How a pickle spells numbers and texts, as far as C's unpickler or Python's reads them."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import methodcaller

from marpack.weights.pickle_stream import BrokenPickleError, Skipped

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|[^x]|$|x)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", "'": "'", '"': '"'}
# What strtol or Python's int take in base 0, and what int takes in base 10
_INTEGER = re.compile(
    rb"\s*[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|0[0-7_]*|[1-9](?:_?[0-9])*)\s*"
)
_PLACE = re.compile(rb"\s*([+-]?)0*([0-9](?:_?[0-9])*)\s*")
_COUNTABLE = 18  # digits of numbers that are read; longer ones are of no interest

Decode = Callable[[bytes], object]
utf8: Decode = methodcaller("decode", "utf-8", "surrogatepass")
latin: Decode = methodcaller("decode", "latin-1")  # what Python 2 wrote: names and keys are ASCII
raw: Decode = methodcaller("decode", "raw_unicode_escape")
signed: Decode = partial(int.from_bytes, byteorder="little", signed=True)


def integer(line: bytes) -> object:
    """Return a number of INT or LONG, as far as C's unpickler or Python's reads it. Raises BrokenPickleError."""
    if line in (b"00", b"01"):
        return line == b"01"
    text, end, _ = line.partition(b"\0")  # where C's stops
    text = text.removesuffix(b"L")
    if not _INTEGER.fullmatch(text) and (text or not end):
        raise BrokenPickleError("a number is none")
    return int(text) if text.isdigit() and text[:1] != b"0" and len(text) <= _COUNTABLE else _rarely(text)


def _rarely(text: bytes) -> object:
    """Return a number that is negative, long or in another base: that of C's 017 is 8."""
    for base in (0, 8):
        with suppress(ValueError):
            return int(text or b"0", base)
    return Skipped(len(text))  # Python reads no more than 4,300 digits


def real(line: bytes) -> float:
    """Return a number of FLOAT, as `integer` does. Raises ValueError."""
    return float(line.partition(b"\0")[0])


def place(line: bytes) -> int | bytes:
    """Return a place in the memo, as GET and PUT write it: long ones as digits. Raises BrokenPickleError."""
    found = _PLACE.fullmatch(line.partition(b"\0")[0])
    if found is None:
        raise BrokenPickleError("a place in the memo is no number")
    digits = found[2].replace(b"_", b"").lstrip(b"0")
    if found[1] == b"-" and digits:
        raise BrokenPickleError("a place in the memo is negative")
    return int(digits or b"0") if len(digits) <= _COUNTABLE else digits


def unquoted(line: bytes) -> str:
    """Return a text written in quotes, with backslashes. Raises BrokenPickleError."""
    line = line.strip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in b"'\"":
        raise BrokenPickleError("a quoted string has no quotes")
    return _ESCAPE.sub(_unescaped, line[1:-1].decode("latin-1"))


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code in ("", "x"):
        raise BrokenPickleError("a quoted string ends in the middle of an escape")
    if code[0] == "x":
        return chr(int(code[1:], 16))
    return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _LETTERS.get(code, f"\\{code}")
