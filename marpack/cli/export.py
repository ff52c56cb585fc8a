"""The command `marpack export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from marpack.cli.completion import sources
from marpack.cli.options import outside_option

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from marpack.archive.protocol import Progress
    from marpack.exporting.export import Exported

TO = ("docker", "kserve", "sagemaker", "ray-serve")  # as `marpack.exporting.export.TARGETS` has them


@click.command()
@click.argument("source", required=False, shell_complete=sources)
@click.option("--to", required=True, type=click.Choice(TO), help="What deploys it.")
@click.option("-o", "--output", metavar="DIR", help="The new folder [NAME-TO, here].")
@click.option("--force", is_flag=True, help="Replace DIR, if an export has written it.")
@outside_option
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Whose torch is installed [cpu].")
@click.option("--wheel", metavar="FILE", help="A wheel of marpack [made from the installed files].")
@click.option("--lock", metavar="FILE", help="A requirements.lock that an export before has written.")
@click.option("--no-lock", is_flag=True, help="Do not ask pip for the requirements' hashes.")
@click.option("--image", metavar="NAME", help="The image's name, with its registry.")
@click.option(
    "--storage-uri", metavar="URI", help="Where the platform finds the archive: s3://…, gs://…, oci+native://…"
)
@click.option("--role", metavar="ARN", help="The role that SageMaker acts in.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
def export(source: str | None, *, as_json: bool, **options: Any) -> None:  # Any: click gives each option its own type
    """Write the folder that another platform deploys: the archive, and what it needs around it.

    \b
    Examples:
      marpack export digits.mar --to docker                a Dockerfile, and all that goes in
      marpack export . --to docker --device cuda -o gpu    of the project here
      marpack export digits.mar --to ray-serve             an application of Ray Serve

    SOURCE is a .mar, a .tar.gz or a project folder; without one, the project in this folder. Nothing of the archive is
    run. The same archive, options and versions give the same bytes. What does not carry over is told as findings.
    """
    from marpack.api.operations import exported

    _show(exported(source, options, _bar), as_json=as_json)


def _bar(what: str, total: int) -> AbstractContextManager[Progress | None]:
    """Show bytes, or that something goes on where nobody can count any."""
    from marpack.render.progress import byte_bar, waiting

    return byte_bar(what, total) if total else waiting(what)


def _show(written: Exported, *, as_json: bool) -> None:
    from marpack.render.output import show

    if as_json:
        show(written)
        return
    import shlex

    from rich.filesize import decimal

    from marpack.render.console import show_findings, talk
    from marpack.render.layout import clean, fact, show_page

    show_findings(written.findings, talk())
    size = decimal(sum(file.size for file in written.files))
    then = [f"cd {shlex.quote(written.folder)}", *written.commands]
    lines = [
        fact("folder", click.style(clean(written.folder), bold=True)),
        fact("size", f"{size} in {len(written.files)} files"),
        *(fact("" if at else "then", clean(command)) for at, command in enumerate(then)),
    ]
    show_page(iter(lines))
