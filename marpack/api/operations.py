"""The commands that make, inspect, sign and move archives, from their options to their results."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from marpack.archive.protocol import Limits, no_progress, total_size
from marpack.errors import UsageError, convert_os_errors, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

    from marpack import trust
    from marpack.api.declaring import Key, Name
    from marpack.api.options import (
        BuildOptions,
        DiffOptions,
        ExportOptions,
        InitOptions,
        InspectOptions,
        LimitOptions,
        SignOptions,
        UnpackOptions,
        VerifyOptions,
    )
    from marpack.archive.cache import Cache
    from marpack.archive.protocol import Archive, Bar
    from marpack.archive.reader import Unpacked
    from marpack.exporting.export import Exported
    from marpack.findings import Finding
    from marpack.inspection.diff import Diff
    from marpack.inspection.facts import Inspection
    from marpack.project.plan import Format
    from marpack.project.planning import PlanResult
    from marpack.project.scaffold.folder_scan import FolderScan
    from marpack.project.scaffold.proposal import Proposal
    from marpack.render.build import BuildPlan, BuildReport, InitReport
    from marpack.trust.keys import Authority, PrivateKey, PublicKey

_Report = TypeVar("_Report", bound="Struct")
# The options that describe a new project; an archive that is turned into a project describes itself.
_DESCRIBING = ("template", "name", "version", "weights", "model_file", "handler", "labels", "target", "task")
_VENDORING = ("vendor", "vendor_python", "vendor_platform")
_SUFFIXES = (".mar", ".tar.gz", ".tgz", ".zip")
_OTHERS_READ = 0o044  # of a file's mode
_ATTESTED = ".intoto.json"  # of the attestation that marpack check wrote beside an archive up to 0.2


def cache_of(bar: Bar = no_progress) -> Cache:
    """Return the cache of fetched and extracted archives: this user's, unless MARPACK_CACHE_DIR names another."""
    from marpack.archive.cache import Cache

    folder = os.environ.get("MARPACK_CACHE_DIR")
    return Cache(Path(folder) if folder else None, bar=bar)


def text_of(name: Name | None) -> str | None:
    """Return a name as text."""
    return None if name is None else os.fspath(name)


def limits_of(*, max_members: int | None = None, max_size: int | None = None, max_ratio: int | None = None) -> Limits:
    """Return the limits of archives, with defaults for those that are None."""
    given = {"members": max_members, "total": max_size, "ratio": max_ratio}
    return Limits(**{name: value for name, value in given.items() if value is not None})


def _path(name: Name | None) -> Path | None:
    return None if name is None else Path(name)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- Open archives ------------------------------------------------------------------------------------------------


def archive_of(source: Name | None, bar: Bar, *, allow_outside: bool = False) -> str | Path:
    """Return the archive of a SOURCE. Only a project needs the code that builds it."""
    source = text_of(source)
    if source is not None and ("://" in source or (Path(source).exists() and not Path(source).is_dir())):
        return source
    from marpack.project.source import resolve

    return resolve(source, bar=bar, cache=cache_of(bar), allow_outside=allow_outside).path


def _open(source: Name | None, options: LimitOptions, bar: Bar) -> Archive:
    """Open the archive of a SOURCE."""
    from marpack.archive.reader import open_archive

    path = archive_of(source, bar, allow_outside=options.allow_outside)
    limits = limits_of(max_members=options.max_members, max_size=options.max_size, max_ratio=options.max_ratio)
    return open_archive(path, limits=limits, cache=cache_of(bar), bar=bar)


def inspect(options: InspectOptions, bar: Bar, *, parse_config: bool) -> Inspection:
    """Return the contents and problems of an archive, and write its SBOM if the options name a file."""
    from marpack.inspection import inspect as inspection
    from marpack.inspection.members import is_remote
    from marpack.render.console import expect_writable, write_whole

    sbom = text_of(options.sbom)
    expect_writable(sbom, option="--sbom")
    with _open(options.source, options, bar) as archive:
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
            from marpack.trust import sbom as bill

            bill.check_output(archive, Path(sbom))
            file = bill.file_of(archive)
            with bar("hashing", file.stat().st_size if file and file.is_file() else 0) as progress:
                document = bill.sbom(archive, facts, progress)
            write_whole(sbom, document, option="--sbom")
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
    from marpack.inspection import diff as differences

    with (
        _open(options.before, options, bar) as old,
        _open(options.after, options, bar) as new,
        bar("comparing", total_size(old) + total_size(new) if options.verify else 0) as progress,
    ):
        found = differences.diff(old, new, verify=options.verify, progress=progress)
    return _as_named(found, before=options.before, after=options.after)


def unpack(options: UnpackOptions, bar: Bar) -> Unpacked:
    """Extract an archive into a new folder, completely or not at all."""
    from marpack.archive import reader

    source = os.fspath(options.source)
    name = (source.partition("#")[0] if "://" in source else source).partition("?")[0].rstrip("/").rpartition("/")[2]
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    if options.directory is None and name in ("", ".", ".."):
        what = "the archive's name is not usable as a folder's name"
        raise UsageError(what, where=source, hint="Name the new folder: -o DIR")
    if "://" not in source and not os.path.lexists(source):
        hint = "Name a .mar, a .tar.gz or a model folder."
        raise UsageError("this file or folder does not exist", where=source, hint=hint, code="source-not-found")
    with _open(source, options, bar) as archive:
        report = reader.unpack(
            archive, Path(options.directory or name), only=tuple(options.only), replace=options.force, bar=bar
        )
    return _as_named(report, source=source)


def export(options: ExportOptions, bar: Bar) -> Exported:
    """Write the folder that a platform deploys; with `dry_run`, write nothing, and return the same."""
    from contextlib import ExitStack

    from msgspec.structs import replace

    from marpack.archive.staging import temporary_folder
    from marpack.exporting import export as exporting
    from marpack.exporting.plan import ExportOptions as PlatformOptions
    from marpack.project.source import resolve

    platform = PlatformOptions(
        device=options.device,
        wheel=_path(options.wheel),
        lock=_path(options.lock),
        resolve=not options.no_lock,
        image=options.image,
        storage_uri=options.storage_uri,
        role=options.role,
    )
    outside = options.allow_outside
    output, force, dry_run = _path(options.output), options.force, options.dry_run
    with ExitStack() as stack:
        build_in = stack.enter_context(temporary_folder()) if dry_run else None
        found = resolve(
            text_of(options.source),
            bar=bar,
            cache=cache_of(bar),
            trust_url=None,
            allow_outside=outside,
            build_in=build_in,
        )
        exported = exporting.export(found.path, options.to, output, platform, replace=force, dry_run=dry_run, bar=bar)
    if found.project is None or found.path.parent != build_in:
        return exported
    shown, made = str(found.project.folder / found.path.name), str(found.path)
    findings = (replace(each, where=shown) if each.where == made else each for each in exported.findings)
    return replace(exported, archive=shown, findings=tuple(findings))


# --- Build archives -----------------------------------------------------------------------------------------------


def archiver_flags(options: BuildOptions) -> list[str]:
    """Return the given options of torch-model-archiver, as they are spelt."""
    from marpack.project.planning import Flags

    return [_flag(name) for name in Flags.__struct_fields__ if getattr(options, name) is not None]


def plan_build(options: BuildOptions, bar: Bar) -> PlanResult:
    """Return the plan of a project, or of the options of torch-model-archiver in place of a project.

    With `vendor`, the requirements are resolved first and vendor.lock is written.
    """
    from msgspec.structs import replace

    from marpack.project.plan import Format

    commit = options.source_commit
    if commit is not None and not re.fullmatch(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", commit):
        where = f"--source-commit {shortened(commit)}".strip()
        hint = "Give all 40 or 64 hexadecimal digits: git rev-parse HEAD prints them."
        raise UsageError("not a commit", where=where, hint=hint, code="invalid-commit")
    flags = archiver_flags(options)
    form = Format(options.archive_format) if options.archive_format else None
    created_on = _creation_time(os.environ.get("SOURCE_DATE_EPOCH"))
    if flags and options.project is not None:
        hint = f"Give {os.fspath(options.project)} or the options of torch-model-archiver, not both."
        raise UsageError(f"{flags[0]} replaces a project", hint=hint)
    vendoring = next((name for name in _VENDORING if getattr(options, name)), None)
    if vendoring and flags:
        raise UsageError(f"{_flag(vendoring)} needs a project", hint=f"Leave out {_flag(vendoring)} or {flags[0]}.")
    if vendoring and not options.vendor:
        raise UsageError(f"{_flag(vendoring)} requires --vendor", hint="Add --vendor.")
    if flags:
        found = _plan_flags(options, form or Format.DEFAULT, created_on)
    else:
        found = _plan_project(options, form, created_on, bar)
    return replace(found, plan=replace(found.plan, source_commit=commit and commit.lower()))


def _creation_time(epoch: str | None) -> str | None:
    """Return the manifest's createdOn for a SOURCE_DATE_EPOCH, in UTC."""
    from datetime import UTC, datetime

    if not epoch:
        return None
    try:
        return datetime.fromtimestamp(int(epoch), UTC).strftime("%d/%m/%Y %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        hint = "Set it to a number of seconds since 1970, or unset it."
        raise UsageError(f"SOURCE_DATE_EPOCH is '{epoch}'", hint=hint, code="invalid-source-date") from None


def _plan_project(options: BuildOptions, form: Format | None, created_on: str | None, bar: Bar) -> PlanResult:
    from marpack.project.load import load_project
    from marpack.project.planning import plan_project

    project, cache = load_project(Path(options.project or ".")), cache_of(bar)
    if options.vendor:
        from marpack.project.schema import VendorPlatform, VendorSpec
        from marpack.project.vendoring import make_lock

        python, platform = options.vendor_python, options.vendor_platform
        if project.vendor and (python or platform):
            hint = "Leave --vendor-python and --vendor-platform out."
            raise UsageError("marpack.yaml names the server already", where=project.place("vendor"), hint=hint)
        spec = VendorSpec(python=python or "3.9", platform=VendorPlatform(platform or "linux_x86_64"))
        make_lock(project, project.vendor or spec, cache, bar)
    return plan_project(
        project,
        output=text_of(options.output),
        form=form,
        created_on=created_on,
        strict=options.strict,
        cache=cache,
        bar=bar,
        allow_outside=options.allow_outside,
    )


def _plan_flags(options: BuildOptions, form: Format, created_on: str | None) -> PlanResult:
    """Return the plan of the options of torch-model-archiver."""
    from marpack.project.planning import Flags, plan_flags

    required = {"model_name": options.model_name, "version": options.version, "handler": options.handler}
    missing = [_flag(name) for name, value in required.items() if value is None]
    if missing:
        hint = "Add them, or leave all options of torch-model-archiver out to build a project."
        raise UsageError(f"missing: {' and '.join(missing)}", hint=hint)
    if options.output is not None:
        raise UsageError("--output is for projects", hint="Give --export-path, the folder for the archive.")
    values = {name: getattr(options, name) for name in Flags.__struct_fields__}
    if isinstance(options.extra_files, tuple):  # in the notation of torch-model-archiver
        names = [os.fspath(name) for name in options.extra_files]
        for name in names:
            if "," in name:
                what = "a comma separates two files, and this name contains one"
                raise UsageError(what, where=f"extra_files: {name}", hint="Rename the file.")
        values["extra_files"] = ",".join(names)
    flags = Flags(**{name: value for name, value in values.items() if value is not None})
    return plan_flags(flags, form=form, replace=options.force, created_on=created_on, strict=options.strict)


def describe_plan(options: BuildOptions, bar: Bar) -> BuildPlan:
    """Return what a build would write; see `plan_build`."""
    from marpack.render.build import BuildPlan, MemberPlan

    if options.vendor:
        raise UsageError("--dry-run and --vendor exclude each other", hint="Leave out --vendor: it writes vendor.lock.")
    found = plan_build(options, bar)
    members = tuple(MemberPlan(each.name, each.size) for each in found.plan.packed)
    return BuildPlan(
        path=str(found.plan.output),
        format=found.plan.format,
        size=found.plan.size,
        members=members,
        modules=found.modules,
        findings=found.findings,
    )


def pack(plan: PlanResult, bar: Bar) -> BuildReport:
    """Write the archive of a plan."""
    from msgspec.structs import asdict

    from marpack.project.plan import pack
    from marpack.render.build import BuildReport

    with bar("packing", plan.plan.size) as progress:
        built = pack(plan.plan, progress)
    known = asdict(built) | {"path": str(built.path), "format": plan.plan.format}
    return BuildReport(**known, modules=plan.modules, findings=plan.findings)


def init(options: InitOptions, on_survey: Callable[[FolderScan, Proposal], object] = lambda *_: None) -> InitReport:
    """Start a project from an archive, or from a template around the files in a folder.

    `on_survey` gets the findings about the folder before anything is written.
    """
    from msgspec.structs import asdict

    from marpack.project.scaffold.write_files import new_folder, write_files
    from marpack.render.build import InitReport

    folder = Path(options.folder or "")
    if folder.exists() and not folder.is_dir():
        raise UsageError("a project is a folder, and this is a file", where=str(folder), hint="Name a folder.")
    if options.from_ is None:
        return _init_folder(folder, options, on_survey)
    from marpack.archive.reader import open_archive
    from marpack.project.scaffold.from_archive import read_project

    unused = next((_flag(name) for name in _DESCRIBING if getattr(options, name) is not None), None)
    if unused:
        hint = f"Leave {unused} out: everything comes from the archive."
        raise UsageError(f"{unused} has no effect with --from", hint=hint)
    with open_archive(os.fspath(options.from_), cache=cache_of()) as opened:
        found = read_project(opened)
        hint = f"To use this folder, name it: marpack init {found.name} --from …"
        folder = folder if options.folder else new_folder(Path(found.name), hint=hint)
        written = write_files(folder, found.files, replace=options.force)
    known = asdict(written) | {"findings": found.findings, "generated": found.generated}
    return InitReport(folder=str(folder), name=found.name, template=None, **known)


def _init_folder(folder: Path, options: InitOptions, on_survey: Callable[[FolderScan, Proposal], object]) -> InitReport:
    """Start a project from a template around the files in a folder, with paths as marpack.yaml names them."""
    import msgspec

    from marpack.project.members import leads_out
    from marpack.project.scaffold.folder_scan import scan_folder
    from marpack.project.scaffold.proposal import Answers, assemble, propose
    from marpack.project.scaffold.write_files import write_files
    from marpack.project.schema import FILE_NAME
    from marpack.render.build import InitReport

    def relative(named: Name | None) -> str | None:
        if named is None or (folder / named).exists():
            return None if named is None else Path(named).as_posix()
        return Path(os.path.relpath(named, folder)).as_posix()  # it may be named from the current folder

    def convert(source: Path, target: Path) -> None:  # by the worker, which Windows does not have
        from marpack.runner.process import convert_safetensors

        convert_safetensors(source, target)

    scan = scan_folder(folder)
    weights, model_file, labels = map(relative, (options.weights, options.model_file, options.labels))
    for flag, name in (("--model-file", model_file), ("--labels", labels)):
        if name is not None and leads_out(folder / name, folder):
            hint = "Copy the file into the project folder first."
            raise UsageError(f"{name} is outside the project folder, so no build would pack it", where=flag, hint=hint)
    given = msgspec.structs.asdict(options) | {"weights": weights, "model_file": model_file, "labels": labels}
    answers = msgspec.convert({key: value for key, value in given.items() if value is not None}, Answers)
    proposal = propose(folder, scan, answers)
    on_survey(scan, proposal)
    files = assemble(proposal, convert, for_new=options.force or FILE_NAME not in scan.names)
    written = write_files(folder, files, replace=options.force)
    generated = tuple(each.input for each in proposal.samples.listed if each.generated and each.input in files)
    known = msgspec.structs.asdict(written) | {"findings": proposal.findings, "generated": generated}
    return InitReport(folder=str(folder), name=proposal.name, template=proposal.template.name, **known)


# --- Sign and verify archives -------------------------------------------------------------------------------------


def sign(options: SignOptions, bar: Bar, *, where: str = "key") -> trust.Signed:
    """Write an archive's signature. `where` names the key in messages if it is not a file."""
    from marpack.archive.staging import staged_file
    from marpack.trust import Signed, signatures
    from marpack.trust.keys import chain_of

    key, findings = private_key(options.key, options.password, where=where)
    certificates: list[bytes] = []
    if options.certificate is not None:
        pem, place = _pem(options.certificate, "certificate")
        certificates = chain_of(pem, where=place)
    archive = os.fspath(options.archive)
    path = archive_file(archive)
    target = Path(f"{archive}{signatures.SUFFIX}" if options.output is None else options.output)
    with staged_file(target, replace=options.force) as file, bar("signing", 2 * path.stat().st_size) as progress:
        sha256, signer, data = signatures.sign(path, key, chain=certificates, progress=progress)
        file.write(data)
    return Signed(archive=archive, sha256=sha256, signature=str(target), signer=signer, findings=findings)


def verify(options: VerifyOptions, bar: Bar) -> trust.Verification:
    """Return the signer of an archive. Raises SignatureError for one that is not trusted."""
    from marpack import finding_codes as codes
    from marpack.archive.copying import file_digest
    from marpack.trust import Verification, signatures

    archive = os.fspath(options.archive)
    trusted, path = _trusted_signer(options), archive_file(archive)
    signature = _path(options.signature) or Path(f"{archive}{signatures.SUFFIX}")
    unreadable = convert_os_errors(UsageError, "the archive cannot be read", where=archive, code="unreadable-file")
    with unreadable, bar("verifying", path.stat().st_size) as progress:
        sha256 = file_digest(path, progress)
    signer = signatures.verify(path, sha256, signature, trusted)
    attestation = Path(f"{archive}{_ATTESTED}")
    findings = (codes.ATTESTATION_IGNORED.at(str(attestation), file=attestation.name),) if attestation.exists() else ()
    return Verification(archive=archive, sha256=sha256, signature=str(signature), signer=signer, findings=findings)


def _trusted_signer(options: VerifyOptions) -> PublicKey | Authority:
    """Return the trusted key or authority. Raises UsageError unless exactly one is given."""
    from marpack.trust.keys import Authority, PublicKey

    if options.key is not None and options.ca is not None:
        raise UsageError("--key and --ca exclude each other", hint="Give one of them.")
    if options.key is not None:
        pem, where = _pem(options.key, "key")
        return PublicKey.from_pem(pem, where=where)
    if options.ca is None:
        hint = "Give the signer's public key (--key signer.pub) or an authority (--ca authority.pem)."
        raise UsageError("no trusted key or authority", hint=hint)
    pem, where = _pem(options.ca, "ca")
    return Authority.from_pem(pem, where=where)


def private_key(key: Key, password: str | None, *, where: str = "key") -> tuple[PrivateKey, tuple[Finding, ...]]:
    """Return a private key, and a finding if others can read its file. Raises UsageError, MissingExtraError."""
    from marpack.trust.keys import PrivateKey

    pem, where = _pem(key, where)
    private = PrivateKey.from_pem(pem, where=where, password=password.encode() if password else None)
    if isinstance(key, bytes) or os.name == "nt" or not os.stat(key).st_mode & _OTHERS_READ:  # noqa: PTH116 - any name
        return private, ()
    from marpack import finding_codes as codes

    return private, (codes.READABLE_KEY.at(where, hint=f"Remove their permissions: chmod 600 {where}", file=where),)


def _pem(key: Key, name: str) -> tuple[bytes, str]:
    """Return a key's bytes, and where they are from. Raises UsageError."""
    if isinstance(key, bytes):
        return key, name
    from marpack.trust.signatures import read_bounded

    path = os.fspath(key)
    return read_bounded(Path(path), what="the key", hint="Name a file in PEM form."), path


def archive_file(archive: str) -> Path:
    """Return the path of an archive; raises UsageError if it is not a file, as only files have a SHA-256."""
    path = Path(archive)
    if path.is_file():
        return path
    what = "only an archive's file can be signed or verified"
    hint = "Pack it: marpack build" if path.is_dir() else "Name a .mar or a .tar.gz on this machine."
    raise UsageError(what, where=archive, hint=hint, code="not-an-archive-file")
