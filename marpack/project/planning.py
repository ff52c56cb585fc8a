"""A project, or the original archiver's flags → the frozen Plan of an archive, every problem of it found."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from msgspec import UNSET, Struct, UnsetType

from marpack import finding_codes as codes
from marpack.archive.cache import Cache
from marpack.archive.index import Vendored, VendoredPackage
from marpack.archive.manifest import Manifest, ManifestModel
from marpack.archive.protocol import MANIFEST_NAME, Bar, no_progress, quoted
from marpack.errors import MarpackError, ProjectError, refuse_unusable_paths
from marpack.inspection.lint.source import Broken, Found, ModuleFinder, parse, read_imports
from marpack.project.label_files import labels_member
from marpack.project.load import parse_document
from marpack.project.members import EntryPoint, MemberCollector, is_pattern, leads_out, matches, tree
from marpack.project.plan import Format, Plan, Role
from marpack.project.preflight import SUFFIXES, PlanResult, as_finding, choose_output, finalize_plan
from marpack.project.schema import GENERATED_MARK, LOCK_NAME, Project, metadata_mistakes, mistakes, recorded_metadata
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.server_modules import HandlerName, breaks_worker, never_found
from marpack.version import __version__

if TYPE_CHECKING:
    from marpack.project.vendoring import LockedWheel

_BYTECODE = (".pyc", ".pyo")
CONFIG_NAME = "model-config.yaml"
SAMPLES = "MAR-INF/samples/"
_LSP_BUILT_INS = ("BaseHandler", "TorchScriptHandler")
_LIBRARY_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
# Keys of the manifest, as the static checks name them, in the order of the keys and flags below.
_MODEL_KEYS = ("modelName", "modelVersion", "handler", "serializedFile", "modelFile", "requirementsFile", "configFile")
_MANIFEST_KEYS = (*(f"model.{key}" for key in _MODEL_KEYS), "runtime")
_PROJECT_KEYS = ("name", "version", "handler", "weights", "model_file", "requirements", "config")
_FLAGS = (
    *("--model-name", "--version", "--handler", "--serialized-file"),
    *("--model-file", "--requirements-file", "--config-file", "--runtime"),
)


class LocalModule(Struct, frozen=True):
    """One file that an import needs."""

    name: str  # inside the archive: the place where `import` finds it in the model folder
    path: Path


class _FolderModules(ModuleFinder):
    """Finds modules in folders on disk."""

    def files_in(self, folder: str) -> list[str]:
        """Return the base names of the files in a folder."""
        try:
            with os.scandir(folder) as entries:
                return [entry.name for entry in entries if entry.is_file()]
        except OSError:
            return []

    def is_folder(self, folder: str) -> bool:
        """Return whether a folder exists."""
        return os.path.isdir(folder)  # noqa: PTH112 - a str, as ModuleFinder joins them


def local_modules(file: Path, roots: Iterable[Path]) -> Iterator[LocalModule]:
    """Yield the files that a Python file imports, directly or through other files, in a fixed order.

    A package is yielded whole, with its data files; of a folder without `__init__.py` only the imported modules.

    Args:
        file: A Python file; one that does not parse yields nothing.
        roots: The folders in which Python finds local modules, in this order.
    """
    finder = _FolderModules(f"{root}/" for root in dict.fromkeys(roots))
    seen: set[Path] = {file}
    waiting = [file]
    while waiting:
        for dotted in _imported_names(waiting.pop(0)):
            for module in _module_files(finder, dotted):
                if module.path not in seen:
                    seen.add(module.path)
                    yield module
                    waiting += [module.path] if module.path.suffix == ".py" else []


def _imported_names(file: Path) -> list[str]:
    """Return the dotted names that a file imports absolutely; `from a import b` may mean the module a.b too."""
    try:
        tree = parse(file.read_bytes())
    except OSError:
        return []
    if isinstance(tree, Broken):
        return []  # the preflight reports it
    imports = [each for each in read_imports(tree) if not each.level]
    return sorted({each.module for each in imports} | {f"{each.module}.{each.name}" for each in imports if each.name})


def _module_files(finder: ModuleFinder, dotted: str) -> Iterator[LocalModule]:
    """Yield the local files that make up a module."""
    steps = dotted.split(".")
    for end in range(1, len(steps) + 1 if steps[0] not in sys.stdlib_module_names else 1):
        located = finder.locate(".".join(steps[:end]))
        if located is None:
            return
        if located.kind is Found.NAMESPACE:
            continue  # the module in it is one of the next steps
        path = Path(located.member)
        if located.package:
            inner = ((inner, each) for inner, each in tree(path.parent) if each.suffix not in _BYTECODE)
            yield from (LocalModule("/".join([*steps[:end], name]), each) for name, each in inner)
        elif path.suffix not in _BYTECODE:
            yield LocalModule("/".join([*steps[: end - 1], path.name]), path)
        return


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
    """Plan a project's archive.

    Args:
        project: From `load_project`.
        output: The archive's path, or a folder to put it in; `<name>.mar` beside marpack.yaml if None.
        replace: Whether an existing output may be replaced.
        form: The archive's format; by default the output's suffix decides.
        created_on: The manifest's `createdOn`, as dd/mm/yyyy HH:MM:SS; left out if None.
        strict: Whether warnings stop the build too.
        check: Whether to check the members' content (the preflight).
        cache: The cache of vendored wheels, which are fetched if they are missing; None: this user's.
        bar: Shows the progress of fetching.
        allow_outside: Whether every key may name files outside the project's folder, not only `weights` and `handler`.

    Raises ProjectError with every finding that stops the build; UsageError if output and form contradict.
    """
    path, actual_form = choose_output(output, form, name=project.name, folder=project.folder)
    collector = MemberCollector(None if allow_outside else project.folder, path)
    _add_files(project, collector)
    modules = _add_modules(project, collector)
    samples = _add_samples(project, collector)
    vendored = _add_vendored(project, collector, cache or Cache(), bar) if project.is_vendored else UNSET
    invalid = list(metadata_mistakes(project.metadata))
    for key, message, hint in invalid:
        collector.error(codes.METADATA, message, project.place(f"metadata.{key}"), hint)
    plan = Plan(
        manifest=_make_manifest(
            name=project.name,
            version=project.version,
            handler=EntryPoint.parse(project.handler, project.folder).manifest,
            created_on=created_on,
            files=_manifest_files(project),
        ),
        members=collector.members(),
        output=path,
        format=actual_form,
        replace=replace,
        samples=samples,
        target=project.target.value,
        metadata=UNSET if invalid else recorded_metadata(project.metadata),
        vendored=vendored,
    )  # fmt: skip
    places = _project_places(project) | collector.places
    return finalize_plan(
        plan, collector.findings, places, strict=strict, check=check, home=project.folder, modules=modules
    )


def _manifest_files(project: Project) -> tuple[str | None, ...]:
    """Return weights, model file, requirements and config, as the manifest names them."""
    config = CONFIG_NAME if isinstance(project.config, dict) else project.config
    # The server would install requirements into the model folder, over the vendored packages.
    return project.weights, project.model_file, None if project.is_vendored else project.requirements, config


def _project_places(project: Project) -> dict[str, str]:
    """Return the places in marpack.yaml of the manifest's keys and of the lines of an inline config."""
    places = _manifest_places(map(project.place, _PROJECT_KEYS))
    if isinstance(project.config, dict):
        made = parse_document(_config_text(project.config), file=CONFIG_NAME)
        places |= {f"{CONFIG_NAME}:{line}": project.place(f"config.{key}") for key, line in made.lines.items()}
    return places


def _add_files(project: Project, collector: MemberCollector) -> None:
    """Add the handler, the files that keys of marpack.yaml name, and those under `files`."""
    collector.check_name(project.name, where=project.place("name"))
    if not project.version.strip():
        collector.error(codes.VERSION, "the version is empty", project.place("version"))
    handler = EntryPoint.parse(project.handler, project.folder).file
    collector.add_handler(project.handler, handler, where=project.place("handler"))
    for key, role in {"weights": Role.WEIGHTS, "model_file": Role.FILE, "requirements": Role.FILE}.items():
        text, where = getattr(project, key), project.place(key)
        if text is not None and key == "requirements" and project.is_vendored:
            # The server does not need the file, and it may name a private index.
            collector.check_inside(project.folder / text, where=where)
        elif text is not None:
            anywhere = key == "weights"
            collector.add(Path(text).name, project.folder / text, where=where, role=role, anywhere=anywhere)
    if project.labels is not None:
        path, where = project.folder / project.labels, project.place("labels")
        if collector.check_inside(path, where=where) and collector.check_file(path, where=where):
            try:
                collector.add(LABELS_NAME, labels_member(path), where=where)
            except ProjectError as error:
                collector.findings.append(as_finding(error, codes.LABELS))
    where = project.place("config")
    if isinstance(project.config, str):
        collector.add(Path(project.config).name, project.folder / project.config, where=where)
    elif project.config is not None:
        collector.add(CONFIG_NAME, _config_text(project.config).encode("ascii"), where=where)
    collector.add_entries(project)


def _config_text(config: dict[str, Any]) -> str:  # Any: the author's own keys
    """Return an inline config as YAML in ASCII: the server's worker reads the file in its locale's encoding."""
    text: str = yaml.safe_dump(config, sort_keys=False, width=1 << 16)
    return text


def _add_modules(project: Project, collector: MemberCollector) -> tuple[str, ...]:
    """Add the local modules that handler and model file import, unless another file has that name already."""
    handler = EntryPoint.parse(project.handler, project.folder).file
    model = project.folder / project.model_file if project.model_file else None
    names = []
    for file, key in ((handler, "handler"), (model, "model_file")):
        if file is None or not file.is_file():
            continue
        for module in local_modules(file, (file.parent, project.folder)):
            if not collector.holds(module.name):
                is_beside = key == "handler" and not leads_out(module.path, file.parent)  # a handler may be anywhere
                collector.add(module.name, module.path, where=project.place(key), anywhere=is_beside)
                names.append(module.name)
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
        for inner, message in mistakes(sample.expect) if sample.expect else ():
            collector.error(codes.SAMPLES, message, project.place(f"{key}.expect.{inner}"))
        if sample.generated is not None and not re.fullmatch(GENERATED_MARK, sample.generated):
            hint = "Write sha256: and 64 lower-case hexadecimal digits, or delete the key."
            message = f"{quoted(sample.generated)} is not the SHA-256 of a generated sample"
            collector.error(codes.SAMPLES, message, project.place(f"{key}.generated"), hint)
        try:  # in the form of marpack.json, so that `is_stale` can compare it
            listed.append(msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(sample, input=name))))
        except (TypeError, ValueError):
            hint = "put yes, no, on, off and dates in quotes where they are keys"
            collector.error(codes.SAMPLES, "a key of this expectation is not text", where, hint)
    return tuple(listed)


def _add_vendored(project: Project, collector: MemberCollector, cache: Cache, bar: Bar) -> Vendored | UnsetType:
    """Add the files of the wheels in vendor.lock, and return their entry in marpack.json."""
    from marpack.project.vendoring import read_lock  # noqa: PLC0415 - it imports what fetches over HTTP

    if not collector.check_inside(project.folder / LOCK_NAME, where=project.place("vendor")):
        return UNSET
    try:
        lock = read_lock(project)
        packages = tuple(_add_wheel(wheel, collector, cache, bar) for wheel in lock.wheels)
    except MarpackError as error:
        collector.findings.append(as_finding(error, codes.VENDOR))
        return UNSET
    finally:
        cache.close()  # the wheels used last are evicted last
    return Vendored(python=lock.python, platform=lock.platform, packages=packages, server=lock.server)


def _add_wheel(wheel: "LockedWheel", collector: MemberCollector, cache: Cache, bar: Bar) -> VendoredPackage:
    from marpack.project.vendoring import wheel_tree  # noqa: PLC0415 - as above

    unpacked = wheel_tree(wheel, cache, bar)
    collector.findings += unpacked.findings
    for name in sorted(unpacked.names):
        path, before = unpacked.folder / name, collector.source_of(name)
        top, slash, _ = name.partition("/")
        module, _, suffix = top.partition(".")
        is_module = bool(slash) or suffix == "py" or suffix.endswith("so")
        if is_module and (breaks_worker(module) or never_found(module)):
            message = f"{name} would replace a module that the worker needs, or never be imported"
            collector.error(codes.VENDOR, message, wheel.file, "remove the requirement")
        if before is None:
            collector.add(name, path, where=wheel.file, anywhere=True)  # in the cache, with the locked digest
            collector.places[name] = f"{wheel.file}!{name}"
        elif (before if isinstance(before, bytes) else before.read_bytes()) != path.read_bytes():
            other = collector.places.get(name, name)
            message = f"{name} comes from {other} and from {wheel.file}, and differs"
            collector.error(codes.NAME_COLLISION, message, wheel.file)
    tops = {name.partition("/")[0].partition(".")[0] for name in unpacked.names if ".dist-info/" not in name}
    return VendoredPackage(
        name=wheel.name, version=wheel.version, file=wheel.file, sha256=wheel.sha256, modules=tuple(sorted(tops))
    )


def _make_manifest(
    *,
    name: str,
    version: str | None,
    handler: str,
    created_on: str | None,
    files: Iterable[str | None],
    runtime: str = "python",
) -> Manifest:
    """Return a manifest; it has the base names of `files`: weights, model file, requirements, config."""
    weights, model_file, requirements, config = (Path(path).name if path else None for path in files)
    model = ManifestModel(
        name=name,
        version=version,
        handler=handler,
        serialized_file=weights,
        model_file=model_file,
        requirements_file=requirements,
        config_file=config,
    )
    return Manifest(model=model, runtime=runtime, created_on=created_on, archiver_version=f"marpack {__version__}")


def _manifest_places(wheres: Iterable[str]) -> dict[str, str]:
    """Return the author's place of each key of the manifest, by the name that the static checks have for it."""
    return {f"{MANIFEST_NAME}: {key}": where for key, where in zip(_MANIFEST_KEYS, wheres, strict=False)}


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
    collector.check_name(flags.model_name, where="--model-name")
    collector.add_handler(flags.handler, handler_file(flags.handler, flags.runtime), where="--handler")
    named = (flags.serialized_file, flags.model_file, flags.requirements_file, flags.config_file)
    for flag, text in zip(
        ("--serialized-file", "--model-file", "--requirements-file", "--config-file"), named, strict=True
    ):
        if text:
            role = Role.WEIGHTS if flag == "--serialized-file" else Role.FILE
            collector.add(Path(text).name, Path(text), where=flag, role=role)
    # Each entry is a file, a folder whose contents are packed at the root, or a pattern.
    for entry in filter(None, map(str.strip, (flags.extra_files or "").split(","))):
        found = matches(entry, Path())
        if not found and is_pattern(entry):
            collector.warning(codes.GLOB_WITHOUT_MATCH, f"{entry} matches no file", "--extra-files")
            continue
        for path in map(Path, found or [entry]):
            if path.is_dir():
                files = tree(path, hidden_files=True)
                collector.add_tree("", files, folder=path, home=path, where="--extra-files")
            else:
                collector.add(path.name, path, where="--extra-files")
    plan = Plan(
        manifest=_make_manifest(
            name=flags.model_name,
            version=flags.version or None,
            handler=os.path.basename(flags.handler),  # noqa: PTH119 - `a/b.py:function` is not a path
            runtime=flags.runtime,
            created_on=created_on,
            files=named,
        ),
        members=collector.members(),
        output=Path(flags.export_path) / f"{flags.model_name}{SUFFIXES[form]}",
        format=form,
        replace=replace,
    )
    places = _manifest_places(_FLAGS) | collector.places
    return finalize_plan(plan, collector.findings, places, strict=strict, check=check)


def handler_file(handler: str, runtime: str) -> Path | None:
    """Return the file that `--handler` names, or None for a built-in."""
    if runtime != "LSP":
        return EntryPoint.parse(handler, Path()).file
    return None if handler in _LSP_BUILT_INS else Path(f"{HandlerName.parse(handler).path}{_LIBRARY_SUFFIX}")
