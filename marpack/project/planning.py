"""A project, or the original archiver's flags → the frozen Plan of an archive, every problem of it found."""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import msgspec
import yaml
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace as changed

from marpack import finding_codes as codes
from marpack.archive.cache import Cache
from marpack.archive.index import Vendored, VendoredPackage
from marpack.archive.manifest import Manifest, ManifestModel
from marpack.archive.protocol import MANIFEST_NAME, MODEL_NAME, Bar, no_progress, quoted
from marpack.errors import MarpackError, OutputExistsError, ProjectError, pluralize, refuse_unusable_paths
from marpack.findings import Finding, Severity
from marpack.inspection.lint.linting import lint
from marpack.inspection.lint.source import Broken, evaluate_condition, parse, texts_in
from marpack.project.load import labels_member, parse_document
from marpack.project.members import EntryPoint, MemberCollector, is_pattern, leads_out, local_modules, matches, tree
from marpack.project.plan import Format, Plan, Role, check_output, choose_output
from marpack.project.schema import (
    GENERATED_MARK,
    LOCK_NAME,
    FileMapping,
    Project,
    metadata_mistakes,
    mistakes,
    recorded_metadata,
)
from marpack.protocol.targets import Target
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.server_modules import NEVER_FOUND, HandlerName, breaks_worker
from marpack.version import __version__

CONFIG_NAME = "model-config.yaml"
SAMPLES = "MAR-INF/samples/"
_LSP_BUILT_INS = ("BaseHandler", "TorchScriptHandler")
_LIBRARY_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
# Keys of marpack.yaml, the original archiver's flags, and the keys of the manifest that the static checks name.
_KEYS = (
    ("name", "--model-name", "model.modelName"),
    ("version", "--version", "model.modelVersion"),
    ("handler", "--handler", "model.handler"),
    ("weights", "--serialized-file", "model.serializedFile"),
    ("model_file", "--model-file", "model.modelFile"),
    ("requirements", "--requirements-file", "model.requirementsFile"),
    ("config", "--config-file", "model.configFile"),
)


class PlanResult(Struct, frozen=True, kw_only=True):
    """A plan with its findings."""

    plan: Plan
    findings: tuple[Finding, ...] = ()  # none of them an error
    modules: tuple[str, ...] = ()  # members packed only because the handler or model file imports them


@refuse_unusable_paths()
def plan_project(  # noqa: PLR0913 - each has a default
    project: Project,
    *,
    output: str | Path | None = None,
    replace: bool = True,
    form: Format | None = None,
    created_on: str | None = None,
    strict: bool = False,
    check: bool = True,
    cache: Cache | None = None,
    bar: Bar = no_progress,
    allow_outside: bool = False,
) -> PlanResult:
    """Plan a project's archive: `<name>.mar` beside marpack.yaml, or `output`, which may be a folder to put it in.

    `created_on` is the manifest's `createdOn`, as dd/mm/yyyy HH:MM:SS. `check` runs the static checks on the members'
    content. With `allow_outside`, every key may name files outside the project's folder, not only `weights` and
    `handler`.

    Raises ProjectError with every finding that stops the build; UsageError if output and form contradict.
    """
    path, actual_form = choose_output(output, form, name=project.name, folder=project.folder)
    collector = MemberCollector(None if allow_outside else project.folder, path)
    config, config_file = None, CONFIG_NAME if isinstance(project.config, dict) else project.config
    if isinstance(project.config, dict):  # in ASCII: the server's worker reads the file in its locale's encoding
        config = yaml.safe_dump(project.config, sort_keys=False, width=1 << 16)
    _add_files(project, collector, config)
    for index, entry in enumerate(project.files):
        source, to = (entry.source, entry.to) if isinstance(entry, FileMapping) else (entry, None)
        collector.add_entry(source, to, folder=project.folder, where=project.place(f"files[{index}]"))
    modules = _add_modules(project, collector)
    samples = _add_samples(project, collector)
    vendored = _add_vendored(project, collector, cache or Cache(), bar) if project.is_vendored else UNSET
    invalid = list(metadata_mistakes(project.metadata))
    for key, reason, hint in invalid:
        collector.report(codes.METADATA, project.place(f"metadata.{key}"), hint=hint, reason=reason)
    # The server would install requirements into the model folder, over the vendored packages.
    requirements = None if project.is_vendored else project.requirements
    files = (project.weights, project.model_file, requirements, config_file)
    handler = EntryPoint.parse(project.handler, project.folder).manifest
    plan = Plan(
        manifest=_manifest(project.name, project.version, handler, files, created_on),
        members=collector.members(),
        output=path,
        format=actual_form,
        replace=replace,
        samples=samples,
        target=project.target.value,
        metadata=UNSET if invalid else recorded_metadata(project.metadata),
        vendored=vendored,
    )
    places = {f"{MANIFEST_NAME}: {theirs}": project.place(ours) for ours, _, theirs in _KEYS}
    if config is not None:
        lines = parse_document(config, file=CONFIG_NAME).lines
        places |= {f"{CONFIG_NAME}:{line}": project.place(f"config.{key}") for key, line in lines.items()}
    result = PlanResult(plan=plan, findings=tuple(collector.findings), modules=modules)
    return _finish(result, places | collector.places, strict=strict, check=check, home=project.folder)


def _manifest(
    name: str,
    version: str | None,
    handler: str,
    files: Iterable[str | None],
    created_on: str | None,
    runtime: str = "python",
) -> Manifest:
    """Return a manifest with the base names of `files`: weights, model file, requirements, config."""
    keys = ("serialized_file", "model_file", "requirements_file", "config_file")
    named: dict[str, Any] = {
        key: Path(path).name for key, path in zip(keys, files, strict=True) if path
    }  # Any: as `**`
    model = ManifestModel(name=name, version=version, handler=handler, **named)
    return Manifest(model=model, runtime=runtime, created_on=created_on, archiver_version=f"marpack {__version__}")


def _add_files(project: Project, collector: MemberCollector, config: str | None) -> None:
    """Add the handler and the files that keys of marpack.yaml name, without those under `files`."""
    folder, place = project.folder, project.place
    if not MODEL_NAME.fullmatch(project.name):
        collector.report(codes.MODEL_NAME, place("name"), severity=Severity.ERROR, name=project.name)
    if not project.version.strip():
        collector.report(codes.VERSION, place("version"), version=project.version)
    collector.add_handler(project.handler, EntryPoint.parse(project.handler, folder).file, where=place("handler"))
    for key, role in {"weights": Role.WEIGHTS, "model_file": Role.FILE, "requirements": Role.FILE}.items():
        text = getattr(project, key)
        if text is not None and not (key == "requirements" and project.is_vendored):
            collector.add(Path(text).name, folder / text, where=place(key), role=role, anywhere=key == "weights")
    if project.labels is not None:
        path, where = folder / project.labels, place("labels")
        if collector.check_inside(path, where=where) and collector.check_file(path, where=where):
            try:
                collector.add(LABELS_NAME, labels_member(path), where=where)
            except ProjectError as error:
                collector.report(codes.LABELS, error.where, hint=error.hint, reason=error.what)
    if isinstance(project.config, str):
        collector.add(Path(project.config).name, folder / project.config, where=place("config"))
    elif config is not None:
        collector.add(CONFIG_NAME, config.encode("ascii"), where=place("config"))


def _add_modules(project: Project, collector: MemberCollector) -> tuple[str, ...]:
    """Add the local modules that handler and model file import, unless another file has that name already."""
    handler = EntryPoint.parse(project.handler, project.folder).file
    model = project.folder / project.model_file if project.model_file else None
    names = []
    for file, key in ((handler, "handler"), (model, "model_file")):
        if file is None or not file.is_file():
            continue
        for name, path in local_modules(file, (file.parent, project.folder)):
            if collector.source_of(name) is None:
                is_beside = key == "handler" and not leads_out(path, file.parent)  # a handler may be anywhere
                collector.add(name, path, where=project.place(key), anywhere=is_beside)
                names.append(name)
    return tuple(names)


def _add_samples(project: Project, collector: MemberCollector) -> tuple[dict[str, Any], ...]:  # Any: expected JSON
    """Add the samples, and return their entries in marpack.json."""
    listed = []
    for index, sample in enumerate(project.samples):
        key = f"samples[{index}]"
        path, where = Path(sample.input), project.place(f"{key}.input")
        is_inside = not path.is_absolute() and ".." not in path.parts
        parts = path.parts[1:] if path.parts[:1] == ("samples",) and len(path.parts) > 1 else path.parts
        name = SAMPLES + (Path(*parts).as_posix() if is_inside else path.name)
        collector.add(name, project.folder / path, where=where, role=Role.META)
        for inner, reason in mistakes(sample.expect) if sample.expect else ():
            collector.report(codes.SAMPLES, project.place(f"{key}.expect.{inner}"), reason=reason)
        if sample.generated is not None and not re.fullmatch(GENERATED_MARK, sample.generated):
            collector.report(codes.SAMPLES_MARK, project.place(f"{key}.generated"), mark=quoted(sample.generated))
        try:  # in the form of marpack.json, so that `is_stale` can compare it
            listed.append(msgspec.json.decode(msgspec.json.encode(changed(sample, input=name))))
        except (TypeError, ValueError):
            collector.report(codes.SAMPLES_KEY, where, sample=sample.input)
    return tuple(listed)


def _add_vendored(project: Project, collector: MemberCollector, cache: Cache, bar: Bar) -> Vendored | UnsetType:
    """Add the files of the wheels in vendor.lock, and return their entry in marpack.json."""
    from marpack.project.vendoring import read_lock, wheel_tree  # noqa: PLC0415 - it imports what fetches over HTTP

    if project.requirements is not None:  # read, and not packed: it may name a private index
        collector.check_inside(project.folder / project.requirements, where=project.place("requirements"))
    if not collector.check_inside(project.folder / LOCK_NAME, where=project.place("vendor")):
        return UNSET
    try:
        lock, packages = read_lock(project), []
        for wheel in lock.wheels:
            unpacked = wheel_tree(wheel, cache, bar)
            for name in sorted(unpacked.names):
                path, before = unpacked.folder / name, collector.source_of(name)
                top, slash, _ = name.partition("/")
                module, _, suffix = top.partition(".")
                is_module = slash or suffix == "py" or suffix.endswith("so")
                if is_module and (breaks_worker(module) or module in NEVER_FOUND):
                    collector.report(codes.VENDOR_SHADOWS, wheel.file, name=name)
                if before is None:
                    collector.add(name, path, where=wheel.file, anywhere=True)  # in the cache, with the locked digest
                    collector.places[name] = f"{wheel.file}!{name}"
                elif (before if isinstance(before, bytes) else before.read_bytes()) != path.read_bytes():
                    place = collector.places.get(name, name)
                    collector.report(
                        codes.NAME_COLLISION_VENDORED, wheel.file, name=name, place=place, wheel=wheel.file
                    )
            tops = {name.partition("/")[0].partition(".")[0] for name in unpacked.names if ".dist-info/" not in name}
            known = {"name": wheel.name, "version": wheel.version, "file": wheel.file, "sha256": wheel.sha256}
            packages.append(VendoredPackage(**known, modules=tuple(sorted(tops))))
    except MarpackError as error:
        collector.report(codes.VENDOR, error.where, hint=error.hint, reason=error.what)
        return UNSET
    finally:
        cache.close()  # the wheels used last are evicted last
    return Vendored(python=lock.python, platform=lock.platform, packages=tuple(packages), server=lock.server)


class Flags(Struct, frozen=True, kw_only=True):
    """The original archiver's arguments."""

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


@refuse_unusable_paths()
def plan_flags(
    flags: Flags,
    *,
    form: Format = Format.DEFAULT,
    replace: bool = False,
    created_on: str | None = None,
    strict: bool = False,
    check: bool = True,
) -> PlanResult:
    """Plan the archive that the original archiver makes of the same arguments (contract §1); see `plan_project`.

    Raises ProjectError with every finding that stops the build; OutputExistsError.
    """
    collector = MemberCollector()
    if not MODEL_NAME.fullmatch(flags.model_name):
        collector.report(codes.MODEL_NAME, "--model-name", severity=Severity.ERROR, name=flags.model_name)
    file = EntryPoint.parse(flags.handler, Path()).file
    if flags.runtime == "LSP":
        library = Path(f"{HandlerName.parse(flags.handler).path}{_LIBRARY_SUFFIX}")
        file = None if flags.handler in _LSP_BUILT_INS else library
    collector.add_handler(flags.handler, file, where="--handler")
    files = (flags.serialized_file, flags.model_file, flags.requirements_file, flags.config_file)
    for (_, flag, _), text in zip(_KEYS[3:], files, strict=True):
        if text:
            role = Role.WEIGHTS if flag == "--serialized-file" else Role.FILE
            collector.add(Path(text).name, Path(text), where=flag, role=role)
    # Each entry is a file, a folder whose contents are packed at the root, or a pattern.
    for entry in filter(None, map(str.strip, (flags.extra_files or "").split(","))):
        found = matches(entry, Path())
        if not found and is_pattern(entry):
            collector.report(codes.GLOB_WITHOUT_MATCH, "--extra-files", pattern=entry)
            continue
        for path in map(Path, found or [entry]):
            if path.is_dir():
                inner = tree(path, hidden_files=True)
                collector.add_tree("", inner, folder=path, home=path, where="--extra-files")
            else:
                collector.add(path.name, path, where="--extra-files")
    named = os.path.basename(flags.handler)  # noqa: PTH119 - `a/b.py:function` is not a path
    plan = Plan(
        manifest=_manifest(flags.model_name, flags.version or None, named, files, created_on, flags.runtime),
        members=collector.members(),
        output=Path(flags.export_path) / f"{flags.model_name}{form.suffix}",
        format=form,
        replace=replace,
    )
    places = {f"{MANIFEST_NAME}: {theirs}": flag for _, flag, theirs in (*_KEYS, ("", "--runtime", "runtime"))}
    result = PlanResult(plan=plan, findings=tuple(collector.findings))
    return _finish(result, places | collector.places, strict=strict, check=check)


def _finish(
    result: PlanResult, places: Mapping[str, str], *, strict: bool, check: bool, home: Path | None = None
) -> PlanResult:
    """Check a plan and its output, and return it if neither these findings nor those of `result` are errors.

    `places` maps a place in the archive (a member, `member:line`, a key of the manifest) to the author's place for it.
    """
    plan, findings, exists = result.plan, list(result.findings), None
    if check:
        wrong = {finding.where for finding in findings if finding.severity is Severity.ERROR}
        checked = lint(_PlanView(plan), plan.manifest, target=Target(plan.target), vendored=plan.vendored)
        translated = [changed(finding, where=_author_place(finding.where, places)) for finding in checked]
        findings += [each for each in (*translated, *_unpacked_files(plan, home)) if each.where not in wrong]
    try:
        check_output(plan)
    except OutputExistsError as error:
        exists = error
    except ProjectError as error:
        findings.append(codes.OUTPUT.at(error.where, hint=error.hint, reason=error.what))
    if strict:
        findings = [changed(f, severity=Severity.ERROR) if f.severity is Severity.WARNING else f for f in findings]
    count = sum(finding.severity is Severity.ERROR for finding in findings)
    if exists and not count:
        raise exists
    if count:
        what = f"nothing was built: {pluralize(count, 'error')}"
        raise ProjectError(what, findings=tuple(f for f in findings if f.severity is not Severity.NOTE))
    return changed(result, findings=tuple(findings))


class _PlanView:
    """A plan's members by name (the MemberView of `marpack.inspection.lint`)."""

    def __init__(self, plan: Plan) -> None:
        self.entries = {member.name: member for member in plan.members}

    def open(self, name: str) -> BinaryIO:
        return self.entries[name].open()


def _author_place(where: str | None, places: Mapping[str, str]) -> str | None:
    """Return the author's place for a place in the archive: the longest known part of it, translated."""
    known, rest = where or "", ""
    while known and known not in places:
        known, colon, last = known.rpartition(":")
        rest = f"{colon}{last}{rest}"
    return f"{places[known]}{rest}" if known else where


def _unpacked_files(plan: Plan, home: Path | None) -> Iterator[Finding]:
    """Yield the files beside the handler or in the project that its source names by path, and that are not packed."""
    handler = f"{HandlerName.parse(plan.manifest.model.handler).path.removesuffix('.py')}.py"
    source = next((member.source for member in plan.members if member.name == handler), None)
    if not isinstance(source, Path) or not os.access(source, os.R_OK):
        return
    parsed = parse(source.read_bytes())
    if isinstance(parsed, Broken):
        return
    run = [node for node in parsed.body if not (isinstance(node, ast.If) and evaluate_condition(node.test) is False)]
    texts = sorted((text for node in run for text in texts_in(node)), key=lambda text: -text.lineno)
    lines = {str(text.value).strip("/"): text.lineno for text in texts}  # the first line of each
    folders = {source.parent, home or source.parent}
    # A Path would raise for long texts; folders are joined: os.path.join(model_dir, "assets", "vocab.json").
    inner = [name for name in lines if name.strip(".") and any(os.path.isdir(folder / name) for folder in folders)]  # noqa: PTH112
    named = set()
    for name, line in lines.items():
        if PurePosixPath(name).suffix not in ("", ".py") and ".." not in name:
            ways = (name, *(f"{folder}/{name}" for folder in inner if ".." not in folder))
            named |= {(line, way) for way in ways if any(os.path.isfile(each / way) for each in folders)}  # noqa: PTH113
    packed = {PurePosixPath(member.name).name for member in plan.members}
    for line, name in sorted(named):
        if PurePosixPath(name).name not in packed:
            yield codes.FILE_NOT_PACKED.at(f"{source}:{line}", file=name)
