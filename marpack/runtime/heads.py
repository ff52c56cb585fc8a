"""The heads of HTTP messages: what the server's frontend reads in them, and what it refuses (contract §4)."""

from collections.abc import Iterable

from marpack.runtime.refusals import HeadError

_LIMIT = 8192  # bytes of all header lines, without their ends: as many are too many
_BETWEEN = len(": ")
_NOT_IN_A_NAME = set("\0\t\n\x0b\x0c\r ,:;=")


def received(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return a request's headers as its handler sees them; raises HeadError for what the frontend refuses."""
    given = tuple(headers)
    if sum(len(name) + _BETWEEN + len(value) for name, value in given) >= _LIMIT:
        raise HeadError
    if not all(is_header_name(name) for name, _ in given):
        raise HeadError
    read = ((name, _read(value)) for name, value in given)
    return tuple((name, value) for name, value in read if not _is_consent_asked_for(name, value))


def bare_type(content_type: str) -> str:
    """Return a content type without its parameters, as the frontend hands it on."""
    # HTTP trims the header; a blank before the semicolon stays part of the type.
    return content_type.strip(" \t").partition(";")[0]


def is_header_name(name: str) -> bool:
    """Say whether the frontend takes a name for one of a header, of a request or of an answer."""
    return bool(name) and name.isascii() and not set(name) & _NOT_IN_A_NAME


def _read(value: str) -> str:
    """Return a header's value without blanks around it, in Latin-1: what that cannot hold was sent as UTF-8."""
    text = value.strip(" \t")
    return text if text.isascii() or max(text) <= "\xff" else text.encode("utf-8", "replace").decode("latin-1")


def _is_consent_asked_for(name: str, value: str) -> bool:
    """Say whether a header asks to be told that the body may come: the frontend says so, and drops it."""
    return name.lower() == "expect" and value.lower() == "100-continue"
