"""docs/reference/commands.md: the help of every command; options of several commands are explained once."""

from collections import Counter

import click

from marpack.cli.main import COMMANDS, GROUPS
from marpack.cli.main import marpack as program
from marpack.cli.options import ALL_OPTIONS
from tools.reference.page import NOTE, page

WIDTH = 80  # columns, as many as fit on the page
_FEWEST = 3  # commands that share an option
_OF_ALL = ("--quiet", "--verbose", "--help", "--help-all")

Record = tuple[str, str]  # the spellings and the text of an option


def commands() -> str:
    """Return every command's help."""
    settings = program.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}
    top = click.Context(program, info_name="marpack", **settings)
    top.meta[ALL_OPTIONS] = True
    contexts = {name: context_of(top, name) for names in GROUPS.values() for name in names}
    options = {name: options_of(context) for name, context in contexts.items()}
    counts = Counter(record for records in options.values() for record in records)
    shared = [record for record, count in counts.items() if count >= _FEWEST and spelling(record) not in _OF_ALL]
    parts = [
        "# Commands",
        NOTE,
        block(program.get_help(top)),
        "## Shared options",
        (
            "Every command has `-q`, `--quiet` (print only results, warnings and errors), `-v`, `--verbose` (print"
            " more, such as all notes; only `--verbose` in `build`) and `-h`, `--help`. Commands with many options have"
            " `--help-all`. These options are common to several commands, which only name them below:"
        ),
        block(definitions(top, sorted(shared, key=spelling))),
    ]
    for name, context in contexts.items():
        parts += [f"## marpack {name}", block(own_help(context, shared))]
        also = ", ".join(f"`{spelling(record)}`" for record in options[name] if record in shared)
        parts.append(f"Shared options: {also}." if also else "")
    return page(*parts)


def context_of(top: click.Context, name: str) -> click.Context:
    command = program.get_command(top, name)
    assert command is not None, COMMANDS[name]
    return click.Context(command, parent=top, info_name=name)


def options_of(context: click.Context) -> list[Record]:
    """Return the options of a command as its help shows them."""
    options = [each for each in context.command.get_params(context) if isinstance(each, click.Option)]
    records = (each.get_help_record(context) for each in options)
    return [record for record in records if record is not None]


def spelling(record: Record) -> str:
    """Return an option's long spelling."""
    return next(word.strip(",") for word in record[0].replace("/", " ").split() if word.startswith("--"))


def own_help(context: click.Context, shared: list[Record]) -> str:
    """Return a command's help without the options that are explained elsewhere."""
    options = [each for each in context.command.get_params(context) if isinstance(each, click.Option)]
    records = [(each, each.get_help_record(context)) for each in options]
    hidden = [each for each, record in records if record and (record in shared or spelling(record) in _OF_ALL)]
    for each in hidden:
        each.hidden = True
    try:
        return context.command.get_help(context)
    finally:
        for each in hidden:
            each.hidden = False


def definitions(top: click.Context, records: list[Record]) -> str:
    """Return options with their texts, in two columns."""
    formatter = top.make_formatter()
    formatter.write_dl(records, col_max=26)
    return formatter.getvalue()


def block(text: str) -> str:
    """Return a text as it is printed."""
    return f"```text\n{text.rstrip()}\n```"
