"""The original archiver's command line → the Plan of the archive that it would have made (contract §1)."""

import os
import sys
from pathlib import Path

from msgspec import Struct

from marpack.project.members import EntryPoint, MemberCollector, is_pattern, matches, tree
from marpack.project.output_path import SUFFIXES, plain_refusals
from marpack.project.plan import Format, Plan, Role
from marpack.project.preflight import PlanResult, finalize_plan, make_manifest, manifest_places
from marpack.torchserve.stock import HandlerName

_LSP_BUILT_INS = ("BaseHandler", "TorchScriptHandler")
# In the order that `manifest_places` has.
_MANIFEST_FLAGS = (
    *("--model-name", "--version", "--handler", "--serialized-file"),
    *("--model-file", "--requirements-file", "--config-file", "--runtime"),
)
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
    gathering.check_name(flags.model_name, where="--model-name")
    gathering.add_handler(flags.handler, handler_file(flags.handler, flags.runtime), where="--handler")
    _add_named(flags, gathering)
    for entry in (flags.extra_files or "").split(","):
        _add_extra(entry.strip(), gathering)
    plan = Plan(
        manifest=make_manifest(
            name=flags.model_name,
            version=flags.version or None,
            handler=os.path.basename(flags.handler),  # noqa: PTH119 - of `a/b.py:function`, which is no path
            runtime=flags.runtime,
            created_on=created_on,
            files=(flags.serialized_file, flags.model_file, flags.requirements_file, flags.config_file),
        ),
        members=gathering.members(),
        output=Path(flags.export_path) / f"{flags.model_name}{SUFFIXES[form]}",
        format=form,
        replace=replace,
    )
    places = manifest_places(_MANIFEST_FLAGS) | gathering.places
    return finalize_plan(plan, gathering.findings, places, strict=strict, check=check)


def handler_file(handler: str, runtime: str) -> Path | None:
    """Return the file that `--handler` names, or None for a built-in."""
    if runtime != "LSP":
        return EntryPoint.parse(handler, Path()).file
    return None if handler in _LSP_BUILT_INS else Path(f"{HandlerName.parse(handler).path}{_LIBRARY_SUFFIX}")


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
