"""The static checks on a plan and its output, before a byte is written, and the plan that they let pass."""

import ast
import io
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive.protocol import MANIFEST_NAME
from marpack.errors import MarpackError, OutputExistsError, ProjectError, UsageError
from marpack.findings import Code, Finding, Severity
from marpack.inspection.lint.linting import lint
from marpack.inspection.lint.source import Broken, evaluate_condition, parse, texts_in
from marpack.project.plan import Format, Plan, PlannedMember
from marpack.protocol.targets import Target
from marpack.torchserve.server_modules import HandlerName

# A place in the archive (a member, `member:line`, a key of the manifest) → the author's place for it.
Places = Mapping[str, str]

SUFFIXES = {Format.DEFAULT: ".mar", Format.ZIP_STORE: ".mar", Format.TGZ: ".tar.gz", Format.NO_ARCHIVE: ""}


class PlanView:
    """A plan's members by name (the MemberView of `marpack.inspection.lint`)."""

    def __init__(self, plan: Plan) -> None:
        self.entries = {member.name: member.source for member in plan.members}

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading; raises KeyError, OSError."""
        source = self.entries[name]
        return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


class PlanResult(Struct, frozen=True, kw_only=True):
    """A plan with its findings."""

    plan: Plan
    findings: tuple[Finding, ...] = ()  # none of them an error
    modules: tuple[str, ...] = ()  # members packed only because the handler or model file imports them


def finalize_plan(
    plan: Plan,
    found: Iterable[Finding],
    places: Places,
    *,
    strict: bool,
    check: bool,
    home: Path | None = None,
    modules: tuple[str, ...] = (),
) -> PlanResult:
    """Check a plan and its output, and return the plan if nothing stops it.

    Args:
        plan: The plan.
        found: The findings so far, errors among them.
        places: The author's places for members and keys of the manifest.
        strict: Warnings stop the build too.
        check: Check the content of the members (the preflight).
        home: The project's folder, if there is one.
        modules: Members packed only because the handler or model file imports them.

    Raises ProjectError with every finding that stops the build, OutputExistsError.
    """
    findings = list(found)
    if check:
        findings += preflight(plan, places, findings, home)
    exists = None
    try:
        check_output(plan.output, plan.format, plan.members, replace=plan.replace)
    except OutputExistsError as error:
        exists = error
    except ProjectError as error:
        findings.append(as_finding(error, codes.OUTPUT))
    if strict:
        findings = [replace(f, severity=Severity.ERROR) if f.severity is Severity.WARNING else f for f in findings]
    count = sum(finding.severity is Severity.ERROR for finding in findings)
    if exists and not count:
        raise exists
    if count:
        what = f"nothing was built: there {'are' if count > 1 else 'is'} {count} {'errors' if count > 1 else 'error'}"
        raise ProjectError(what, findings=tuple(f for f in findings if f.severity is not Severity.NOTE))
    return PlanResult(plan=plan, findings=tuple(findings), modules=modules)


def as_finding(error: MarpackError, code: Code) -> Finding:
    """Return an error as one finding among others."""
    return code.at(error.where, hint=error.hint, message=error.what)


def preflight(plan: Plan, places: Places, found: Iterable[Finding], home: Path | None = None) -> list[Finding]:
    """Return the findings about the members' content, except at places with an error already."""
    wrong = {finding.where for finding in found if finding.severity is Severity.ERROR}
    checked = lint(PlanView(plan), plan.manifest, target=Target(plan.target), vendored=plan.vendored)
    reported = [replace(finding, where=_author_place(finding.where, places)) for finding in checked]
    reported += _unpacked_files(plan, home)
    return [finding for finding in reported if finding.where not in wrong]


def _author_place(where: str | None, places: Places) -> str | None:
    """Return the author's place for a place in the archive: the longest known part of it, translated."""
    known, rest = where or "", ""
    while known and known not in places:
        known, colon, last = known.rpartition(":")
        rest = f"{colon}{last}{rest}"
    return f"{places[known]}{rest}" if known else where


def _unpacked_files(plan: Plan, home: Path | None) -> Iterator[Finding]:
    """Yield the files beside the handler or in the project that its source names, and that are not packed."""
    handler = f"{HandlerName.parse(plan.manifest.model.handler).path.removesuffix('.py')}.py"
    source = next((member.source for member in plan.members if member.name == handler), b"")
    if isinstance(source, bytes):
        return
    packed = {PurePosixPath(member.name).name for member in plan.members}
    for line, name in sorted(_named_files(source, {source.parent, home or source.parent})):
        if PurePosixPath(name).name not in packed:
            message = f"it names {name}, which exists and is not packed"
            hint = f"if the model needs it, pack it: files: [{name}] in marpack.yaml, or --extra-files"
            where = f"{source}:{line}"
            yield codes.FILE_NOT_PACKED.at(where, hint=hint, message=message)


def _named_files(source: Path, folders: Collection[Path]) -> Iterator[tuple[int, str]]:
    """Yield the files below some folders that a Python file names by their paths, behind the first line of each."""
    try:
        tree = parse(source.read_bytes())
    except OSError:
        return
    if isinstance(tree, Broken):
        return
    run = [node for node in tree.body if not (isinstance(node, ast.If) and evaluate_condition(node.test) is False)]
    texts = sorted((text for node in run for text in texts_in(node)), key=lambda text: -text.lineno)
    lines = {str(text.value).strip("/"): text.lineno for text in texts}
    # A Path would raise for long texts; folders are joined: os.path.join(model_dir, "assets", "vocab.json").
    inner = [name for name in lines if name.strip(".") and any(os.path.isdir(folder / name) for folder in folders)]  # noqa: PTH112
    for name, line in lines.items():
        if PurePosixPath(name).suffix not in ("", ".py") and ".." not in name:
            ways = (name, *(f"{folder}/{name}" for folder in inner if ".." not in folder))
            yield from ((line, way) for way in ways if any(os.path.isfile(each / way) for each in folders))  # noqa: PTH113


def choose_output(output: str | Path | None, chosen: Format | None, *, name: str, folder: Path) -> tuple[Path, Format]:
    """Return the archive's path and format, each from the other where only one is given.

    Args:
        output: A path for the archive, or a folder (existing, or with a final slash) to put it in.
        chosen: The requested format.
        name: The model's name, which the archive is named after.
        folder: The archive's folder without an output.

    Raises UsageError when the two contradict each other.
    """
    form = chosen or Format.DEFAULT
    if output is None:
        return folder / f"{name}{SUFFIXES[form]}", form
    path, text = Path(output), str(output)
    if text.endswith(("/", os.sep)) or (path.is_dir() and not path.name.endswith((".mar", ".tar.gz"))):
        return (path if form is Format.NO_ARCHIVE else path / f"{name}{SUFFIXES[form]}"), form
    form = chosen or (Format.TGZ if path.name.endswith(".tar.gz") else Format.DEFAULT)
    suffix = SUFFIXES[form]
    if not path.name.endswith(suffix) or (not suffix and path.suffix == ".mar"):
        what = f"the output of format {form} ends in {suffix or 'no suffix'}, not {path.name}"
        hint = "name a .mar, a .tar.gz or a folder"
        raise UsageError(what, where=f"--output {text}", hint=hint, code="wrong-suffix")
    return path, form


def check_output(output: Path, form: Format, members: Iterable[PlannedMember], *, replace: bool) -> None:
    """Refuse an output that would overwrite other files.

    Raises OutputExistsError if it exists and may not be replaced, ProjectError if an archive cannot be there.
    """
    where = str(output)
    blocker = next((parent for parent in output.parents if parent.exists()), None)
    if blocker is not None and not blocker.is_dir():
        raise ProjectError(f"{blocker} is a file, so nothing can be written below it", where=where)
    if not os.path.lexists(output):
        return
    if not replace:
        raise OutputExistsError("the output exists", where=where, hint="--force replaces it")
    sources = [member.source for member in members if isinstance(member.source, Path)]
    if form is Format.NO_ARCHIVE:
        _check_folder(output, sources)
    elif output.is_dir():
        raise ProjectError("the output is a folder; an archive is a file", where=where, hint=f"rmdir {output}")
    elif not output.is_file():
        raise ProjectError("the output is not a regular file", where=where)
    elif any(source.samefile(output) for source in sources):
        raise ProjectError("the output would overwrite a file that goes into it", where=where)


def _check_folder(output: Path, sources: list[Path]) -> None:
    """Refuse to replace a folder that is not a model folder, or that contains sources of the new one."""
    where = str(output)
    if not output.is_dir():
        raise ProjectError("the output is a file; this format needs a folder", where=where)
    inside = next((source for source in sources if source.resolve().is_relative_to(output.resolve())), None)
    if inside is not None:
        what = f"the output folder contains {inside}, which goes into the archive"
        raise ProjectError(what, where=where, hint="choose another output")
    if any(output.iterdir()) and not (output / MANIFEST_NAME).is_file():
        what = f"the folder is not a model folder (it has no {MANIFEST_NAME}), so it is not replaced"
        raise ProjectError(what, where=where, hint="choose another output, or remove the folder")
