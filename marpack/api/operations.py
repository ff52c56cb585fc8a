"""The commands that make, inspect and move archives, from their options to their results."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from marpack.archive.protocol import no_progress
from marpack.errors import UsageError, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msgspec import Struct

    from marpack.api.declaring import Name
    from marpack.api.options import (
        BuildOptions,
        DiffOptions,
        ExportOptions,
        InitOptions,
        InspectOptions,
        LimitOptions,
        PullOptions,
        PushOptions,
        UnpackOptions,
    )
    from marpack.archive import oci
    from marpack.archive.cache import Cache
    from marpack.archive.extraction import Unpacked
    from marpack.archive.protocol import Archive, Bar
    from marpack.exporting.export import Exported
    from marpack.findings import Finding
    from marpack.inspection.diff import Diff
    from marpack.inspection.facts import Inspection
    from marpack.project.plan import Built, Format
    from marpack.project.preflight import PlanResult
    from marpack.project.scaffold.folder_scan import FolderScan
    from marpack.project.scaffold.proposal import Answers, Proposal
    from marpack.project.scaffold.write_files import WrittenFiles
    from marpack.project.schema import Project
    from marpack.render.build import BuildReport, InitReport

_Report = TypeVar("_Report", bound="Struct")
# What describes a project to be, and says nothing where the project is an archive's.
_DESCRIBING = ("template", "name", "version", "weights", "model_file", "handler", "labels", "target")
_VENDORING = ("vendor", "vendor_python", "vendor_platform")
_SUFFIXES = (".mar", ".tar.gz", ".tgz", ".zip")


def archive_of(source: Name | None, bar: Bar, *, allow_outside: bool = False) -> str | Path:
    """Return the archive that a SOURCE stands for. Only a project needs the code that builds it."""
    source = None if source is None else os.fspath(source)
    if source is not None and ("://" in source or (Path(source).exists() and not Path(source).is_dir())):
        return source
    from marpack.project.source import resolve

    return resolve(source, bar=bar, cache=cache_of(bar), allow_outside=allow_outside).path


def _open(source: Name | None, options: LimitOptions, bar: Bar, *, whole: bool) -> Archive:
    """Open the archive that a SOURCE stands for; `whole` downloads an archive in a registry to check every byte."""
    from marpack.archive.reader import open_archive

    path = archive_of(source, bar, allow_outside=options.allow_outside)
    return open_archive(path, limits=options.limits, cache=cache_of(bar), whole=whole, bar=bar)


def cache_of(bar: Bar = no_progress) -> Cache:
    """Return the cache of what was fetched and extracted: this user's, unless the environment names another."""
    from marpack.archive.cache import Cache

    folder = os.environ.get("MARPACK_CACHE_DIR")
    return Cache(Path(folder) if folder else None, bar=bar)


def inspect(options: InspectOptions, bar: Bar, *, parse_config: bool) -> Inspection:
    """Return the contents and problems of an archive, and write its SBOM if the options name a file."""
    from marpack.archive.protocol import total_size
    from marpack.inspection import inspect as inspection
    from marpack.inspection.members import is_remote
    from marpack.render.output import expect_writable

    sbom = None if options.sbom is None else os.fspath(options.sbom)
    expect_writable(sbom, option="--sbom")
    with _open(options.source, options, bar, whole=options.verify or sbom is not None) as archive:
        # An SBOM states hashes, which are computed if the archive is on this machine.
        verify = options.verify or (sbom is not None and not is_remote(archive))
        with bar("verifying", total_size(archive) if verify else 0) as progress:
            facts = inspection.inspect(
                archive,
                verify=verify,
                parse_config=parse_config,
                static_checks=True,
                max_opcodes=options.max_opcodes,
                progress=progress,
            )
        if sbom is not None:
            from marpack.api.vouching import write_sbom

            write_sbom(archive, facts, sbom, bar)
    return _as_named(facts, source=options.source)


def _as_named(report: _Report, **sources: Name | None) -> _Report:
    """Return a report that names remote archives by their addresses instead of their cached files."""
    from msgspec.structs import replace

    named = {field: os.fspath(name) for field, name in sources.items() if name is not None}
    elsewhere = {field: shown_source(name) for field, name in named.items() if "://" in name}
    return replace(report, **elsewhere) if elsewhere else report


def shown_source(source: str) -> str:
    """Return a SOURCE as reports name it: an address without what may be secret in it."""
    if "://" not in source:
        return source
    from marpack.archive.addresses import public_address

    return public_address(source)


def diff(options: DiffOptions, bar: Bar) -> Diff:
    """Return the differences between two archives."""
    from marpack.archive.protocol import total_size
    from marpack.inspection import diff as differences

    with (
        _open(options.before, options, bar, whole=options.verify) as old,
        _open(options.after, options, bar, whole=options.verify) as new,
        bar("comparing", total_size(old) + total_size(new) if options.verify else 0) as progress,
    ):
        found = differences.diff(old, new, verify=options.verify, progress=progress)
    return _as_named(found, before=options.before, after=options.after)


def folder_named_after(source: str) -> Path | None:
    """Return the folder that an archive is unpacked into: of its name, in the current one; None where it has none."""
    from marpack.archive.protocol import is_in_registry

    name = (source.partition("#")[0] if "://" in source else source).partition("?")[0].rstrip("/").rpartition("/")[2]
    if is_in_registry(source):  # a file cannot be named after its tag everywhere
        name = name.partition("@")[0].partition(":")[0]
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return None if name in ("", ".", "..") else Path(name)


def unpack(options: UnpackOptions, bar: Bar) -> Unpacked:
    """Extract an archive into a new folder, or nothing of it."""
    from marpack.archive import extraction

    source = os.fspath(options.source)
    folder = folder_named_after(source) if options.directory is None else Path(options.directory)
    if folder is None:
        raise UsageError("no folder can be named after this archive", where=source, hint="name the new folder: -d DIR")
    if "://" not in source and not os.path.lexists(source):
        hint = "name a .mar, a .tar.gz or a model folder"
        raise UsageError("there is no such file or folder", where=source, hint=hint, code="source-not-found")
    with _open(source, options, bar, whole=True) as archive:
        report = extraction.unpack(archive, folder, only=tuple(options.only), replace=options.force, bar=bar)
    return _as_named(report, source=source)


def export(options: ExportOptions, bar: Bar) -> Exported:
    """Write the folder that a platform deploys."""
    from marpack.exporting import export as exporting
    from marpack.exporting.plan import ExportOptions as Asked
    from marpack.project.source import resolve

    asked = Asked(
        device=options.device,
        wheel=_path(options.wheel),
        lock=_path(options.lock),
        resolve=not options.no_lock,
        image=options.image,
        storage_uri=options.storage_uri,
        role=options.role,
    )
    source = None if options.source is None else os.fspath(options.source)
    outside = options.allow_outside
    found = resolve(source, bar=bar, cache=cache_of(bar), trust_url=None, allow_outside=outside)
    return exporting.export(found.path, options.to, _path(options.output), asked, replace=options.force, bar=bar)


def _path(named: Name | None) -> Path | None:
    return None if named is None else Path(named)


def push(options: PushOptions, bar: Bar) -> oci.PushReport:
    """Send an archive to a registry. Both sides are examined before anything is sent."""
    from marpack.archive.addresses import Reference
    from marpack.archive.oci import transfer
    from marpack.archive.oci.session import RegistrySession

    with RegistrySession(Reference.parse(options.reference), plain_http=options.plain_http) as session:
        transfer.check_tag(session.reference)
        attach = tuple(map(Path, options.attach))
        plan = transfer.plan_push(Path(options.source), attach, beside=not options.no_attach, bar=bar)
        return transfer.push(session, plan, bar=bar)


def pull(options: PullOptions, bar: Bar) -> oci.PullReport:
    """Fetch an archive from a registry."""
    from marpack.api.options import limits_of
    from marpack.archive.addresses import Reference
    from marpack.archive.oci import transfer
    from marpack.archive.oci.session import RegistrySession

    output = None if options.output is None else os.fspath(options.output)
    maximum = limits_of(max_size=options.max_size).total
    with RegistrySession(Reference.parse(options.reference), plain_http=options.plain_http) as session:
        attached = not options.no_attached
        return transfer.pull(session, output, replace=options.force, attached=attached, maximum=maximum, bar=bar)


def plan_build(options: BuildOptions, bar: Bar) -> PlanResult:
    """Return the plan of a project, or of the options of torch-model-archiver in its place.

    With `vendor`, the requirements are resolved first and vendor.lock is written.
    """
    from msgspec.structs import replace

    commit = _commit(options.source_commit)
    found = _plan(options, bar)
    return replace(found, plan=replace(found.plan, source_commit=commit))


def _commit(text: str | None) -> str | None:
    """Return a commit as git spells it. Raises UsageError for what is none."""
    if text is None or re.fullmatch(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", text):
        return text and text.lower()
    what = "this is no commit: one has 40 hexadecimal digits, or 64"
    where = f"--source-commit {shortened(text)}".strip()
    raise UsageError(what, where=where, hint="git rev-parse HEAD prints it", code="invalid-commit")


def _plan(options: BuildOptions, bar: Bar) -> PlanResult:
    from marpack.project.plan import Format
    from marpack.project.planning import Flags

    given = [_flag(name) for name in Flags.__struct_fields__ if getattr(options, name) is not None]
    form = Format(options.archive_format) if options.archive_format else None
    created_on = _created_on(os.environ.get("SOURCE_DATE_EPOCH"))
    if given and options.project is not None:
        project = os.fspath(options.project)
        raise UsageError(f"{given[0]} takes a project's place; give {project} or the flags, not both")
    vendoring = next((name for name in _VENDORING if getattr(options, name)), None)
    if vendoring and (given or not options.vendor):
        raise UsageError(f"{_flag(vendoring)} is for {'projects' if given else 'marpack build --vendor'}")
    if given:
        return _plan_flags(options, form or Format.DEFAULT, created_on)
    from marpack.project.load import load_project
    from marpack.project.planning import plan_project

    found, cache = load_project(Path(options.project or ".")), cache_of(bar)
    if options.vendor:
        _vendor(found, options, cache, bar)
    return plan_project(
        found,
        output=None if options.output is None else os.fspath(options.output),
        form=form,
        created_on=created_on,
        strict=options.strict,
        cache=cache,
        bar=bar,
        allow_outside=options.allow_outside,
    )


def _vendor(project: Project, options: BuildOptions, cache: Cache, bar: Bar) -> None:
    """Write a project's vendor.lock; raises UsageError for flags that marpack.yaml leaves no room for."""
    from marpack.project.schema import VendorPlatform, VendorSpec
    from marpack.project.vendoring import make_lock

    python, platform = options.vendor_python, options.vendor_platform
    if project.vendor and (python or platform):
        raise UsageError("marpack.yaml says whom it is for", where=project.place("vendor"), hint="say it in one place")
    given = VendorSpec(python=python or "3.9", platform=VendorPlatform(platform or "linux_x86_64"))
    make_lock(project, project.vendor or given, cache, bar)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _plan_flags(options: BuildOptions, form: Format, created_on: str | None) -> PlanResult:
    """Plan the archive of the options of torch-model-archiver."""
    from marpack.project.planning import Flags, plan_flags

    extra_files = _joined(options.extra_files)
    required = {"model_name": options.model_name, "version": options.version, "handler": options.handler}
    missing = [_flag(name) for name, value in required.items() if value is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} must be given, too", hint="or leave all flags out to build a project"
        )
    if options.output is not None:
        raise UsageError("--output is for projects", hint="give --export-path, the folder for the archive")
    values = {name: getattr(options, name) for name in Flags.__struct_fields__}
    values["extra_files"] = extra_files
    flags = Flags(**{name: value for name, value in values.items() if value is not None})
    return plan_flags(flags, form=form, replace=options.force, created_on=created_on, strict=options.strict)


def _joined(files: Name | Sequence[Name] | None) -> str | None:
    """Return files in the notation of torch-model-archiver; raises UsageError for a name that contains its comma."""
    if files is None or isinstance(files, str | os.PathLike):
        return None if files is None else os.fspath(files)
    names = [os.fspath(name) for name in files]
    torn = next((name for name in names if "," in name), None)
    if torn is not None:
        raise UsageError("a comma separates two files here", where=f"extra_files: {torn}", hint="rename the file")
    return ",".join(names)


def _created_on(epoch: str | None) -> str | None:
    """Return the manifest's createdOn for a SOURCE_DATE_EPOCH, in UTC."""
    from datetime import UTC, datetime

    if not epoch:
        return None
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"SOURCE_DATE_EPOCH is '{epoch}', which is no number of seconds since 1970", code="invalid-source-date"
        ) from None
    return moment.strftime("%d/%m/%Y %H:%M:%S")


def build_report(plan: PlanResult, built: Built) -> BuildReport:
    """Return what is told of a build."""
    from msgspec.structs import asdict

    from marpack.render.build import BuildReport

    known = asdict(built) | {"path": str(built.path), "format": plan.plan.format}
    return BuildReport(**known, modules=plan.modules, findings=plan.findings)


def init(options: InitOptions, on_survey: Callable[[FolderScan, Proposal], object] = lambda *_: None) -> InitReport:
    """Start a project; `on_survey` gets the findings about its folder before anything is written."""
    return _init_from_template(options, on_survey) if options.from_ is None else _init_from_archive(options)


def _init_from_archive(options: InitOptions) -> InitReport:
    """Turn an archive back into the project that rebuilds it."""
    from marpack.archive.protocol import no_progress
    from marpack.archive.reader import open_archive
    from marpack.project.scaffold.from_archive import read_project
    from marpack.project.scaffold.write_files import new_folder, write_files

    given = [name for name in _DESCRIBING if getattr(options, name) is not None]
    if given:
        flag = _flag(given[0])
        raise UsageError(f"--from takes everything from the archive, so {flag} says nothing", hint=f"leave {flag} out")
    assert options.from_ is not None  # noqa: S101 - see init
    with open_archive(os.fspath(options.from_), cache=cache_of(no_progress)) as opened:
        found = read_project(opened)
        hint = f"say so if that is where the project goes: marpack init {found.name} --from …"
        target = _checked(Path(options.folder)) if options.folder else new_folder(Path(found.name), hint=hint)
        placed = write_files(target, found.files, replace=options.force)
    return _init_report(target, found.name, placed, found.findings, generated=found.generated)


def _init_from_template(options: InitOptions, on_survey: Callable[[FolderScan, Proposal], object]) -> InitReport:
    """Start a project around the files in a folder."""
    from marpack.project.scaffold.folder_scan import scan_folder
    from marpack.project.scaffold.proposal import assemble, propose
    from marpack.project.scaffold.write_files import write_files
    from marpack.project.schema import FILE_NAME
    from marpack.runner.process import convert_safetensors

    folder = Path(options.folder or "")
    found = scan_folder(_checked(folder))
    proposal = propose(folder, found, _answers(folder, options))
    on_survey(found, proposal)
    files = assemble(proposal, convert_safetensors, for_new=options.force or FILE_NAME not in found.names)
    placed = write_files(folder, files, replace=options.force)
    generated = tuple(filter(files.__contains__, proposal.samples.brought)) if proposal.samples.stand_ins else ()
    template = proposal.template.name
    return _init_report(folder, proposal.name, placed, proposal.findings, template=template, generated=generated)


def _init_report(
    folder: Path,
    name: str,
    placed: WrittenFiles,
    findings: tuple[Finding, ...],
    *,
    template: str | None = None,
    generated: tuple[str, ...] = (),
) -> InitReport:
    from msgspec.structs import asdict

    from marpack.render.build import InitReport

    known = asdict(placed) | {"findings": findings, "generated": generated}
    return InitReport(folder=str(folder), name=name, template=template, **known)


def _checked(folder: Path) -> Path:
    if folder.exists() and not folder.is_dir():
        raise UsageError("a project is a folder, and this is a file", where=str(folder), hint="name another folder")
    return folder


def _answers(folder: Path, options: InitOptions) -> Answers:
    from marpack.project.members import leads_out
    from marpack.project.scaffold.proposal import Answers
    from marpack.protocol.targets import Target

    weights, model_file, labels = (
        _inside(folder, _path(name)) for name in (options.weights, options.model_file, options.labels)
    )
    for flag, name in (("--model-file", model_file), ("--labels", labels)):
        if name is not None and leads_out(folder / name, folder):
            hint = "copy the file into the project folder first"
            raise UsageError(f"{name} is outside the project folder, so no build would pack it", where=flag, hint=hint)
    return Answers(
        name=options.name,
        version=options.version or "1.0",
        template=options.template,
        handler=options.handler,
        weights=weights,
        model_file=model_file,
        labels=labels,
        target=Target(options.target) if options.target else None,
    )


def _inside(folder: Path, path: Path | None) -> str | None:
    """Return a path as marpack.yaml names it; one that is not in the project's folder may be given from here."""
    if path is None or (folder / path).exists():
        return path.as_posix() if path else None
    return Path(os.path.relpath(path, folder)).as_posix()
