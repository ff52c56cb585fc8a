"""The fields of a form, however they were sent: their names, how many bytes they take, which of two counts."""

import re
from collections.abc import Iterable

from marpack.runtime.messages import Part
from marpack.runtime.refusals import FormError, TooLargeError

BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_AROUND = 110  # bytes that a client puts around each field: the boundary and the names of two headers
_WHITE = " \t\n\x0b\x0c\r"


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
