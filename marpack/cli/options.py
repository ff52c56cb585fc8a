"""What several commands take: limits, sizes and seconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

Options = dict[str, Any]  # Any: click gives each option its own type

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_MAX_BYTES = 1 << 62
_MAX_SECONDS = 1_000_000  # eleven days: longer than anything here lasts, and what every system's timers take
_Function = TypeVar("_Function", bound="Callable[..., Any]")


def size(text: str) -> int:
    """Return a number of bytes, written as 1048576, 300M or 1.5T."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 500M or 1.5T")
    count = int(float(match[1]) * (1 << _UNITS[match[2].upper()]))
    if not 0 < count <= _MAX_BYTES:
        raise click.BadParameter(f"{text} is {'more than there can be' if count else 'nothing'}")
    return count


def tolerance(text: str | float) -> float:
    """Return how far numbers that agree may be apart."""
    reported = _number(text, "number")
    if not reported >= 0:  # nan would agree with everything
        raise click.BadParameter(f"{text} is no distance: give it 0 or more")
    return reported


def seconds(text: str | float) -> float:
    """Return a time to wait; `inf` is as long as it takes."""
    reported = _number(text, "number of seconds")
    if not reported > 0:
        raise click.BadParameter(f"{text} is no time to wait: give it more than 0 seconds")
    return min(reported, _MAX_SECONDS)


def percent(text: str | float) -> float:
    """Return the share that 10 or 10% stands for."""
    reported = _number(str(text).removesuffix("%"), "percentage")
    if not 1 <= reported <= 1000:
        raise click.BadParameter(f"{text} is not between 1% and 1000%")
    return reported / 100


def _number(text: str | float, what: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no {what}") from error


def limit_options(function: _Function) -> _Function:
    """Give a command --max-members, --max-size and --max-ratio; they arrive as `max_members` and so on."""
    for option in (
        click.option("--max-ratio", type=click.IntRange(1), metavar="N", help="Take what expands N times (100)."),
        click.option("--max-size", type=size, metavar="SIZE", help="Take that many bytes unpacked (256G)."),
        click.option("--max-members", type=click.IntRange(1), metavar="N", help="Take that many members (65536)."),
    ):
        function = option(function)
    return function


outside_option = click.option("--allow-outside", is_flag=True, help="Let a project pack files from outside its folder.")
opcode_option = click.option(
    "--max-opcodes", type=click.IntRange(1), metavar="N", help="Read that many opcodes of pickles (2500000)."
)
