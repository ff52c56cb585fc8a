"""The command `marpack init`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from marpack.cli.completion import template_names


@click.command()
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "-t", "--template", metavar="NAME", shell_complete=template_names, help="The kind of project [as the weights need]."
)
@click.option("--from", "archive", metavar="ARCHIVE", help="Turn an archive back into the project that rebuilds it.")
@click.option("--name", metavar="NAME", help="The model's name [after the weights, or the folder].")
@click.option("--version", metavar="TEXT", help="The model's version [1.0].")
@click.option("--weights", metavar="FILE", type=click.Path(path_type=Path), help="The weights [those in DIR].")
@click.option("--model-file", metavar="FILE", type=click.Path(path_type=Path), help="For a state_dict: its class.")
@click.option("--handler", metavar="NAME|FILE", help="A built-in, file.py, or file.py:function.")
@click.option("--labels", metavar="FILE", type=click.Path(path_type=Path), help="The labels [those in DIR].")
@click.option("--target", type=click.Choice(["torchserve", "marpack"]), help="Who will serve it [torchserve].")
@click.option("-y", "--yes", is_flag=True, hidden=True)  # nothing is asked; for scripts from when it was
@click.option("-f", "--force", is_flag=True, help="Replace files that are there already.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
def init(folder: Path | None, *, archive: str | None, as_json: bool, **options: Any) -> None:  # Any: click's
    """Start a project: a marpack.yaml, and what else it needs.

    \b
    Examples:
      marpack init                           around the weights and labels in this folder
      marpack init shop -t text_classifier   a new folder with a project that works as it is
      marpack init --from old.mar            an archive's project, which rebuilds the same members

    Files that are there already are used as they are and never overwritten.
    """
    from marpack.api.operations import project_from_archive, project_from_template
    from marpack.render.build import show_init, show_survey
    from marpack.render.output import show

    if archive is not None:
        report = project_from_archive(archive, folder, options)
    elif as_json:
        report = project_from_template(folder or Path(), options)
    else:
        report = project_from_template(folder or Path(), options, show_survey)
    if as_json:
        show(report)
    else:
        show_init(report)
