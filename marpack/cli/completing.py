"""What a shell is offered when TAB is pressed: template names, archives, and the members of an archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

_ARCHIVES = (".mar", ".tar.gz", ".tgz")


def template_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the templates of `marpack init`, each with its title."""
    from click.shell_completion import CompletionItem

    from marpack.project.scaffold.template import load_template
    from marpack.project.scaffold.template import template_names as names
    from marpack.render.templates import folder

    found = [load_template(folder(), name) for name in names(folder()) if name.startswith(incomplete)]
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
