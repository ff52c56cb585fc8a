"""docs/reference/commands.md: the help of every command."""

import click

from marpack.cli.main import COMMANDS, GROUPS
from marpack.cli.main import marpack as program
from tools.reference.page import NOTE, page

WIDTH = 90  # columns


def commands() -> str:
    """Return every command's help."""
    parts = ["# Commands", NOTE, "```text\n" + help_of(program, "marpack") + "\n```"]
    for title, names in GROUPS.items():
        for name in names:
            parts += [f"## marpack {name}", f"*{title}.* {COMMANDS[name][1]}"]
            command = program.get_command(click.Context(program), name)
            assert command is not None
            parts.append("```text\n" + help_of(command, f"marpack {name}") + "\n```")
    return page(*parts)


def help_of(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
    return command.get_help(context).rstrip()
