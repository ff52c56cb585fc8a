"""docs/reference/commands.md: the help of every command."""

import click

from marpack.cli.main import COMMANDS, GROUPS
from marpack.cli.main import marpack as program
from marpack.cli.options import ALL_OPTIONS
from tools.reference.page import NOTE, page

WIDTH = 90  # columns


def commands() -> str:
    """Return every command's help."""
    settings = program.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}
    top = click.Context(program, info_name="marpack", **settings)
    top.meta[ALL_OPTIONS] = True
    parts = ["# Commands", NOTE, help_of(top)]
    for title, names in GROUPS.items():
        for name in names:
            parts += [f"## marpack {name}", f"*{title}.* {COMMANDS[name][1]}"]
            command = program.get_command(top, name)
            assert command is not None
            parts.append(help_of(click.Context(command, parent=top, info_name=name)))
    return page(*parts)


def help_of(context: click.Context) -> str:
    """Return a command's help as it is printed, as a block."""
    return f"```text\n{context.command.get_help(context).rstrip()}\n```"
