"""What the values of options may be, where click has no type for it."""

from __future__ import annotations

import re

import click

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_MOST_BYTES = 1 << 62
_MOST_SECONDS = 1_000_000  # eleven days: longer than anything here lasts, and what every system's timers take


def size(text: str) -> int:
    """Return a number of bytes, written as 1048576, 300M or 1.5T."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 500M or 1.5T")
    count = int(float(match[1]) * (1 << _UNITS[match[2].upper()]))
    if not 0 < count <= _MOST_BYTES:
        raise click.BadParameter(f"{text} is {'more than there can be' if count else 'nothing'}")
    return count


def tolerance(text: str | float) -> float:
    """Return how far numbers that agree may be apart."""
    told = _number(text, "number")
    if not told >= 0:  # nan would agree with everything
        raise click.BadParameter(f"{text} is no distance: give it 0 or more")
    return told


def seconds(text: str | float) -> float:
    """Return a time to wait; `inf` is as long as it takes."""
    told = _number(text, "number of seconds")
    if not told > 0:
        raise click.BadParameter(f"{text} is no time to wait: give it more than 0 seconds")
    return min(told, _MOST_SECONDS)


def _number(text: str | float, what: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no {what}") from error
