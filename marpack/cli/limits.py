"""The options that raise the limits of reading an archive, shared by the commands that open one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from marpack.cli.values import size

if TYPE_CHECKING:
    from collections.abc import Callable

    from marpack.archive.protocol import Limits

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def limit_options(function: _Function) -> _Function:
    """Give a command --max-members, --max-size and --max-ratio; they arrive as `max_members` and so on."""
    for option in (
        click.option("--max-ratio", type=click.IntRange(1), metavar="N", help="Take what expands N times (100)."),
        click.option("--max-size", type=size, metavar="SIZE", help="Take that many bytes unpacked (256G)."),
        click.option("--max-members", type=click.IntRange(1), metavar="N", help="Take that many members (65536)."),
    ):
        function = option(function)
    return function


def chosen_limits(max_members: int | None, max_size: int | None, max_ratio: int | None) -> Limits:
    """Return the limits with those that were given in place of their defaults."""
    from marpack.archive.protocol import Limits

    given = {"members": max_members, "total": max_size, "ratio": max_ratio}
    return Limits(**{name: value for name, value in given.items() if value is not None})
