"""The command `marpack check`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marpack.errors import ArchiveError, ExitCode, UsageError

if TYPE_CHECKING:
    from marpack.findings import Severity
    from marpack.gate.subject import Subject
    from marpack.gate.verdicts import GateReport
    from marpack.project.source import Resolved

_HELP = """Say whether an archive may be deployed.

\b
Examples:
  marpack check                              the project in this folder
  marpack check digits.mar --junit check.xml

SOURCE is a .mar, a .tar.gz, a model folder or a project, whose archive is built first when it is missing or stale.
Integrity, static findings and pickles come first; only an archive that passes them is loaded. Then its packed samples
are replayed: alone, in batches, in other forms and orders. The exit code is 0 if it may be deployed, else 1.
"""


@click.command(help=_HELP)
@click.argument("source", required=False)
@click.option("--only", multiple=True, metavar="CHECK", help="Run only this check (several times: these).")
@click.option("--skip", multiple=True, metavar="CHECK", help="Leave this check out.")
@click.option("--target", type=click.Choice(["torchserve", "marpack"]), help="Whose behaviour counts [the project's].")
@click.option("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N [auto].")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=120.0, help="Seconds for a batch [120].")
@click.option("--trust-pickle", is_flag=True, help="Load weights that need more than weights_only allows.")
@click.option("--junit", metavar="FILE", help="Also write the verdict as JUnit XML.")
@click.option("--sarif", metavar="FILE", help="Also write the findings as SARIF.")
@click.option("--json", "as_json", is_flag=True, help="The verdict as JSON on stdout.")
def check(source: str | None, **options: Any) -> None:  # Any: click gives each option its own type
    """Say whether an archive may be deployed."""
    from marpack.gate.check import check as examine
    from marpack.render.check import show_checked, show_verdict
    from marpack.render.json import show

    tell = None if options["as_json"] else show_checked
    subject = _subject(source, options)
    with subject:
        report = examine(
            subject,
            only=options["only"],
            skip=options["skip"],
            severities=_severities(subject.resolved),
            on_checked=tell,
        )
    _write(report, options)
    if options["as_json"]:
        show(report)
    else:
        show_verdict(report)
    click.get_current_context().exit(ExitCode.OK if report.deployable else ExitCode.SHORT)


def _subject(source: str | None, options: dict[str, Any]) -> Subject:
    from marpack.archive.cache import Cache
    from marpack.archive.reader import open_archive
    from marpack.errors import ManifestError
    from marpack.gate.devices import Device
    from marpack.gate.serving import target_of
    from marpack.gate.subject import Subject
    from marpack.project.source import resolve
    from marpack.runtime.messages import Load
    from marpack.runtime.targets import Target
    from marpack.worker.pool import Settings

    device = Device.parse(options["device"])
    resolved = resolve(source)
    folder = os.environ.get("MARPACK_CACHE_DIR")
    archive = open_archive(resolved.path, cache=Cache(Path(folder)) if folder else None)
    try:
        target = Target(options["target"]) if options["target"] else target_of(resolved, archive)
    except (ManifestError, ArchiveError):
        target = Target.TORCHSERVE  # what is wrong with the archive is for the checks to say
    load = Load(model_dir="", target=target, gpu_id=device.gpu_id(), trust_pickle=options["trust_pickle"])
    settings = Settings(timeout=options["timeout"], environment=device.environment())
    return Subject(resolved, archive, load, settings)


def _severities(resolved: Resolved) -> dict[str, Severity]:
    return dict(resolved.project.checks) if resolved.project is not None else {}


def _write(report: GateReport, options: dict[str, Any]) -> None:
    from marpack.render import junit, sarif

    for name, render in (("junit", junit.write), ("sarif", sarif.write)):
        if options[name]:
            try:
                render(report, Path(options[name]))
            except OSError as error:
                raise UsageError(f"the report cannot be written: {error.strerror}", where=options[name]) from error
