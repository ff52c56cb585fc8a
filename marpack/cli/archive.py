"""The commands that make archives and show their contents: init, build, inspect, diff, unpack and export."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import click

from marpack.api import operations
from marpack.api.options import BuildOptions, DiffOptions, ExportOptions, InitOptions, InspectOptions, UnpackOptions
from marpack.cli.options import Command, command, json_option
from marpack.errors import ExitCode

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from marpack.archive.protocol import Progress
    from marpack.inspection.facts import Inspection


@command(InitOptions)
@click.option("-y", "--yes", is_flag=True, hidden=True, expose_value=False)  # old scripts have it; it has no effect
@json_option
def init(options: InitOptions, *, as_json: bool) -> None:
    """Start a project: a marpack.yaml and the files that it needs.

    \b
    Examples:
      marpack init                           around the weights and labels in this folder
      marpack init shop -t text_classifier   a new folder with a working example
      marpack init --from old.mar            a project that rebuilds an archive's members

    Existing files are used and never overwritten.
    """
    from marpack.render.build import init_page, survey_page
    from marpack.render.console import show, show_page

    if as_json:
        show(operations.init(options))
    else:
        report = operations.init(options, lambda found, proposal: show_page(survey_page(found, proposal), err=True))
        show_page(init_page(report))


class _LikeArgparse(Command):
    """A command that accepts two more notations of argparse, which scripts for torch-model-archiver may use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `-v=1.0` as `-v 1.0`, and a unique prefix of a long option as this option."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [self._expand(word, ctx) for word in args[:end]] + args[end:])

    def _expand(self, word: str, ctx: click.Context) -> str:
        known = [name for option in self.get_params(ctx) for name in option.opts if name.startswith("-")]
        flag, equals, value = word.partition("=")
        if equals and flag in known and not flag.startswith("--"):
            return f"{flag}{value}"
        near = [name for name in known if name.startswith(flag)] if flag.startswith("--") else []
        return f"{near[0]}{equals}{value}" if len(near) == 1 else word


@command(BuildOptions, cls=_LikeArgparse)
@json_option
def build(options: BuildOptions, *, as_json: bool) -> None:
    """Pack a model into one archive.

    \b
    Examples:
      marpack build                     the project in this folder
      marpack build --vendor            with the packages of its requirements.txt
      marpack build --model-name resnet --version 1.0 --handler image_classifier \\
        --serialized-file resnet.pt --extra-files index_to_name.json

    PROJECT is a folder with a marpack.yaml. Without a project, the options of torch-model-archiver work as they do
    there.
    """
    from msgspec.structs import replace

    from marpack.project.plan import pack
    from marpack.render.build import build_page, show_warnings
    from marpack.render.console import byte_bar, show, show_page

    found = operations.plan_build(options, byte_bar)
    if not as_json:
        show_warnings(found.findings)
    with byte_bar("packing", found.plan.size) as progress:
        built = pack(found.plan, progress)
    report = operations.build_report(found, built)
    if as_json:
        show(report)
    else:
        show_page(build_page(replace(report, findings=()), found.plan.vendored or None))


@command(InspectOptions)
@json_option
def inspect(options: InspectOptions, *, as_json: bool) -> None:
    """Show the contents and problems of an archive without running it.

    \b
    Examples:
      marpack inspect digits.mar                       contents and safety of the weights
      marpack inspect https://host/digits.mar --json   a remote archive, without downloading all of it
      marpack inspect digits.mar --sbom digits.cdx.json  also write an SBOM

    SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3, oci), or a project folder. Without it, marpack
    inspects the project in this folder. The static checks of a build run, too. The exit code is 1 if a finding is an
    error, and 3 if the archive is damaged, unsafe or changed.
    """
    gc.disable()  # there is nothing to collect in what takes a twentieth of a second
    try:
        from marpack.render.console import byte_bar

        facts = operations.inspect(options, byte_bar, parse_config=as_json)
    finally:
        gc.enable()
    if as_json:
        from marpack.render.console import show

        show(facts)
    else:
        from marpack.render.console import show_page
        from marpack.render.pages import inspection_page

        show_page(inspection_page(facts))
    click.get_current_context().exit(_exit_code(facts))


def _exit_code(facts: Inspection) -> ExitCode:
    from marpack.findings import Severity
    from marpack.inspection.members import DISTRUSTED, UNFIT

    errors = [finding for finding in facts.findings if finding.severity is Severity.ERROR]
    if any(finding.code in UNFIT | DISTRUSTED for finding in errors):
        return ExitCode.ARCHIVE
    return ExitCode.SHORT if errors else ExitCode.OK


@command(DiffOptions)
@json_option
def diff(options: DiffOptions, *, as_json: bool) -> None:
    """Compare two archives: manifest, members, config, labels and every number of the tensors.

    \b
    Examples:
      marpack diff digits-1.0.mar digits-1.1.mar          the changes of a release
      marpack diff https://host/digits.mar . --json       a served archive and this project's

    A and B are each a .mar, a .tar.gz, a model folder, an address (https, s3, oci), or a project folder. The exit code
    is 0 if they are the same, and 1 if they differ.
    """
    from marpack.render.console import byte_bar

    found = operations.diff(options, byte_bar)
    if as_json:
        from marpack.render.console import show

        show(found)
    else:
        from marpack.render.console import show_page
        from marpack.render.pages import diff_page

        show_page(diff_page(found))
    click.get_current_context().exit(ExitCode.OK if found.same else ExitCode.SHORT)


@command(UnpackOptions)
@json_option
def unpack(options: UnpackOptions, *, as_json: bool) -> None:
    """Extract an archive into a new folder.

    \b
    Examples:
      marpack unpack digits.mar                            into digits/
      marpack unpack digits.mar -d look --only '*.py' --only MAR-INF

    SOURCE is a .mar, a .tar.gz, a model folder or an address (https, s3, oci). Unsafe names, links, decompression bombs
    and damaged bytes are refused with exit code 3 before the folder appears. Existing files are not overwritten.
    """
    from marpack.render.console import byte_bar, show, show_page
    from marpack.render.pages import unpacked_page

    unpacked = operations.unpack(options, byte_bar)
    if as_json:
        show(unpacked)
    else:
        show_page(unpacked_page(unpacked))


@command(ExportOptions)
@json_option
def export(options: ExportOptions, *, as_json: bool) -> None:
    """Export an archive for Docker, KServe, SageMaker or Ray Serve.

    \b
    Examples:
      marpack export digits.mar --to docker                a Dockerfile and all files of the image
      marpack export . --to docker --device cuda -o gpu    the project in this folder
      marpack export digits.mar --to ray-serve             an application for Ray Serve

    SOURCE is a .mar, a .tar.gz or a project folder. Without it, marpack exports the project in this folder. No part of
    the archive is run. The same archive, options and versions give the same bytes. Findings name the features that the
    platform does not support.
    """
    from marpack.render.console import show, show_page
    from marpack.render.pages import exported_page

    written = operations.export(options, _bar)
    if as_json:
        show(written)
    else:
        show_page(exported_page(written))


def _bar(what: str, total: int) -> AbstractContextManager[Progress | None]:
    """Show the progress of bytes, or only that something happens if their number is unknown."""
    from marpack.render.console import byte_bar, waiting

    return byte_bar(what, total) if total else waiting(what)
