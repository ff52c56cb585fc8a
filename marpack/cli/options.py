"""Options on the command line: made from the options structs, with notations of values and completion."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import click

from marpack.errors import UsageError
from marpack.version import docs_link

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from msgspec import Struct

    from marpack.api.declaring import Declared

ARCHIVES = (".mar", ".tar.gz", ".tgz")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_MAX_BYTES = 1 << 62
_MAX_SECONDS = 1_000_000  # eleven days: longer than anything here lasts, and the maximum of every system's timers
_HEADER = re.compile(r"([^=:]+)(?:=|:\s*)(.*)", re.DOTALL)
_LAST = "Other"  # the heading of options without one
_HEADINGS = (  # in the order of the help
    *("Checks", "Tables", "A row's request, one of", "Inputs", "Requests", "Responses", "Addresses", "Workers"),
    *("Limits", "Model", "Cluster", "Comparison", "Results", "Debugging", "Benchmark"),
)
_COLUMN = 22  # width of an option in the help
ALL_OPTIONS = "marpack.all_options"  # in the `meta` of a context whose help shows the options for rare use also
json_option = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON to stdout.")


class _Option(click.Option):
    """An option with old spellings, which the help does not show."""

    old: tuple[str, ...] = ()

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the spellings and the text of the help."""
        spellings, self.opts = self.opts, [each for each in self.opts if each not in self.old]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = spellings


def _show_all_options(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        context.meta[ALL_OPTIONS] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _set_verbosity(_context: click.Context, _option: click.Parameter, verbosity: str | None) -> None:
    from marpack.render.console import STDERR

    STDERR.quiet, STDERR.verbose = verbosity == "quiet", verbosity == "verbose"


def _verbosity(*flags: str, value: str, text: str) -> click.Option:
    """Return one of the two options that say how much is printed on stderr; the last one given counts."""
    how: Any = {"is_eager": True, "expose_value": False, "callback": _set_verbosity}  # Any: click's
    return click.Option([*flags, "verbosity"], flag_value=value, default=None, help=text, **how)


class Command(click.Command):
    """A command whose options are the fields of structs. They are built when the command is used.

    An option with a metavar such as FILE… takes all words up to the next option, as a shell expands `*.png`. A word
    that names an archive is not one of them: it is the SOURCE.
    """

    verbose: tuple[str, ...] = ("-v", "--verbose")
    lists_archives = False  # whether these options take archives also

    def __init__(self, *args: Any, kinds: Sequence[type[Struct]] = (), **details: Any) -> None:  # Any: click's
        self._kinds = tuple(kinds)
        self._groups: dict[str | None, str] = {}  # option → its heading in the help
        self._rare: set[str | None] = set()  # options that only --help-all shows
        super().__init__(*args, **details)
        quiet, verbose = "Print only results, warnings and errors.", "Print more, such as all notes."
        self.params.append(_verbosity("-q", "--quiet", value="quiet", text=quiet))
        self.params.append(_verbosity(*self.verbose, value="verbose", text=verbose))

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the arguments and options."""
        if self._kinds:
            options = [each for kind in self._kinds for each in options_of(kind)]
            self.params[:0], self._kinds = map(_parameter, options), ()
            self._groups = {each.name: each.option.group or _LAST for each in options}
            if any(each.option.daily for each in options):
                self._rare = {each.name for each in options if not each.option.daily}
                how: Any = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_all_options}
                self.params.append(click.Option(["--help-all"], help="Show all options and exit.", **how))
        return super().get_params(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat an option that takes several words before each of them."""
        named = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        listed = [each.opts for each in named if (each.metavar or "").endswith("…")]
        several = {spelling: max(spellings, key=len) for spellings in listed for spelling in spellings}
        spelt: list[str] = []
        taking: str | None = None
        for word in args:
            if word in several:
                taking = several[word]
                continue
            taking = None if word.startswith("-") and word != "-" else taking
            is_source = not self.lists_archives and word.partition("#")[0].endswith(ARCHIVES)
            spelt += [taking, word] if taking and not is_source else [word]
        if args and args[-1] in several:
            spelt.append(args[-1])
        return super().parse_args(ctx, spelt)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options under their headings, in columns of one width; without headings as click does."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if parameter.name in self._rare and ALL_OPTIONS not in ctx.meta:
                continue
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                group = self._groups.get(parameter.name, _LAST)
                groups.setdefault(group, []).append((record[0].ljust(_COLUMN), record[1]))
        if set(groups) == {_LAST}:
            super().format_options(ctx, formatter)
            return
        order = {heading: number for number, heading in enumerate(_HEADINGS)}
        for group in sorted(groups, key=lambda group: (group == _LAST, order.get(group, len(order)))):
            with formatter.section(group):
                formatter.write_dl(groups[group], col_max=_COLUMN)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End with the option that shows all options, if some are not shown, and with the address of the docs."""
        if self._rare and ALL_OPTIONS not in ctx.meta:
            formatter.write_paragraph()
            formatter.write_text("Use --help-all to show all options.")
        if link := docs_link(f"reference/commands/#marpack-{ctx.info_name}"):
            formatter.write_paragraph()
            formatter.write_text(f"Docs: {link}")


def command(
    *kinds: type[Struct], cls: type[Command] = Command, **details: Any
) -> Callable[[Callable[..., Any]], Command]:  # Any: click's
    """Return a decorator that makes a command of a function, which gets one struct of each kind."""

    def decorate(function: Callable[..., Any]) -> Command:
        @wraps(function)
        def call(**given: Any) -> Any:  # Any: click gives each option its own type
            structs = [kind(**{each.name: given.pop(each.name) for each in options_of(kind)}) for kind in kinds]
            return function(*map(_with_project, structs), **given)

        return click.command(cls=cls, kinds=kinds, **details)(call)

    return decorate


def _with_project(options: Any) -> Any:  # Any: a struct
    """Return options without a SOURCE with the project of which the current folder is a subfolder, if there is one."""
    source = getattr(options, "source", "")
    if source is not None:
        if "://" in source:
            from marpack.archive.addresses import parse_address

            parse_address(source)  # before an option of the command is missing
        return options
    from msgspec.structs import replace

    return replace(options, source=project_above())


def project_above() -> str | None:
    """Return the project of which the current folder is a subfolder, and say so on stderr; None if there is none."""
    from pathlib import Path

    from marpack.project.schema import FILE_NAME

    if Path(FILE_NAME).is_file():  # the usual case needs no further imports
        return None
    from marpack.project.source import find_project
    from marpack.render.console import STDERR, show_lines, visible

    try:
        found = find_project(Path.cwd(), Path.home())
    except (OSError, RuntimeError):  # a folder cannot be read or was removed, or there is no home
        return None
    if found is None:
        return None
    path = os.path.relpath(found, Path.cwd().resolve())
    if not STDERR.quiet:
        show_lines([click.style(f"using the project in {visible(path)}", dim=True)], err=True)
    return path


def options_of(kind: type[Struct]) -> list[Declared]:
    """Return the options of a struct that the command line has."""
    from marpack.api.declaring import declared

    return [each for each in declared(kind) if not each.option.only_python]


def _parameter(declared: Declared) -> click.Parameter:
    """Return a command's argument or option."""
    from msgspec import UNSET

    option, is_required = declared.option, declared.default is UNSET
    is_argument = declared.is_positional and not option.flags
    details = _value(declared)
    if option.metavar or is_argument:
        is_optional = is_argument and not is_required and option.metavar
        details["metavar"] = f"[{option.metavar}]" if is_optional else option.metavar
    if option.complete:
        details["shell_complete"] = _COMPLETIONS[option.complete]
    if is_argument:
        if details.pop("multiple", False):
            details["nargs"] = -1
        return click.Argument([declared.name], required=is_required, **details)
    text = f"{option.help}  [default: {option.default}]" if option.default else option.help
    flags = option.flags or (f"--{declared.name.replace('_', '-')}",)
    if not is_required and not details.get("multiple"):
        shown = not isinstance(declared.default, bool | tuple | None) and not option.default
        details |= {"default": declared.default, "show_default": shown}
    spelt = _Option(
        [*flags, *option.old_flags, declared.name], required=is_required, help=text, hidden=option.hidden, **details
    )
    spelt.old = option.old_flags
    return spelt


def _value(declared: Declared) -> dict[str, Any]:  # Any: click's
    """Return click's arguments for an option's type."""
    kinds = [each for each in (declared.type, *get_args(declared.type)) if each is not type(None)]
    choices = next((get_args(each) for each in kinds if get_origin(each) is Literal), ())
    several = {"multiple": True} if get_origin(declared.type) is Sequence else {}
    if choices:
        return {"type": click.Choice(choices), **several}
    if bool in kinds:  # if the default is True, the flag turns it off
        return {"is_flag": True, "flag_value": not declared.default}
    if declared.option.parse:
        return _NOTATIONS[declared.option.parse].copy()
    number, bounds = next((get_args(each) for each in kinds if get_origin(each) is Annotated), (None, None))
    if number is float:
        return {"type": tolerance}
    if bounds is not None:
        return {"type": _integer(bounds.ge, bounds.le), "metavar": "N"}
    return {"metavar": "FILE"} if any(get_origin(each) is os.PathLike for each in kinds) else several


def _integer(lowest: int, highest: int | None) -> Callable[[str], int]:
    """Return a converter of integers; click's own type would add its range to the help."""
    expected = f"an integer of {lowest} or more" if highest is None else f"an integer from {lowest} to {highest}"

    def integer(text: str | int) -> int:
        digits = str(text)  # a default comes as it is
        if not digits.isdecimal() or int(digits) < lowest or (highest is not None and int(digits) > highest):
            raise click.BadParameter(f"{digits!r} is not {expected}")
        return int(digits)

    return integer


def size(text: str | int) -> int:
    """Return a number of bytes, written as 1048576, 300M or 1.5T."""
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 500M or 1.5T")
    count = int(float(match[1]) * (1 << _UNITS[match[2].upper()]))
    if not 0 < count <= _MAX_BYTES:
        raise click.BadParameter(f"{text} is not between 1 and 4194304T bytes")
    return count


def tolerance(text: str | float) -> float:
    """Return the maximum difference of two equal numbers."""
    return _number(text, "a number of 0 or more", lambda number: number >= 0)  # not NaN, which is equal to nothing


def seconds(text: str | float) -> float:
    """Return a time to wait; `inf` is the maximum."""
    return min(_number(text, "a number of seconds above 0", lambda number: number > 0), _MAX_SECONDS)


def _number(text: str | float, expected: str, is_valid: Callable[[float], bool]) -> float:
    with suppress(ValueError):
        if is_valid(number := float(text)):
            return number
    raise click.BadParameter(f"{text!r} is not {expected}")


def header(text: str) -> tuple[str, str]:
    """Return name and value of NAME=VALUE or "NAME: VALUE"; raises UsageError for a header that HTTP cannot carry."""
    from marpack.api.requests import http_header

    match = _HEADER.fullmatch(text)
    if match is None:
        what = f"expected NAME=VALUE or 'NAME: VALUE', got {text!r}"
        raise UsageError(what, where="--header", hint="Write it as in -H 'X-Trace=7'.")
    hint = "Write it on one line, as in -H 'X-Trace=7'."
    return http_header(match[1], match[2], where=f"--header {text!r}", hint=hint)


def _pairs(_: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """Return NAME=VALUE texts as a dict; see click's `callback`."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        place = f"{option.opts[0]} {text}"
        if not (key and equals and value):
            expected = (option.metavar or "").removesuffix("…")
            raise UsageError(f"expected {expected}, got {text!r}", where=place, hint=f"Write it as {expected}.")
        if key in pairs:
            raise UsageError(f"{key} is given twice", where=place, hint="Leave one of them out.")
        pairs[key] = value
    return pairs


_NOTATIONS: dict[str, dict[str, Any]] = {  # Any: click's
    "size": {"type": size, "metavar": "SIZE"},
    "seconds": {"type": seconds, "metavar": "SECONDS"},
    "headers": {"type": header, "multiple": True},
    "pairs": {"callback": _pairs, "multiple": True},
}


def _complete_template(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the templates of `marpack init`, each with its title."""
    from click.shell_completion import CompletionItem

    from marpack.project.scaffold.template import load_template, template_names

    found = [load_template(name) for name in template_names() if name.startswith(incomplete)]
    return [CompletionItem(each.name, help=each.title) for each in found]


def _complete_source(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer archives and folders."""
    from pathlib import Path

    from click.shell_completion import CompletionItem

    head, slash, stem = incomplete.rpartition("/")
    try:
        entries = sorted(Path(head + slash or ".").iterdir())
    except OSError:
        return []
    shown = (path for path in entries if path.name.startswith(stem) and not path.name.startswith("."))
    kept = [path for path in shown if path.is_dir() or path.name.endswith(ARCHIVES)]
    return [CompletionItem(f"{head}{slash}{path.name}{'/' if path.is_dir() else ''}") for path in kept]


def _complete_member(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the members of the archive on the command line."""
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from marpack.archive.reader import open_archive
    from marpack.errors import MarpackError

    # An option that still waits for its value keeps click from naming the arguments before it.
    source = context.params.get("source") or next(iter(context.args), None)
    if not source or not Path(source).exists():
        return []
    try:
        with open_archive(source) as archive:
            return [CompletionItem(name) for name in archive.entries if name.startswith(incomplete)]
    except MarpackError:
        return []


_COMPLETIONS = {"sources": _complete_source, "members": _complete_member, "templates": _complete_template}
