"""Heads, form fields and refusals: what the frontend reads in them, and what it refuses (contract §4)."""

import re
from collections.abc import Iterable
from functools import lru_cache

from marpack.torchserve.http import Part

_LIMIT = 8192  # bytes of all header lines, without their ends: as many are too many
_BETWEEN = len(": ")
_NOT_IN_A_NAME = set("\0\t\n\x0b\x0c\r ,:;=")
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_AROUND = 110  # bytes that a client puts around each field: the boundary and the names of two headers
_WHITE = " \t\n\x0b\x0c\r"


class FormError(ValueError):
    """A request, most often a form, that the frontend answers with an error of its own; no handler gets to see it."""

    def __init__(self, message: str, *, status: int = 500, kind: str = "ErrorDataDecoderException") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind


class UnreadFormError(FormError):
    """A form that the server reads and marpack does not (contract §13)."""


class HeadError(FormError):
    """A request whose head the frontend cannot read, or does not want to."""

    def __init__(self) -> None:
        super().__init__("Invalid HTTP message.", status=400, kind="BadRequestException")


class TooLargeError(FormError):
    """A request with a larger body than the frontend takes in."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the request has {size:,} bytes; the server takes {limit:,}", status=413)


def received(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return a request's headers as its handler sees them; raises HeadError for what the frontend refuses."""
    size, kept = 0, []
    for name, value in headers:
        size += len(name) + _BETWEEN + len(value)
        if size >= _LIMIT or not is_header_name(name):
            raise HeadError
        read = _read(value)
        # Whoever asks whether the body may come is told so by the frontend, which drops the question.
        if read.lower() != "100-continue" or name.lower() != "expect":
            kept.append((name, read))
    return tuple(kept)


def bare_type(content_type: str) -> str:
    """Return a content type without its parameters, as the frontend hands it on."""
    # HTTP trims the header; a blank before the semicolon stays part of the type.
    return content_type.strip(" \t").partition(";")[0]


@lru_cache(maxsize=1024)  # clients send the same few
def is_header_name(name: str) -> bool:
    """Say whether the frontend takes a name for one of a header, of a request or of an answer."""
    return bool(name) and name.isascii() and not set(name) & _NOT_IN_A_NAME


def _read(value: str) -> str:
    """Return a header's value without blanks around it, in Latin-1: what that cannot hold was sent as UTF-8."""
    text = value.strip(" \t")
    return text if text.isascii() or max(text) <= "\xff" else text.encode("utf-8", "replace").decode("latin-1")


def kept_name(name: str) -> str:
    """Return a field's name as the frontend keeps it; raises FormError for one with nothing in it."""
    kept = name.replace("\r", " ").replace("\t", " ").strip(_WHITE).replace("\n", "")
    if not kept:
        raise FormError("java.lang.IllegalArgumentException: empty name")
    return kept


def last_wins(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts with distinct names: of duplicates the first's place and the last's value."""
    by_name: dict[str, Part] = {}
    for part in parts:
        by_name[part.name] = part
    return tuple(by_name.values())


def check_fields(parts: Iterable[Part], limit: int) -> None:
    """Raise FormError for form fields that a client would need a body of more than `limit` bytes for."""
    size = sum(len(part.value) + len(part.name) + len(part.content_type) + _AROUND for part in parts)
    if size > limit:
        raise TooLargeError(size, limit)
