"""The command `marpack completion`, and what TAB offers for arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_VARIABLE = "_MARPACK_COMPLETE"  # how click tells a completion from a call
_ARCHIVES = (".mar", ".tar.gz", ".tgz")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes marpack in a shell.

    \b
    Examples:
      eval "$(marpack completion bash)"                             in ~/.bashrc; likewise zsh
      marpack completion fish > ~/.config/fish/completions/marpack.fish

    It completes commands, options, templates, archives, the members of an archive, and files.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:  # cannot be: click has all three
        raise click.UsageError(f"click knows no completion for {shell}")
    script = kind(click.get_current_context().find_root().command, {}, "marpack", _VARIABLE).source()
    # bash forgets about files once a command has a function of its own, unless it is told.
    click.echo(script.replace("complete -o nosort", "complete -o nosort -o bashdefault -o default"))


def template_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the templates of `marpack init`, each with its title."""
    from click.shell_completion import CompletionItem

    from marpack.project.scaffold.template import load_template
    from marpack.project.scaffold.template import template_names as names

    found = [load_template(name) for name in names() if name.startswith(incomplete)]
    return [CompletionItem(each.name, help=each.title) for each in found]


def sources(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer archives and folders."""
    from click.shell_completion import CompletionItem

    head, slash, stem = incomplete.rpartition("/")
    try:
        entries = sorted(Path(head + slash or ".").iterdir())
    except OSError:
        return []
    shown = (path for path in entries if path.name.startswith(stem) and not path.name.startswith("."))
    kept = [path for path in shown if path.is_dir() or path.name.endswith(_ARCHIVES)]
    return [CompletionItem(f"{head}{slash}{path.name}{'/' if path.is_dir() else ''}") for path in kept]


def members(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the members of the archive that the command line names so far."""
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
