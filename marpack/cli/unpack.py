"""The command `marpack unpack`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marpack.cli.completion import members, sources
from marpack.cli.options import chosen_limits, limit_options
from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.archive.extraction import Unpacked
    from marpack.archive.protocol import Limits

_SUFFIXES = (".mar", ".tar.gz", ".tgz", ".zip")


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
@limit_options
def unpack(
    source: str,
    directory: str | None,
    only: tuple[str, ...],
    *,
    force: bool,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Extract an archive into a new folder, safely, or not at all.

    \b
    Examples:
      marpack unpack digits.mar                            into digits/
      marpack unpack digits.mar -d look --only '*.py' --only MAR-INF

    SOURCE is a .mar, a .tar.gz, a model folder or the address of a .mar. Names that lead elsewhere, links, bombs and
    damaged bytes are refused (exit code 3) before the folder appears. Nothing that is there is overwritten.
    """
    folder = Path(directory) if directory else _folder(source)
    unpacked = _unpack(source, folder, only, chosen_limits(**limits), force=force)
    _show(unpacked, as_json=as_json)


def _folder(source: str) -> Path:
    """Return the folder named after the archive, in the current one."""
    name = source.partition("?")[0].rstrip("/").rpartition("/")[2]
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    if name in ("", ".", ".."):
        raise click.UsageError("Name the new folder: -d DIR")
    return Path(name)


def _unpack(source: str, folder: Path, only: tuple[str, ...], limits: Limits, *, force: bool) -> Unpacked:
    from marpack.archive.extraction import unpack as write
    from marpack.archive.reader import open_archive
    from marpack.render.progress import byte_bar

    if "://" not in source and not os.path.lexists(source):
        hint = "name a .mar, a .tar.gz or a model folder"
        raise UsageError("there is no such file or folder", where=source, hint=hint)
    with open_archive(source, limits=limits) as archive:
        return write(archive, folder, only=only, replace=force, bar=byte_bar)


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
