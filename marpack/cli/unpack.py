"""The command `marpack unpack`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from marpack.cli.completion import members, sources
from marpack.cli.options import limit_options, outside_option

if TYPE_CHECKING:
    from marpack.archive.extraction import Unpacked


@click.command()
@click.argument("source", shell_complete=sources)
@click.option("-d", "--directory", metavar="DIR", help="The new folder; by default one of the archive's name, here.")
@click.option(
    "--only",
    multiple=True,
    metavar="GLOB",
    shell_complete=members,
    help="Only members that match: '*.py', 'data/*', data. Repeatable.",
)
@click.option("--force", is_flag=True, help="Replace DIR, if it holds an archive unpacked before.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@outside_option
@limit_options
def unpack(
    source: str,
    directory: str | None,
    only: tuple[str, ...],
    *,
    force: bool,
    as_json: bool,
    allow_outside: bool,
    **limits: int | None,
) -> None:
    """Extract an archive into a new folder, safely, or not at all.

    \b
    Examples:
      marpack unpack digits.mar                            into digits/
      marpack unpack digits.mar -d look --only '*.py' --only MAR-INF

    SOURCE is a .mar, a .tar.gz, a model folder or an address (https, s3, oci). Names that lead elsewhere, links, bombs
    and damaged bytes are refused (exit code 3) before the folder appears. Nothing that is there is overwritten.
    """
    from marpack.api import operations
    from marpack.render.progress import byte_bar

    folder = Path(directory) if directory else operations.folder_named_after(source)
    if folder is None:
        raise click.UsageError("Name the new folder: -d DIR")
    bounds = operations.chosen_limits(**limits)
    report = operations.unpacked(source, folder, bounds, byte_bar, only=only, force=force, allow_outside=allow_outside)
    _show(report, as_json=as_json)


def _show(unpacked: Unpacked, *, as_json: bool) -> None:
    if as_json:
        from marpack.render.output import show

        show(unpacked)
        return
    from marpack.render.console import show_findings, talk

    count = len(unpacked.files)
    show_findings(unpacked.findings, talk())
    click.echo(f"{unpacked.folder}: {count} {'file' if count == 1 else 'files'}, {_size(unpacked.bytes)}")


def _size(count: int) -> str:
    from rich.filesize import decimal

    return decimal(count)
