"""The command `marpack build`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.completion import sources
from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.cli.options import Options
    from marpack.project.plan import Format
    from marpack.project.preflight import PlanResult

_FORMATS = ("default", "zip-store", "tgz", "no-archive")


class LikeArgparse(click.Command):
    """A command that reads two more spellings, since scripts written for the original archiver may hold them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `-v=1.0` for `-v 1.0`, and a long flag cut short for the only one that begins so."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [self._spelt_out(word, ctx) for word in args[:end]] + args[end:])

    def _spelt_out(self, word: str, ctx: click.Context) -> str:
        known = [name for option in self.get_params(ctx) for name in option.opts if name.startswith("-")]
        flag, equals, value = word.partition("=")
        if equals and flag in known and not flag.startswith("--"):
            return f"{flag}{value}"
        near = [name for name in known if name.startswith(flag)] if flag.startswith("--") else []
        return f"{near[0]}{equals}{value}" if len(near) == 1 else word


@click.command(cls=LikeArgparse)
@click.argument("project", required=False, shell_complete=sources)
@click.option(
    "-o", "--output", metavar="PATH", help="The archive to write, or a folder for it [NAME.mar in the project]."
)
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
    """Pack a model into one archive.

    \b
    Examples:
      marpack build                     the project in this folder
      marpack build --model-name resnet --version 1.0 --handler image_classifier \\
        --serialized-file resnet.pt --extra-files index_to_name.json

    PROJECT is a folder with a marpack.yaml. In its place, the flags of torch-model-archiver do what they do there.
    """
    from msgspec.structs import asdict

    from marpack.project.packing import pack, plan_size
    from marpack.render.build import BuildReport, built_lines, show_warnings
    from marpack.render.layout import show_page
    from marpack.render.output import show
    from marpack.render.progress import byte_bar

    planned = _plan(project, options)
    if not as_json:
        show_warnings(planned.findings)
    with byte_bar("packing", plan_size(planned.plan)) as progress:
        built = pack(planned.plan, progress)
    if not as_json:
        show_page(built_lines(built, planned.modules))
        return
    known = asdict(built) | {"path": str(built.path), "format": planned.plan.format}
    show(BuildReport(**known, modules=planned.modules, findings=planned.findings))


def _plan(project: str | None, options: Options) -> PlanResult:
    from pathlib import Path

    from marpack.project.flags import Flags
    from marpack.project.plan import Format

    given = [_flag(name) for name in Flags.__struct_fields__ if options[name] is not None]
    form = Format(options["archive_format"]) if options["archive_format"] else None
    created_on = _created_on(os.environ.get("SOURCE_DATE_EPOCH"))
    if given and project is not None:
        raise UsageError(f"{given[0]} takes a project's place; give {project} or the flags, not both")
    if given:
        return _plan_flags(options, form or Format.DEFAULT, created_on)
    from marpack.project.load import load_project
    from marpack.project.planning import plan_project

    found = load_project(Path(project or "."))
    return plan_project(found, output=options["output"], form=form, created_on=created_on, strict=options["strict"])


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _plan_flags(options: Options, form: Format, created_on: str | None) -> PlanResult:
    """Plan what the original archiver's command line asks for."""
    from marpack.project.flags import Flags, plan_flags

    missing = [_flag(name) for name in ("model_name", "version", "handler") if options[name] is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, too", hint="or leave all flags out to build a project"
        )
    if options["output"] is not None:
        raise UsageError("--output is for projects", hint="give --export-path, the folder for the archive")
    flags = Flags(**{name: options[name] for name in Flags.__struct_fields__ if options[name] is not None})
    return plan_flags(flags, form=form, replace=options["force"], created_on=created_on, strict=options["strict"])


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
