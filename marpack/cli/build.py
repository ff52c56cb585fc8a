"""The command `marpack build`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from marpack.errors import ProjectError, UsageError

if TYPE_CHECKING:
    from marpack.project.planned import Planned

_FORMATS = ("default", "zip-store", "tgz", "no-archive")
# What speaks for the original archiver's command line instead of a project.
_FLAGS = {
    "model_name": "--model-name",
    "version": "--version",
    "handler": "--handler",
    "serialized_file": "--serialized-file",
    "model_file": "--model-file",
    "extra_files": "--extra-files",
    "runtime": "--runtime",
    "export_path": "--export-path",
    "requirements_file": "--requirements-file",
    "config_file": "--config-file",
}


@click.command()
@click.argument("project", required=False)
@click.option("-o", "--output", metavar="PATH", help="The archive to write, or a folder for it [NAME.mar beside it].")
@click.option("--archive-format", type=click.Choice(_FORMATS), help="A .mar, a .tar.gz or a plain folder.")
@click.option("-f", "--force", is_flag=True, help="With flags: replace an existing output (a project's always is).")
@click.option("--strict", is_flag=True, help="Warnings stop the build, too.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@click.option("--model-name", metavar="NAME", help="Name of the model and of its archive.")
@click.option("-v", "--version", metavar="TEXT", help="The model's version.")
@click.option("--handler", metavar="NAME|FILE", help="A built-in, file.py, or file.py:function.")
@click.option("--serialized-file", metavar="FILE", help="The weights.")
@click.option("--model-file", metavar="FILE", help="For eager models: the file with the model's class.")
@click.option("--extra-files", metavar="LIST", help="Files, globs and folders, separated by commas.")
@click.option("--runtime", type=click.Choice(["python", "python3", "LSP"]), help="What runs the handler [python].")
@click.option("--export-path", metavar="DIR", help="Where the archive goes [the current folder].")
@click.option("-r", "--requirements-file", metavar="FILE", help="The model's requirements.txt.")
@click.option("-c", "--config-file", metavar="FILE", help="The model's configuration, as YAML.")
def build(project: str | None, *, as_json: bool, **options: Any) -> None:  # Any: click gives each option its own type
    r"""Pack a model into one archive.

    \b
    Examples:
      marpack build                     the project in this folder
      marpack build --model-name resnet --version 1.0 --handler image_classifier \
        --serialized-file resnet.pt --extra-files index_to_name.json

    PROJECT is a folder with a marpack.yaml. In its place, the flags of torch-model-archiver do what they do there.
    """
    from marpack.packing.pack import plan_size
    from marpack.project.building import build as write
    from marpack.render.build import BuildReport, packing_bar, show_built, show_warnings
    from marpack.render.json import show

    try:
        planned = _plan(project, options)
    except ProjectError as error:
        if as_json:
            show(BuildReport(error=str(error), findings=error.findings))
        raise
    if not as_json:
        show_warnings(planned.findings)
    with packing_bar(plan_size(planned.plan)) as progress:
        built = write(planned, progress)
    if not as_json:
        show_built(built, planned.modules)
        return
    show(
        BuildReport(
            path=str(built.path),
            format=planned.plan.format,
            size=built.size,
            digest=built.digest,
            members=built.members,
            seconds=built.seconds,
            modules=planned.modules,
            findings=planned.findings,
        )
    )


def _plan(project: str | None, options: dict[str, Any]) -> Planned:  # Any: see build
    from pathlib import Path

    from marpack.packing.plan import Format
    from marpack.project.load import load_project
    from marpack.project.planning import plan_project

    given = [flag for name, flag in _FLAGS.items() if options[name] is not None]
    form = Format(options["archive_format"]) if options["archive_format"] else None
    created_on = _created_on(os.environ.get("SOURCE_DATE_EPOCH"))
    if not given:
        return plan_project(
            load_project(Path(project or ".")),
            output=options["output"],
            form=form,
            created_on=created_on,
            strict=options["strict"],
        )
    if project is not None:
        raise UsageError(f"{given[0]} takes a project's place; give {project} or the flags, not both")
    raise NotImplementedError


def _created_on(epoch: str | None) -> str | None:
    """Return the manifest's createdOn for a SOURCE_DATE_EPOCH, in UTC."""
    from datetime import UTC, datetime

    if not epoch:
        return None
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"SOURCE_DATE_EPOCH is '{epoch}', which is no number of seconds since 1970") from None
    return moment.strftime("%d/%m/%Y %H:%M:%S")
