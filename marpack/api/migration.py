"""The operation of `marpack migrate`: a deployment of TorchServe becomes projects, a start line and a report."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec.structs import replace

from marpack.api import operations
from marpack.api.declaring import valid
from marpack.api.options import BuildOptions, ExportOptions, InitOptions
from marpack.api.session_options import CheckOptions
from marpack.archive.staging import staged_folder
from marpack.errors import MarpackError, UsageError, convert_os_errors
from marpack.migrating.deployment import Deployment, Outcome, Setting
from marpack.render.migrate import Migration, MovedModel

if TYPE_CHECKING:
    from marpack.api.options import MigrateOptions, Platform
    from marpack.archive.protocol import Bar
    from marpack.findings import Finding
    from marpack.gate.verdicts import GateReport
    from marpack.migrating.deployment import DeployedModel

_SCRIPT, _REPORT, _CONFIG, _STORE = "marpack-serve.sh", "MIGRATION.md", "config.properties", "model-store"


def migrate(options: MigrateOptions, bar: Bar) -> Migration:
    """Write the projects, marpack-serve.sh, config.properties and MIGRATION.md of a deployment into a new folder.

    A model that cannot be moved is in the result, with the reason. Raises UsageError for a source that is not a
    deployment and for an output that is not a new or empty folder.
    """
    samples = None if options.samples is None else Path(options.samples)
    if samples is not None and not options.check:
        raise UsageError("--samples requires --check", hint="Add --check.")
    if samples is not None and not samples.is_dir():
        raise UsageError(
            "the folder does not exist",
            where=f"--samples {samples}",
            hint="Name the folder that has a folder for each model.",
        )
    deployment = Deployment(Path(options.source))
    target = Path(options.output or "migrated")
    is_empty = target.is_dir() and not any(target.iterdir())
    with (
        convert_os_errors(UsageError, "the output cannot be written", where=str(target)),
        staged_folder(target, replace=is_empty) as folder,
    ):
        models: list[MovedModel] = []
        for number, model in enumerate(deployment.models):
            moved = _move(model, folder, f".model-{number}", bar)
            if options.check and moved.problem is None:
                moved = _check(moved, folder, samples)
            if options.to and moved.project and moved.problem is None:
                moved = _export(moved, folder, options.to, bar)
            models.append(moved)
        found = Migration(
            source=os.fspath(options.source),
            kind=deployment.kind,
            folder=str(target),
            models=tuple(models),
            settings=(*deployment.settings, *_defaults(deployment)),
            command=_command(deployment, models),
        )
        _write(found, deployment, folder)
    return found


def _move(model: DeployedModel, folder: Path, temporary: str, bar: Bar) -> MovedModel:
    """Write the project of one model."""
    label = model.name or model.file
    if model.missing or (model.source is None and not model.flags):
        what = f"{model.missing or 'the archive'} is not in the deployment's folder"
        return MovedModel(name=label, archive=model.file, problem=what, hint="Copy it there, and migrate again.")
    try:
        with ExitStack() as stack, bar(f"moving {model.file}", 0):
            source = model.source
            if source is None:  # the deployment's image builds it
                built = stack.enter_context(TemporaryDirectory(prefix="marpack-"))
                given = replace(BuildOptions(export_path=built), **model.flags)
                source = Path(operations.pack(operations.plan_build(valid(given), bar), bar).path)
            report = operations.init(InitOptions(folder / temporary, from_=source))
        project, number = report.name, 1
        while (folder / project).exists():
            number += 1
            project = f"{report.name}-{number}"
        (folder / temporary).rename(folder / project)
        plan = operations.plan_build(BuildOptions(str(folder / project)), bar)
    except MarpackError as error:
        findings = tuple(_relative(each, folder) for each in error.findings)
        return MovedModel(name=label, archive=model.file, problem=error.what, hint=error.hint, findings=findings)
    return MovedModel(
        name=model.name or report.name,
        archive=model.file,
        project=project,
        at_start=model.at_start,
        findings=tuple(_relative(each, folder) for each in (*report.findings, *plan.findings)),
    )


def _relative(finding: Finding, folder: Path) -> Finding:
    return replace(finding, where=finding.where and finding.where.replace(f"{folder}{os.sep}", ""))


def _check(model: MovedModel, folder: Path, samples: Path | None) -> MovedModel:
    """Check one project, with its packed samples and the inputs of its folder in `samples`."""
    from marpack.api.checking import Attester, check
    from marpack.gate.candidate import held_inputs
    from marpack.gate.verdicts import GateVerdict
    from marpack.runner.inputs import RequestDefaults, file_inputs, paths_of

    own = samples / model.name if samples else None
    try:
        inputs = held_inputs(file_inputs(paths_of([str(own)]), RequestDefaults())) if own and own.is_dir() else ()
        attester = Attester(None, None, option="", isolated=False)
        report: GateReport = check(CheckOptions(source=str(folder / model.project)), inputs, attester)
    except MarpackError as error:
        return replace(model, problem=error.what, hint=error.hint)
    failed = "; ".join(f"{each.name}: {each.reason}" for each in report.checks if each.blocks)
    is_refused = report.verdict is GateVerdict.REFUSED
    return replace(model, verdict=report.verdict, problem=failed if is_refused else None)


def _export(model: MovedModel, folder: Path, platform: Platform, bar: Bar) -> MovedModel:
    output = folder / f"{model.project}-{platform}"
    try:
        operations.export(ExportOptions(str(folder / model.project), to=platform, output=str(output)), bar)
    except MarpackError as error:
        return replace(model, problem=f"it cannot be exported: {error.what}", hint=error.hint)
    return replace(model, exported=output.name)


def _defaults(deployment: Deployment) -> list[Setting]:
    """Return the defaults of TorchServe that differ from those of marpack serve."""
    given = {each.name for each in deployment.settings}
    found = []
    if "default_workers_per_model" not in given:
        reason = "marpack serve starts one worker per model, TorchServe one per core or GPU; add --workers N"
        found.append(
            Setting(origin="default", name="default_workers_per_model", outcome=Outcome.CHANGED, reason=reason)
        )
    if not given & {"disable_token_authorization", "--disable-token-auth", "--disable-token"}:
        reason = (
            "TorchServe since 0.11.1 requires tokens by default; add --token key_file.json if its clients send them"
        )
        found.append(
            Setting(origin="default", name="disable_token_authorization", outcome=Outcome.DECISION, reason=reason)
        )
    if any(not each.at_start for each in deployment.models):
        reason = "the other models have projects, and are not loaded at the start"
        found.append(Setting(origin="store", name="models", outcome=Outcome.KEPT, reason=reason))
    return found


def _command(deployment: Deployment, models: list[MovedModel]) -> tuple[str, ...]:
    """Return the words of the start line."""
    sources = [f"{model.name}=./{model.project}" for model in models if model.project and model.at_start]
    options = [*dict.fromkeys(deployment.options)] if "--token" not in deployment.options else deployment.options
    store = ["--model-store", _STORE] if _has_model_api(deployment) else []
    return "marpack", "serve", *sources, *(["--ts-config", _CONFIG] if deployment.config else []), *store, *options


def _has_model_api(deployment: Deployment) -> bool:
    is_set = deployment.config.get("enable_model_api", "").strip().lower() == "true"
    return is_set or "--enable-model-api" in deployment.options


def _write(found: Migration, deployment: Deployment, folder: Path) -> None:
    """Write the files beside the projects."""
    import shutil

    from marpack.render.migrate import render_report

    if deployment.config:
        text = "".join(f"{key}={_escaped(value)}\n" for key, value in deployment.config.items())
        (folder / _CONFIG).write_text(text, encoding="latin-1")
    for name, source in deployment.files.items():
        shutil.copyfile(source, folder / name)
    lines = ["#!/bin/sh", "# Serves the migrated models. Your arguments are added to those of marpack serve.", "set -e"]
    lines += ['cd "$(dirname "$0")"', *(f"export {k}={shlex.quote(v)}" for k, v in deployment.environment.items())]
    if _has_model_api(deployment):
        projects = [f"./{model.project}" for model in found.models if model.project]
        lines += [f"mkdir -p {_STORE}"]
        lines += [f"marpack build {shlex.quote(each)} -o {_STORE}/" for each in projects]
    lines += [f'exec {shlex.join(found.command)} "$@"', ""]
    (folder / _SCRIPT).write_text("\n".join(lines))
    (folder / _SCRIPT).chmod(0o755)
    (folder / _REPORT).write_text(render_report(found))


def _escaped(text: str) -> str:
    """Return a value as a Java properties file spells it."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    text = "".join(each if each.isprintable() and ord(each) < 256 else f"\\u{ord(each):04x}" for each in text)
    return f"\\{text}" if text.startswith(" ") else text
