"""Options on the command line: made from the options structs, and the notations of sizes, seconds and percentages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

import click

from marpack.cli import completion

if TYPE_CHECKING:
    from msgspec import Struct

    from marpack.api.options import Declared

Options = dict[str, Any]  # Any: click gives each option its own type

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_MAX_BYTES = 1 << 62
_MAX_SECONDS = 1_000_000  # eleven days: longer than anything here lasts, and what every system's timers take
json_option = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON to stdout.")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class GroupedOption(click.Option):
    """An option with a heading in the help."""

    def __init__(self, *names: Any, group: str, **details: Any) -> None:  # Any: click's
        super().__init__(*names, **details)
        self.group = group


def takes(kind: type[Struct]) -> Callable[[_Function], _Function]:
    """Return a decorator: a command gets the options of a struct, and calls its function with that struct."""
    from marpack.api.options import declared

    options = [each for each in declared(kind) if not each.option.only_python]

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def call(**given: Any) -> Any:  # Any: click gives each option its own type
            values = {each.name: given.pop(each.name) for each in options}
            return function(kind(**values), **given)

        made: Any = call
        for each in reversed(options):
            made = _parameter(each)(made)
        return made  # type: ignore[no-any-return]

    return decorate


def _parameter(declared: Declared) -> Callable[[_Function], _Function]:
    """Return what adds an argument or an option to a command."""
    from msgspec import UNSET

    option, is_required = declared.option, declared.default is UNSET
    details = _value(declared)
    is_argument = declared.is_positional and not option.flags
    if option.metavar:
        details["metavar"] = f"[{option.metavar}]" if is_argument and not is_required else option.metavar
    if option.complete:
        details["shell_complete"] = _COMPLETIONS[option.complete]
    if is_argument:
        if details.pop("multiple", False):
            details["nargs"] = -1
        return click.argument(declared.name, required=is_required, **details)
    text = f"{option.help}  [default: {option.default}]" if option.default else option.help
    flags = option.flags or (f"--{declared.name.replace('_', '-')}",)
    if option.group:
        details |= {"cls": GroupedOption, "group": option.group}
    if not is_required:
        shown = not isinstance(declared.default, bool | tuple | None)
        details |= {"default": declared.default, "show_default": shown}
    return click.option(*flags, declared.name, required=is_required, help=text, hidden=option.hidden, **details)


def _value(declared: Declared) -> dict[str, Any]:  # Any: click's
    """Return click's arguments for an option's type."""
    kinds = [each for each in (declared.type, *get_args(declared.type)) if each is not type(None)]
    choices = next((get_args(each) for each in kinds if get_origin(each) is Literal), ())
    if choices:
        return {"type": click.Choice(choices)}
    if bool in kinds:  # if the default is True, the flag turns it off
        return {"is_flag": True, "flag_value": not declared.default}
    if declared.option.parse:
        return {"type": _NOTATIONS[declared.option.parse]}
    bounds = next((get_args(each)[1] for each in kinds if get_origin(each) is Annotated), None)
    if bounds is not None:
        return {"type": _integer(bounds.ge, bounds.le)}
    return {"multiple": True} if get_origin(declared.type) is Sequence else {}


def _integer(lowest: int, highest: int | None) -> Callable[[str], int]:
    """Return what converts an integer; click's own type would add its range to the help."""
    expected = f"an integer of {lowest} or more" if highest is None else f"an integer from {lowest} to {highest}"

    def integer(text: str | int) -> int:
        digits = str(text)  # a default comes as it is
        if not digits.isdecimal() or int(digits) < lowest or (highest is not None and int(digits) > highest):
            raise click.BadParameter(f"{digits!r} is not {expected}")
        return int(digits)

    return integer


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


_NOTATIONS = {"size": size, "seconds": seconds}
_COMPLETIONS = {
    "sources": completion.sources,
    "members": completion.members,
    "templates": completion.template_names,
}
outside_option = click.option("--allow-outside", is_flag=True, help="Let a project pack files from outside its folder.")
opcode_option = click.option(
    "--max-opcodes", type=click.IntRange(1), metavar="N", help="Read that many opcodes of pickles (2500000)."
)
