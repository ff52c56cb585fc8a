"""The options by which `run` and `check` name inputs, and the requests that the inputs become."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from marpack.api.declaring import Option
from marpack.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from marpack.runner.inputs import Input, NameFilter, RequestDefaults


class InputOptions(Struct, frozen=True, kw_only=True):
    """The options that name inputs."""

    inputs: Annotated[
        Sequence[str],
        Option("Files, folders, globs, @list, URLs, or - for stdin.", ("-i", "--input"), "FILE…", group="Inputs"),
    ] = ()
    kind: Annotated[
        str | None,
        Option("Type of the files to take from folders: image, .png.", ("--type",), "TYPE", group="Inputs"),
    ] = None
    data: Annotated[Sequence[str], Option("Request body, as JSON or text.", metavar="TEXT", group="Inputs")] = ()
    form: Annotated[
        Sequence[str], Option("Form field; NAME=@FILE sends a file.", metavar="NAME=VALUE", group="Inputs")
    ] = ()
    recorded: Annotated[
        str | None,
        Option("Whole requests, one JSON object per line; - for stdin.", ("--requests",), "FILE", group="Inputs"),
    ] = None

    @property
    def are_given(self) -> bool:
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
    """Raise UsageError for two options that do not go together.

    Args:
        given: Option → its value; it counts if it is truthy.
        conflicts: An option, those that it excludes, and the reason.
        spellings: Option → its spelling on the command line, where that is not its name.
    """

    def spell(name: str) -> str:
        return f"--{spellings.get(name, name).replace('_', '-')}"

    for name, others, reason in conflicts:
        other = next((other for other in others if given.get(name) and given.get(other)), None)
        if other is not None:
            hint = f"Leave one of them out: {reason}."
            raise UsageError(f"{spell(name)} and {spell(other)} exclude each other", hint=hint)
