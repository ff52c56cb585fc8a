"""Declare an option once for the command line, the Python functions, validation and the docs.

The options of a command are the fields of a frozen struct. A field's type says which values it takes, its `Option` how
the command line spells it and what it means. Positional arguments of the command are positional in Python.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature, cleandoc
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct, ValidationError, convert
from msgspec.structs import fields, replace

from marpack.errors import UsageError, did_you_mean, shortened
from marpack.removed import refuse_arguments

_P = ParamSpec("_P")
_Options = TypeVar("_Options", bound=Struct)
_Result = TypeVar("_Result")
_Self = TypeVar("_Self")

Name = str | os.PathLike[str]  # of a file or a folder, or an address
Key = Name | bytes  # a file in PEM form, or its content
Headers = Mapping[str, str] | Sequence[tuple[str, str]]
_MAX_INTEGER = (1 << 63) - 1


class Option(Struct, frozen=True):
    """The spelling and the meaning of an option."""

    help: str  # a sentence that makes sense without the option's name
    flags: tuple[str, ...] = ()  # on the command line; empty: the field's name with dashes. An argument has none.
    metavar: str | None = None  # the value in the help; None: by the type
    parse: Literal["size", "seconds", "headers", "pairs"] | None = None  # 500M, inf, NAME=VALUE
    complete: Literal["sources", "members", "templates"] | None = None
    default: str = ""  # the effect without the option, if the field's default does not show it
    group: str = ""  # the heading in the help
    only_python: bool = False  # the command line has another spelling for it
    hidden: bool = False  # from the help
    daily: bool = False  # if a command has daily options, --help shows only these, and --help-all the others also
    old_flags: tuple[str, ...] = ()  # further spellings, which the help does not show


class Declared(Struct, frozen=True):
    """A field of an options struct, as the command line, validation and docs read it."""

    name: str
    type: Any  # Any: a type, a union or a generic alias
    option: Option
    default: Any  # Any: of that type; `UNSET` if a value is required
    is_positional: bool  # in Python, and on the command line unless it has flags


@cache
def declared(kind: type[Struct]) -> tuple[Declared, ...]:
    """Return a struct's options: positional ones, the command's own, and those that it shares with other commands."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = Signature.from_callable(kind).parameters
    found = []
    for info in fields(kind):
        hint, *extras = get_args(hints[info.name])
        [option] = [extra for extra in extras if isinstance(extra, Option)]
        for bounds in (extra for extra in extras if isinstance(extra, Meta)):  # nested annotations are joined
            hint = Annotated[hint, bounds]
        default = UNSET if info.required else info.default
        is_positional = parameters[info.name].kind is Parameter.POSITIONAL_OR_KEYWORD
        found.append(Declared(info.name, hint, option, default, is_positional))
    own = kind.__annotations__
    return tuple(sorted(found, key=lambda each: (not each.is_positional, each.name not in own)))


def operation(kind: Callable[_P, _Options]) -> Callable[[Callable[[_Options], _Result]], Callable[_P, _Result]]:
    """Return a decorator for a function of one options struct: it takes the struct's fields as arguments instead.

    The arguments are checked first: a wrong value is a UsageError that names the argument.
    """
    return _decorator(kind)  # type: ignore[no-any-return]  # the type above


def initializer(
    kind: Callable[_P, _Options],
) -> Callable[[Callable[[_Self, _Options], None]], Callable[Concatenate[_Self, _P], None]]:
    """Return the decorator for an `__init__` of one options struct; see `operation`."""
    return _decorator(kind, Parameter("self", Parameter.POSITIONAL_OR_KEYWORD))  # type: ignore[no-any-return]  # as above


def _decorator(kind: Any, *before: Parameter) -> Any:  # Any: a struct, and a decorator with the types above
    """Return a decorator of functions whose last argument is a struct; it adds the struct's options to docstrings."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:  # Any: as above
        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:  # Any: as above
            refuse_arguments(function.__name__, given)
            return function(*args[: len(before)], valid(kind(*args[len(before) :], **given)))

        hints, parameters = get_type_hints(kind), list(before)
        text = f"{cleandoc(function.__doc__ or '')}\n\nArgs:"
        for each in declared(kind):
            how = Parameter.POSITIONAL_OR_KEYWORD if each.is_positional else Parameter.KEYWORD_ONLY
            value = Parameter.empty if each.default is UNSET else each.default
            parameters.append(Parameter(each.name, how, default=value, annotation=hints[each.name]))
            unit = {"size": " In bytes.", "seconds": " In seconds."}.get(each.option.parse or "", "")
            default = f" Default: {each.option.default}." if each.option.default else ""
            about = each.option.help
            if each.default is True and about.startswith("Do not "):  # the command line has only the negative
                about = about.removeprefix("Do not ").capitalize()
            text += f"\n    {each.name}: {about}{unit}{default}"
        signature = Signature(parameters, return_annotation=function.__annotations__["return"])
        call.__dict__["__signature__"], call.__doc__ = signature, text
        return call

    return decorate


def valid(options: _Options) -> _Options:
    """Return options with paths as text and lists as tuples; raises UsageError for a value that does not fit."""
    changed = {}
    for each in declared(type(options)):
        given = getattr(options, each.name)
        if get_origin(each.type) is Iterable:
            continue  # of values of any type: the requests that they become are checked one by one
        value = _plain(given)
        if not _fits(value, each.type):
            expected = _expected(each.type)
            near = did_you_mean(value, choices(each.type)) if isinstance(value, str) else None
            what = f"{shortened(repr(value), 40)} is not {expected}"
            raise UsageError(what, where=each.name, hint=near or f"Set {each.name} to {expected}.")
        if value is not given:
            changed[each.name] = value
    return replace(options, **changed) if changed else options


def _plain(value: Any) -> Any:  # Any: whatever a caller gives
    """Return a path as text, a number of a subclass of float as a float, and a list, set or tuple as a tuple."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list | set | frozenset | tuple):
        return tuple(map(_plain, value))
    return value


def _fits(value: Any, hint: Any) -> bool:  # Any: a plain value, a type
    if isinstance(value, bytes) and bytes in get_args(hint):  # msgspec has no union of text and bytes
        return True
    if isinstance(value, int | float) and not -_MAX_INTEGER <= value <= _MAX_INTEGER:  # infinite and NaN also
        return False
    if isinstance(hint, type) and issubclass(hint, Struct):
        return isinstance(value, hint)  # msgspec would take a dict
    try:
        convert(value, _plain_type(hint))
    except ValidationError:
        return False
    return True


def _plain_type(hint: Any) -> Any:  # Any: as above
    """Return the type of a field's plain values, without paths and bytes."""
    if get_origin(hint) in (Union, types.UnionType):
        kept = (each for each in get_args(hint) if each is not bytes and get_origin(each) is not os.PathLike)
        return Union[tuple(map(_plain_type, kept))]  # noqa: UP007 - of any number
    return Sequence[_plain_type(get_args(hint)[0])] if get_origin(hint) is Sequence else hint  # type: ignore[misc]


def choices(hint: Any) -> tuple[str, ...]:  # Any: as above
    """Return the values of a type that takes a few texts only."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(choice for each in get_args(hint) for choice in choices(each))


def _expected(hint: Any) -> str:  # Any: as above
    """Return the values of a type, as the end of a sentence."""
    if named := choices(hint):
        return f"{'a list of these: ' if get_origin(hint) is Sequence else 'one of '}{', '.join(named)}"
    parts = {get_origin(each) or each: each for each in (hint, *get_args(hint))}
    if Annotated in parts:
        number, bounds = get_args(parts[Annotated])
        if number is float:
            return f"a finite number {'above 0' if bounds.gt == 0 else 'of 0 or more'}"
        return "an integer of 1 or more"
    return next((text for kind, text in _EXPECTED.items() if kind in parts), f"a {getattr(hint, '__name__', 'value')}")


_EXPECTED: dict[Any, str] = {  # Any: a type
    Mapping: "a dict of strings",
    Sequence: "a list",
    bytes: "a path or bytes",
    os.PathLike: "a path",
    bool: "True or False",
    str: "a string",
}
