"""The command `marpack diff`."""

from __future__ import annotations

import click

from marpack.cli.completion import sources
from marpack.cli.options import limit_options, outside_option
from marpack.errors import ExitCode


@click.command()
@click.argument("before", metavar="A", shell_complete=sources)
@click.argument("after", metavar="B", shell_complete=sources)
@click.option("--verify", is_flag=True, help="Read every member, instead of trusting recorded digests.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@outside_option
@limit_options
@click.pass_context
def diff(
    context: click.Context,
    /,
    before: str,
    after: str,
    *,
    verify: bool,
    as_json: bool,
    allow_outside: bool,
    **limits: int | None,
) -> None:
    """Compare two archives: manifest, members, config, labels and, number by number, the tensors.

    \b
    Examples:
      marpack diff digits-1.0.mar digits-1.1.mar          what a release changes
      marpack diff https://host/digits.mar . --json       what is served, and what this project builds

    A and B are each a .mar, a .tar.gz, a model folder, an address (https, s3, oci), or a project folder. The exit code
    is 0 if they are the same, 1 if they differ.
    """
    from marpack.api.operations import chosen_limits, compared
    from marpack.render.progress import byte_bar

    bounds = chosen_limits(**limits)
    found = compared(before, after, bounds, byte_bar, verify=verify, allow_outside=allow_outside)
    if as_json:
        from marpack.render.output import show

        show(found)
    else:
        from marpack.render.diff import diff_lines
        from marpack.render.layout import page_width, show_page

        show_page(diff_lines(found, page_width()))
    context.exit(ExitCode.OK if found.same else ExitCode.SHORT)
