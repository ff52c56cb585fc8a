"""Likeness: whether an answer is the recorded one, where floats may differ in their last digits between machines."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace

from conformance.recording import Recording, Reply

# Kernels choose their instructions by processor; sums of floats then round differently.
TOLERANCE = 1e-5


def differing(one: Recording, other: Recording, *, numeric: bool) -> list[str]:
    """Return the calls that two recordings of one probe answer differently, or only one of them answers."""
    return [
        name
        for name in {**one.replies, **other.replies}
        if name not in one.replies
        or name not in other.replies
        or not alike(one.replies[name], other.replies[name], numeric=numeric)
    ]


# Errors of the frontend about a malformed form: marpack answers 400 with a message of its own.
_FORM_ERRORS = {
    "ErrorDataDecoderException", "ArrayIndexOutOfBoundsException", "StringIndexOutOfBoundsException",
    "UnsupportedCharsetException", "IllegalCharsetNameException",
}  # fmt: skip
_MADE_UP_PHRASE = re.compile(r".* \(\d+\)")  # of a status that the server's HTTP library does not know


def alike(one: Reply, other: Reply, *, numeric: bool) -> bool:
    """Return whether marpack's response is the recorded one; of numeric ones, whether their JSON is nearly."""
    if _MADE_UP_PHRASE.fullmatch(other.phrase):
        other = replace(other, phrase=one.phrase)
    if one == other or (one.status == 400 and refuses_form(other)):
        return True
    if not numeric or replace(one, body=b"") != replace(other, body=b""):
        return False
    try:
        return _close(json.loads(one.body), json.loads(other.body))
    except ValueError:
        return False


def refuses_form(reply: Reply) -> bool:
    """Return whether a recorded reply is the frontend's error about a malformed form."""
    try:
        return reply.status >= 400 and json.loads(reply.body)["type"] in _FORM_ERRORS
    except (ValueError, KeyError, TypeError):
        return False


def describe(different: Mapping[str, tuple[object, ...]]) -> str:
    """Return each call that was answered differently, with marpack's reply, the server's and what else is known."""
    return "\n".join(f"{name}:\n" + "\n".join(f"  {part!r}" for part in parts) for name, parts in different.items())


def _close(one: object, other: object) -> bool:
    match one, other:
        case float(), float():
            return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        case list(), list():
            return len(one) == len(other) and all(map(_close, one, other))
        case dict(), dict():
            return list(one) == list(other) and all(map(_close, one.values(), other.values()))
        case _:
            return one == other
