"""The options by which `run` and `check` name inputs, and the requests of the inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from marpack.api.declaring import Option
from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.runner.inputs import Input, NameFilter, RequestDefaults

_Inputs = partial(Option, group="Inputs")


class InputOptions(Struct, frozen=True, kw_only=True):
    """The options that name inputs."""

    inputs: Annotated[
        Sequence[str],
        _Inputs("Inputs: files, folders, globs, @list, URLs, or - for stdin.", ("-i", "--input"), "FILE…", daily=True),
    ] = ()
    kind: Annotated[
        str | None, _Inputs("Type of the files to take from folders, such as image or .png.", ("--type",), "TYPE")
    ] = None
    data: Annotated[Sequence[str], _Inputs("Body of a request, as JSON or text.", metavar="TEXT", daily=True)] = ()
    form: Annotated[
        Sequence[str], _Inputs("Field of a form to send; NAME=@FILE sends a file.", metavar="NAME=VALUE", daily=True)
    ] = ()
    recorded: Annotated[
        str | None, _Inputs("File with whole requests, one JSON object per line; - for stdin.", ("--requests",), "FILE")
    ] = None

    @property
    def has_inputs(self) -> bool:
        """Whether any inputs are named."""
        return bool(self.inputs or self.data or self.form or self.recorded)


def read_inputs(options: InputOptions, defaults: RequestDefaults) -> Iterator[Input]:
    """Return the inputs, in order, as requests that have `defaults` in common.

    Raises UsageError for a missing file, before anything is loaded; only names are held, not contents.
    """
    from marpack.runner.inputs import (
        check_requests,
        check_sources,
        data_inputs,
        file_inputs,
        form_input,
        paths_of,
        recorded_inputs,
    )

    if options.recorded:
        if options.recorded != "-":
            check_requests(options.recorded)
        return recorded_inputs(options.recorded, limit=defaults.max_request_size)
    name_filter = _name_filter(options.kind)
    check_sources(options.inputs, name_filter=name_filter)
    paths = paths_of(options.inputs, name_filter=name_filter)
    form: Iterable[Input] = (form_input(options.form, defaults),) if options.form else ()
    return chain(file_inputs(paths, defaults), data_inputs(options.data, defaults), form)


def count_inputs(options: InputOptions) -> int | None:
    """Return the number of inputs, or None if they must be read to count them."""
    from marpack.runner.inputs import count_of

    if options.recorded:
        return None
    files = count_of(options.inputs, name_filter=_name_filter(options.kind))
    return None if files is None else files + len(options.data) + bool(options.form)


def _name_filter(kind: str | None) -> NameFilter | None:
    """Return the test of a file's name for a type such as `image`, `image/png`, `png` or `.png`."""
    if kind is None:
        return None
    from pathlib import PurePath

    from marpack.runner.inputs import type_of_suffix

    suffix = "." + kind.lstrip(".").lower()

    def is_of_kind(name: str) -> bool:
        own = PurePath(name).suffix.lower()
        known = type_of_suffix(own) or ""
        return own == suffix or known == kind or known.partition("/")[0] == kind

    return is_of_kind


def refuse_combinations(
    given: dict[str, object], conflicts: Iterable[tuple[str, tuple[str, ...], str]], spellings: dict[str, str]
) -> None:
    """Raise UsageError for two given (truthy) options of a conflict: an option, those that it excludes, the reason.

    `spellings` has the options that are not spelt as they are named.
    """
    for name, others, reason in conflicts:
        other = next((other for other in others if given.get(name) and given.get(other)), None)
        if other is not None:
            one, two = (f"--{spellings.get(each, each).replace('_', '-')}" for each in (name, other))
            raise UsageError(f"{one} and {two} exclude each other", hint=f"Leave one of them out: {reason}.")
