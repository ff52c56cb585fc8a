"""The command `marpack completion`."""

from __future__ import annotations

import click

_VARIABLE = "_MARPACK_COMPLETE"  # how click tells a completion from a call


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes marpack in a shell.

    \b
    Examples:
      eval "$(marpack completion bash)"                             in ~/.bashrc; likewise zsh
      marpack completion fish > ~/.config/fish/completions/marpack.fish

    It completes commands, options, templates, archives and the members of an archive.
    """
    from click.shell_completion import get_completion_class

    from marpack.cli.main import marpack

    kind = get_completion_class(shell)
    if kind is None:  # cannot be: click has all three
        raise click.UsageError(f"click knows no completion for {shell}")
    click.echo(kind(marpack, {}, "marpack", _VARIABLE).source())
