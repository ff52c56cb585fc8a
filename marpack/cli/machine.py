"""The commands about this machine: doctor and completion. `doctor` must work when packages are missing."""

from __future__ import annotations

import click

from marpack.cli.options import Command
from marpack.errors import ExitCode

_VARIABLE = "_MARPACK_COMPLETE"  # by which click tells a completion from a call


@click.command(cls=Command)
@click.option("--clear-cache", is_flag=True, help="Remove all cached files that are not in use.")
@click.option("--json", "as_json", is_flag=True, help="Write the result as JSON to stdout.")
def doctor(*, clear_cache: bool, as_json: bool) -> None:
    """Check the installation, and show how to fix it.

    \b
    Examples:
      marpack doctor                   versions, devices, cache and extras
      marpack doctor --clear-cache     also free the cache's space

    The exit code is 1 only if a command cannot work: because of torch, a missing package, or a cache that cannot be
    written. Cached files are made or fetched again when they are needed. --clear-cache keeps files that are in use or
    were fetched in the last ten minutes.
    """
    import json
    from dataclasses import asdict

    from marpack.api.doctor import examine
    from marpack.render.console import show_lines
    from marpack.render.doctor import doctor_lines

    report = examine(clear_cache=clear_cache)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        show_lines(doctor_lines(report))
    click.get_current_context().exit(ExitCode.OK if report.healthy else ExitCode.SHORT)


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes marpack in a shell.

    \b
    Examples:
      eval "$(marpack completion bash)"    in ~/.bashrc; likewise zsh
      marpack completion fish > ~/.config/fish/completions/marpack.fish

    It completes commands, options, templates, archives, the members of an archive, and files.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has all three
    script = kind(click.get_current_context().find_root().command, {}, "marpack", _VARIABLE).source()
    # Without these options, bash does not complete files for a command with a function of its own.
    click.echo(script.replace("complete -o nosort", "complete -o nosort -o bashdefault -o default"))
