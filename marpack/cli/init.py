"""The command `marpack init`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marpack.cli.completion import template_names
from marpack.errors import UsageError

if TYPE_CHECKING:
    from marpack.cli.options import Options
    from marpack.findings import Finding
    from marpack.project.scaffold.placing import WrittenFiles
    from marpack.project.scaffold.proposal import Answers
    from marpack.render.build import InitReport

# What describes a project to be, and says nothing where the project is an archive's.
_DESCRIBING = ("template", "name", "version", "weights", "model_file", "handler", "labels", "target")


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
    from marpack.render.build import show_init
    from marpack.render.output import show

    if archive is not None:
        report = _from_archive(archive, folder, options)
    else:
        report = _from_template(folder or Path(), options, quiet=as_json)
    if as_json:
        show(report)
    else:
        show_init(report)


def _from_archive(archive: str, folder: Path | None, options: Options) -> InitReport:
    from marpack.archive.reader import open_archive
    from marpack.project.scaffold.placing import new_folder, place
    from marpack.project.scaffold.reclaim import reclaim

    given = [name for name in _DESCRIBING if options[name] is not None]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"--from takes everything from the archive, so {flag} says nothing", hint=f"leave {flag} out")
    with open_archive(archive) as opened:
        found = reclaim(opened)
        hint = f"say so if that is where the project goes: marpack init {found.name} --from …"
        target = _checked(folder) if folder else new_folder(Path(found.name), hint=hint)
        placed = place(target, found.files, replace=options["force"])
    return _report(target, found.name, placed, found.findings)


def _from_template(folder: Path, options: Options, *, quiet: bool) -> InitReport:
    from marpack.project.scaffold.placing import place
    from marpack.project.scaffold.proposal import assemble, propose
    from marpack.project.scaffold.survey import survey
    from marpack.project.schema import FILE_NAME
    from marpack.render.build import show_survey

    found = survey(_checked(folder))
    proposal = propose(folder, found, _answers(folder, options))
    if not quiet:
        show_survey(found, proposal)
    files = assemble(proposal, for_new=options["force"] or FILE_NAME not in found.names)
    placed = place(folder, files, replace=options["force"])
    return _report(folder, proposal.name, placed, proposal.findings, template=proposal.template.name)


def _report(
    folder: Path, name: str, placed: WrittenFiles, findings: tuple[Finding, ...], template: str | None = None
) -> InitReport:
    from msgspec.structs import asdict

    from marpack.render.build import InitReport

    return InitReport(folder=str(folder), name=name, template=template, findings=findings, **asdict(placed))


def _checked(folder: Path) -> Path:
    if folder.exists() and not folder.is_dir():
        raise UsageError("a project is a folder, and this is a file", where=str(folder), hint="name another folder")
    return folder


def _answers(folder: Path, options: Options) -> Answers:
    from marpack.project.scaffold.proposal import Answers
    from marpack.torchserve.targets import Target

    return Answers(
        name=options["name"],
        version=options["version"] or "1.0",
        template=options["template"],
        handler=options["handler"],
        weights=_inside(folder, options["weights"]),
        model_file=_inside(folder, options["model_file"]),
        labels=_inside(folder, options["labels"]),
        target=Target(options["target"]) if options["target"] else None,
    )


def _inside(folder: Path, path: Path | None) -> str | None:
    """Return a path as marpack.yaml names it; one that is not in the project's folder may be given from here."""
    if path is None or (folder / path).exists():
        return path.as_posix() if path else None
    return Path(os.path.relpath(path, folder)).as_posix()
