"""Declare an option once for the command line, the Python functions, validation and the docs.

The options of a command are the fields of a frozen struct. A field's type says which values it takes, its `Option` how
the command line spells it and what it means. Positional arguments of the command are positional in Python.
"""

from __future__ import annotations

import math
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature, cleandoc
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct
from msgspec.structs import fields, replace

from marpack.errors import UsageError, did_you_mean, shortened

_P = ParamSpec("_P")
_Options = TypeVar("_Options", bound=Struct)
_Result = TypeVar("_Result")
_Self = TypeVar("_Self")

Name = str | os.PathLike[str]  # of a file or a folder, or an address
Key = Name | bytes  # a file in PEM form, or its content
Headers = Mapping[str, str] | Sequence[tuple[str, str]]
_MAX_INTEGER = (1 << 63) - 1


class Option(Struct, frozen=True):
    """The spelling and the meaning of an option.

    Args:
        help: A sentence that makes sense without the option's name.
        flags: The spellings on the command line; empty: the field's name with dashes. An argument has none.
        metavar: What stands for the value in the help.
        parse: The notation of the value on the command line: "size" for 500M, "pairs" for NAME=VALUE.
        complete: What completes the value: "sources", "members" or "templates".
        default: What happens without the option, where the field's default does not say so.
        group: The heading in the help; empty: none.
        only_python: Whether the command line has another way to ask for it.
        hidden: Whether the help leaves it out.
    """

    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    parse: Literal["size", "seconds", "percent", "headers", "pairs", "switch"] | None = None
    complete: Literal["sources", "members", "templates"] | None = None
    default: str = ""
    group: str = ""
    only_python: bool = False
    hidden: bool = False


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

    def decorate(function: Callable[[_Options], _Result]) -> Callable[_P, _Result]:
        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
            return function(valid(kind(*args, **kwargs)))

        _describe(call, kind, function.__doc__ or "", function.__annotations__["return"])
        return call

    return decorate


def initializer(
    kind: Callable[_P, _Options],
) -> Callable[[Callable[[_Self, _Options], None]], Callable[Concatenate[_Self, _P], None]]:
    """Return the decorator for an `__init__` of one options struct; see `operation`."""

    def decorate(function: Callable[[_Self, _Options], None]) -> Callable[Concatenate[_Self, _P], None]:
        @wraps(function)
        def call(self: _Self, *args: _P.args, **kwargs: _P.kwargs) -> None:
            function(self, valid(kind(*args, **kwargs)))

        _describe(call, kind, function.__doc__ or "", None, Parameter("self", Parameter.POSITIONAL_OR_KEYWORD))
        return call  # type: ignore[return-value]  # mypy takes a wrapper's `self` for a named argument

    return decorate


def _describe(call: Any, kind: Any, text: str, returned: Any, *before: Parameter) -> None:  # Any: a function, a struct
    """Give a function the signature and the docstring that a struct's options make."""
    hints = get_type_hints(kind)
    parameters = [
        Parameter(
            each.name,
            Parameter.POSITIONAL_OR_KEYWORD if each.is_positional else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.default is UNSET else each.default,
            annotation=hints[each.name],
        )
        for each in declared(kind)
    ]
    call.__signature__ = Signature([*before, *parameters], return_annotation=returned)
    call.__doc__ = document(kind, text)


def document(kind: type[Struct], text: str) -> str:
    """Return a docstring with a struct's options as arguments before its other sections."""
    lines = []
    for each in declared(kind):
        default = f" Default: {each.option.default}." if each.option.default else ""
        lines.append(f"    {each.name}: {each.option.help}{default}")
    arguments = "\n".join(["Args:", *lines])
    body = cleandoc(text)
    before, section, rest = body.partition("\n\nReturns:\n")
    if not section:
        before, section, rest = body.partition("\n\nRaises:\n")
    return f"{before}\n\n{arguments}{section}{rest}"


def valid(options: _Options) -> _Options:
    """Return options with paths as text and lists as tuples; raises UsageError for a value that does not fit."""
    changed = {}
    for each in declared(type(options)):
        given = getattr(options, each.name)
        value = given if get_origin(each.type) is Iterable else _plain(given)
        if not _fits(value, each.type):
            expected = _expected(each.type)
            near = did_you_mean(value, _choices(each.type)) if isinstance(value, str) else None
            what = f"{shortened(repr(value), 40)} is not {expected}"
            raise UsageError(what, where=each.name, hint=near or f"Set {each.name} to {expected}.")
        if value is not given:
            changed[each.name] = value
    return replace(options, **changed) if changed else options


def _plain(value: Any) -> Any:  # Any: whatever a caller gives
    """Return a path as text, and a list, set or tuple as a tuple of these."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | set | frozenset | tuple):
        return tuple(map(_plain, value))
    return value


def _fits(value: object, hint: Any) -> bool:  # noqa: C901 - one line for each kind of type. Any: as in Declared
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Annotated:
        return _fits(value, inner[0]) and _is_within(value, inner[1])
    if origin is Sequence:
        return isinstance(value, tuple) and all(_fits(each, inner[0]) for each in value)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(each, inner[0]) for each in (*value, *value.values()))
    if origin is os.PathLike:
        return False  # it is text by now
    if origin is Iterable:
        return True  # of values of any type: the requests that they become are checked one by one
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and value <= _MAX_INTEGER
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, hint)


def _is_within(value: Any, bounds: Meta) -> bool:  # Any: a number
    above = (bounds.gt is None or value > bounds.gt) and (bounds.ge is None or value >= bounds.ge)
    return above and (bounds.le is None or value <= bounds.le)


def _choices(hint: Any) -> tuple[str, ...]:  # Any: as above
    """Return the values of a type that takes a few texts only."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(choice for each in get_args(hint) for choice in _choices(each))


def _expected(hint: Any) -> str:  # Any: as above
    """Return what a type takes, as it ends a sentence."""
    if choices := _choices(hint):
        several = "a list of these: " if get_origin(hint) is Sequence else "one of "
        return f"{several}{', '.join(choices)}"
    parts = (hint, *get_args(hint))
    kinds = {get_origin(each) or each for each in parts}
    if Mapping in kinds:
        return "a dict of strings"
    if Sequence in kinds:
        return "a list"
    if os.PathLike in kinds:
        return "a path or bytes" if bytes in kinds else "a path"
    if bool in kinds:
        return "True or False"
    number = next((each for each in parts if get_origin(each) is Annotated), None)
    if number is not None and get_args(number)[0] is float:
        return "a finite number above 0" if get_args(number)[1].gt == 0 else "a finite number of 0 or more"
    if kinds & {int, Annotated}:
        return "an integer of 1 or more"
    return "a string" if isinstance(hint, type) or str in kinds else f"a {getattr(hint, '__name__', 'value')}"
