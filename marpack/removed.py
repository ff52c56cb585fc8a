"""Names of marpack 0.2 that are gone: for one release, each is answered with one sentence and what to use instead."""

from collections.abc import Callable, Iterable
from typing import NoReturn

from marpack.errors import UsageError

COMMANDS = {
    "push": (
        "marpack no longer writes to OCI registries",
        "Run oras push REGISTRY/NAME:TAG FILE.mar, as on the docs page 'Store archives in an OCI registry'.",
    ),
    "pull": (
        "marpack no longer reads from OCI registries",
        "Run oras pull REGISTRY/NAME:TAG, as on the docs page 'Store archives in an OCI registry'.",
    ),
}
# (command, option) → the problem and the remedy. The Python functions had the same options.
OPTIONS: dict[tuple[str, str], tuple[str, str]] = {}
CODE = "removed"


def refuse_command(name: str) -> None:
    """Raise UsageError for a removed command."""
    if name in COMMANDS:
        what, hint = COMMANDS[name]
        raise UsageError(what, where=name, hint=hint, code=CODE)


def removed_option(command: str | None, option: str) -> UsageError | None:
    """Return the error for a removed option of a command; None for any other option."""
    found = OPTIONS.get((command or "", option))
    return UsageError(found[0], where=option, hint=found[1], code=CODE) if found else None


def refuse_arguments(function: str, names: Iterable[str]) -> None:
    """Raise UsageError if a function's former argument is among the names."""
    for name in names:
        if error := removed_option(function, f"--{name.replace('_', '-')}"):
            error.where = name
            raise error


def removed_function(name: str) -> Callable[..., NoReturn] | None:
    """Return a function that raises UsageError in place of a removed one of `marpack`; None for any other name."""
    if name not in COMMANDS:
        return None

    def call(*_args: object, **_options: object) -> NoReturn:
        what, hint = COMMANDS[name]
        raise UsageError(what, where=f"marpack.{name}", hint=hint, code=CODE)

    return call
