"""The command `marpack build`."""

from __future__ import annotations

from typing import Any

import click

from marpack.cli.completion import sources
from marpack.cli.options import outside_option

_FORMATS = ("default", "zip-store", "tgz", "no-archive")
_PLATFORMS = ("linux_x86_64", "linux_aarch64", "any")


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
@outside_option
@click.option("--source-commit", metavar="SHA", help="Record the commit that the sources are of.")
@click.option("--vendor", is_flag=True, help="Resolve the requirements to wheels, and bring them along (vendor.lock).")
@click.option("--vendor-python", metavar="X.Y", help="With --vendor: the server's Python [marpack.yaml's, or 3.9].")
@click.option("--vendor-platform", type=click.Choice(_PLATFORMS), help="With --vendor [linux_x86_64].")
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
      marpack build --vendor            … with what its requirements.txt asks for inside
      marpack build --model-name resnet --version 1.0 --handler image_classifier \\
        --serialized-file resnet.pt --extra-files index_to_name.json

    PROJECT is a folder with a marpack.yaml. In its place, the flags of torch-model-archiver do what they do there.
    """
    from marpack.api.operations import build_report, planned
    from marpack.project.packing import pack, plan_size
    from marpack.render.build import built_lines, show_warnings
    from marpack.render.layout import show_page
    from marpack.render.output import show
    from marpack.render.progress import byte_bar

    found = planned(project, options, byte_bar)
    if not as_json:
        show_warnings(found.findings)
    with byte_bar("packing", plan_size(found.plan)) as progress:
        built = pack(found.plan, progress)
    if as_json:
        show(build_report(found, built))
    else:
        show_page(built_lines(built, found.modules, found.plan.vendored or None))
