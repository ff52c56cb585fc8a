"""The original archiver's command line → the Plan of the archive that it would have made (contract §1)."""

import os
import sys
from pathlib import Path

from msgspec import Struct

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.archive.names import MODEL_NAME
from marpack.project.members import OFFERED, MemberCollector, is_pattern, matches, near_built_in, tree
from marpack.project.output_path import SUFFIXES, plain_refusals
from marpack.project.plan import Format, Plan, Role
from marpack.project.preflight import PlanResult, finalize_plan, manifest_place
from marpack.torchserve.stock import HandlerName
from marpack.version import __version__

_LSP_BUILT_INS = ("BaseHandler", "TorchScriptHandler")
_MANIFEST_FLAGS = {
    "runtime": "--runtime",
    "model.modelName": "--model-name",
    "model.modelVersion": "--version",
    "model.handler": "--handler",
    "model.serializedFile": "--serialized-file",
    "model.modelFile": "--model-file",
    "model.requirementsFile": "--requirements-file",
    "model.configFile": "--config-file",
}
_LIBRARY_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


class Flags(Struct, frozen=True, kw_only=True):
    """The original archiver's arguments, as they were given."""

    model_name: str
    version: str
    handler: str
    serialized_file: str | None = None
    model_file: str | None = None
    extra_files: str | None = None  # separated by commas
    runtime: str = "python"
    export_path: str = "."
    requirements_file: str | None = None
    config_file: str | None = None


@plain_refusals()
def plan_flags(
    flags: Flags,
    *,
    form: Format = Format.DEFAULT,
    replace: bool = False,
    created_on: str | None = None,
    strict: bool = False,
    check: bool = True,
) -> PlanResult:
    """Plan the archive that the original archiver makes of the same arguments: same members, same manifest.

    Args:
        flags: The arguments.
        form: The archive's format.
        replace: Whether an existing output may be replaced (`--force`).
        created_on: The manifest's `createdOn`, as dd/mm/yyyy HH:MM:SS; left out if None.
        strict: Whether warnings stop the build too.
        check: Whether the members' content is looked into (the preflight).

    Raises ProjectError holding every finding that stops the build; OutputExistsError.
    """
    gathering = MemberCollector()
    _check_name(flags, gathering)
    _add_handler(flags, gathering)
    _add_named(flags, gathering)
    for entry in (flags.extra_files or "").split(","):
        _add_extra(entry.strip(), gathering)
    plan = Plan(
        manifest=_manifest(flags, created_on),
        members=gathering.members(),
        output=Path(flags.export_path) / f"{flags.model_name}{SUFFIXES[form]}",
        format=form,
        replace=replace,
    )
    planned = PlanResult(plan=plan, findings=tuple(gathering.findings))
    places = {manifest_place(key): flag for key, flag in _MANIFEST_FLAGS.items()}
    return finalize_plan(planned, places | gathering.places, strict=strict, check=check)


def _check_name(flags: Flags, gathering: MemberCollector) -> None:
    if not MODEL_NAME.fullmatch(flags.model_name):
        hint = "it begins with a letter or digit and goes on with those, '_', '-' and '.'"
        gathering.error("model-name", f"'{flags.model_name}' is no model name", "--model-name", hint)


def _add_handler(flags: Flags, gathering: MemberCollector) -> None:
    file = handler_file(flags.handler, flags.runtime)
    if file is None:
        return
    near = near_built_in(flags.handler)
    if near and not file.exists():
        message = f"{flags.handler} is neither a built-in handler nor a file"
        gathering.error("missing-file", message, "--handler", f"did you mean {near}?")
        return
    gathering.add(file.name, file, where="--handler", role=Role.FILE)


def handler_file(handler: str, runtime: str) -> Path | None:
    """Return the file that `--handler` names, or None for a built-in."""
    path = HandlerName.parse(handler).path
    if runtime == "LSP":
        return None if handler in _LSP_BUILT_INS else Path(f"{path}{_LIBRARY_SUFFIX}")
    if handler in OFFERED:
        return None
    return Path(path if path.endswith(".py") else f"{path}.py")


def _add_named(flags: Flags, gathering: MemberCollector) -> None:
    """Take the files whose base names the manifest gives."""
    named = {
        "--serialized-file": (flags.serialized_file, Role.WEIGHTS),
        "--model-file": (flags.model_file, Role.FILE),
        "--requirements-file": (flags.requirements_file, Role.FILE),
        "--config-file": (flags.config_file, Role.FILE),
    }
    for flag, (text, role) in named.items():
        if text:
            gathering.add(Path(text).name, Path(text), where=flag, role=role)


def _add_extra(entry: str, gathering: MemberCollector) -> None:
    """Take one of the extra files: a file by its base name, a folder by its contents, a glob by what it matches."""
    if not entry:
        return
    where = "--extra-files"
    found = matches(entry, Path())
    if not found and is_pattern(entry):
        gathering.warning("glob-without-match", f"{entry} matches no file", where)
        return
    for path in map(Path, found or [entry]):
        if path.is_dir():
            gathering.add_tree("", tree(path, hidden_files=True), folder=path, home=path, where=where)
        else:
            gathering.add(path.name, path, where=where)


def _manifest(flags: Flags, created_on: str | None) -> Manifest:
    model = ManifestModel(
        name=flags.model_name,
        version=flags.version or None,
        handler=os.path.basename(flags.handler),  # noqa: PTH119 - of `a/b.py:function`, which is no path
        serialized_file=_base(flags.serialized_file),
        model_file=_base(flags.model_file),
        requirements_file=_base(flags.requirements_file),
        config_file=_base(flags.config_file),
    )
    return Manifest(
        model=model, runtime=flags.runtime, created_on=created_on, archiver_version=f"marpack {__version__}"
    )


def _base(path: str | None) -> str | None:
    return Path(path).name if path else None
