"""The operation of `marpack migrate`: a deployment of TorchServe becomes projects, a start line and a report."""

import os
import re
import shlex
import shutil
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from marpack.api import operations
from marpack.api.declaring import Name, valid
from marpack.api.options import BuildOptions, ExportOptions, InitOptions, MigrateOptions
from marpack.archive.protocol import Bar
from marpack.archive.staging import staged_folder
from marpack.errors import MarpackError, UsageError, convert_os_errors, printable
from marpack.exporting.image import render
from marpack.migrating.deployment import DeployedModel, Deployment
from marpack.render.migrate import Migration, MovedModel


def migrate(options: MigrateOptions, bar: Bar) -> Migration:
    """Write the projects, marpack-serve.sh, config.properties and MIGRATION.md of a deployment into a new folder.

    A model that cannot be moved is in the result, with the reason. Raises UsageError for a source that is not a
    deployment and for an output that is not a new or empty folder.
    """
    if options.samples is not None and not options.check:
        raise UsageError("--samples requires --check", hint="Add --check.")
    if options.samples is not None and not Path(options.samples).is_dir():
        hint = "Name the folder that has a folder for each model."
        raise UsageError("the folder does not exist", where=f"--samples {options.samples}", hint=hint)
    deployment = Deployment(Path(options.source))
    target = Path(options.output or "migrated")
    with (
        convert_os_errors(UsageError, "the output cannot be written", where=str(target)),
        staged_folder(target, replace=target.is_dir() and not any(target.iterdir())) as folder,
    ):
        models = tuple(_move(model, folder, options, bar) for model in deployment.models)
        sources = [f"{model.name}=./{model.project}" for model in models if model.project and model.at_start]
        config = ["--ts-config", "config.properties"] if deployment.config else []
        found = Migration(
            source=os.fspath(options.source),
            kind=deployment.kind,
            folder=str(target),
            models=models,
            settings=tuple(deployment.settings),
            outside=tuple(deployment.outside),
            command=("marpack", "serve", *sources, *config, *deployment.options),
        )
        if deployment.config:
            lines = (f"{key}={_escaped(value)}\n" for key, value in deployment.config.items())
            (folder / "config.properties").write_text("".join(lines), encoding="latin-1")
        if deployment.metrics is not None:
            shutil.copyfile(deployment.metrics, folder / "metrics.yaml")
        command, environment = shlex.join(found.command), deployment.environment
        script = render("marpack-serve.sh.j2", found=found, command=command, environment=environment)
        (folder / "marpack-serve.sh").write_bytes(script)
        (folder / "marpack-serve.sh").chmod(0o755)
        (folder / "MIGRATION.md").write_bytes(render("migration.md.j2", found=found, command=printable(command)))
    return found


def _move(model: DeployedModel, folder: Path, options: MigrateOptions, bar: Bar) -> MovedModel:
    """Write the project of one model, and with the options check and export it."""
    moved = MovedModel(name=model.name or model.file, archive=model.file, at_start=model.at_start)
    if model.missing:
        what = f"{model.missing} is not in the deployment's folder"
        return replace(moved, problem=what, hint="Copy it there, and migrate again.")
    try:
        with TemporaryDirectory(prefix=".model-", dir=folder) as made, bar(f"moving {model.file}", 0):
            source = model.source
            if source is None:  # the deployment builds it
                given = replace(BuildOptions(export_path=made), **model.flags)
                source = Path(operations.pack(operations.plan_build(valid(given), bar), bar).path)
            report = operations.init(InitOptions(Path(made) / "project", from_=source))
            names = chain([report.name], (f"{report.name}-{number}" for number in count(2)))
            project = next(name for name in names if not (folder / name).exists())
            (Path(made) / "project").rename(folder / project)
        path = str(folder / project)
        findings = (*report.findings, *operations.plan_build(BuildOptions(path), bar).findings)
        moved = replace(moved, name=model.name or report.name, project=project, findings=findings)
        if options.check:
            moved = _check(moved, path, options.samples)
        if options.to and moved.problem is None:
            output = f"{path}-{options.to}"
            operations.export(ExportOptions(path, to=options.to, output=output), bar)
            moved = replace(moved, exported=Path(output).name)
    except MarpackError as error:
        moved = replace(moved, problem=error.what, hint=error.hint, findings=(*moved.findings, *error.findings))
    prefix = f"{folder}{os.sep}"
    findings = tuple(replace(each, where=each.where and each.where.replace(prefix, "")) for each in moved.findings)
    return replace(moved, findings=findings)


def _check(model: MovedModel, project: str, samples: Name | None) -> MovedModel:
    """Check one project, with its packed samples and the inputs of its folder in `samples`."""
    from marpack.api.functions import check
    from marpack.gate.verdicts import GateVerdict
    from marpack.runner.inputs import paths_of

    folders = [] if samples is None else [each for each in Path(samples).iterdir() if each.name == model.name]
    report = check(project, inputs=map(Path, paths_of([str(each) for each in folders if each.is_dir()])))
    failed = "; ".join(f"{each.name}: {each.reason}" for each in report.checks if each.blocks)
    return replace(model, verdict=report.verdict, problem=failed if report.verdict is GateVerdict.REFUSED else None)


def _escaped(text: str) -> str:
    """Return a value as a Java properties file spells it."""
    return re.sub(r"^ |[^ -~]", lambda found: f"\\u{ord(found[0]):04x}", text.replace("\\", "\\\\"))
