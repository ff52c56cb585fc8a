"""A Project → the frozen Plan of its archive, with the local modules that its files import."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from msgspec import UNSET, Struct, UnsetType

from marpack.archive.cache import Cache
from marpack.archive.index import Metadata, Vendored, VendoredPackage
from marpack.archive.manifest import Manifest
from marpack.archive.names import quoted
from marpack.archive.protocol import Bar, no_progress
from marpack.errors import MarpackError, ProjectError, refuse_unusable_paths
from marpack.inspection.lint.source import Broken, Found, ModuleFinder, parse, read_imports
from marpack.project import metadata
from marpack.project.label_files import labels_member
from marpack.project.load import parse_document
from marpack.project.members import EntryPoint, MemberCollector, add_entries, is_pattern, leads_out, matches, tree
from marpack.project.plan import Format, Plan, Role
from marpack.project.preflight import (
    SUFFIXES,
    PlanResult,
    as_finding,
    choose_output,
    finalize_plan,
    make_manifest,
    manifest_places,
)
from marpack.project.schema import GENERATED_MARK, LOCK_NAME, Project, mistakes
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.server_modules import HandlerName, breaks_worker, never_found

if TYPE_CHECKING:
    from marpack.project.vendoring import LockedWheel

_BYTECODE = (".pyc", ".pyo")
CONFIG_NAME = "model-config.yaml"
SAMPLES = "MAR-INF/samples/"


class LocalModule(Struct, frozen=True):
    """One file that an import needs."""

    name: str  # inside the archive: where `import` will find it in the model folder
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
def plan_project(  # noqa: PLR0913 - each may be left out
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
        form: The archive's format; if None, the output's suffix tells.
        created_on: The manifest's `createdOn`, as dd/mm/yyyy HH:MM:SS; left out if None.
        strict: Whether warnings stop the build too.
        check: Whether the members' content is looked into (the preflight).
        cache: Where vendored wheels are kept, fetched first if need be; None: this user's.
        bar: Shows how far that is.
        allow_outside: Whether every key may name files outside the project's folder, not only `weights` and `handler`.

    Raises ProjectError holding every finding that stops the build; UsageError if output and form contradict.
    """
    path, actual_form = choose_output(output, form, name=project.name, folder=project.folder)
    gathering = MemberCollector(None if allow_outside else project.folder, path)
    manifest = _manifest(project, created_on)
    modules = _gather(project, gathering)
    samples = _add_samples(project, gathering)
    vendored = _add_vendored(project, gathering, cache or Cache(), bar) if project.is_vendored else UNSET
    plan = Plan(
        manifest=manifest,
        members=gathering.members(),
        output=path,
        format=actual_form,
        replace=replace,
        samples=samples,
        target=project.target.value,
        metadata=_metadata(project, gathering),
        vendored=vendored,
    )
    places = _places(project) | gathering.places
    home = project.folder
    return finalize_plan(plan, gathering.findings, places, strict=strict, check=check, home=home, modules=modules)


def _gather(project: Project, gathering: MemberCollector) -> tuple[str, ...]:
    """Take everything but the samples, and return the modules that came along by themselves."""
    gathering.check_name(project.name, where=project.place("name"))
    if not project.version.strip():
        gathering.error("version", "the version is empty", project.place("version"))
    handler = EntryPoint.parse(project.handler, project.folder).file
    gathering.add_handler(project.handler, handler, where=project.place("handler"))
    _add_named(project, gathering)
    _add_labels(project, gathering)
    _add_config(project, gathering)
    add_entries(project, gathering)
    return _add_modules(project, gathering)


def _add_named(project: Project, gathering: MemberCollector) -> None:
    """Take the files whose base names the manifest gives."""
    for key, role in {"weights": Role.WEIGHTS, "model_file": Role.FILE, "requirements": Role.FILE}.items():
        text, where = getattr(project, key), project.place(key)
        if text is None:
            continue
        if key == "requirements" and project.is_vendored:
            # The file is of no use there, and may name a private index.
            gathering.check_inside(project.folder / text, where=where)
        else:
            path, anywhere = project.folder / text, key == "weights"
            gathering.add(Path(text).name, path, where=where, role=role, anywhere=anywhere)


def _add_labels(project: Project, gathering: MemberCollector) -> None:
    where = project.place("labels")
    if project.labels is None:
        return
    path = project.folder / project.labels
    if not gathering.check_inside(path, where=where) or not gathering.check_file(path, where=where):
        return
    try:
        gathering.add(LABELS_NAME, labels_member(path), where=where)
    except ProjectError as error:
        gathering.findings.append(as_finding(error, "labels"))


def _add_config(project: Project, gathering: MemberCollector) -> None:
    """Take the model config, a file's or the one that stands in marpack.yaml."""
    if isinstance(project.config, str):
        gathering.add(Path(project.config).name, project.folder / project.config, where=project.place("config"))
    elif project.config is not None:
        gathering.add(CONFIG_NAME, _config_text(project.config).encode("ascii"), where=project.place("config"))


def _config_text(config: dict[str, Any]) -> str:  # Any: the author's own keys
    """Return an inline config as YAML in ASCII: the server's worker reads the file in its locale's encoding."""
    text: str = yaml.safe_dump(config, sort_keys=False, width=1 << 16)
    return text


def _add_modules(project: Project, gathering: MemberCollector) -> tuple[str, ...]:
    """Take the local modules that handler and model file import, unless a file of that name is in already."""
    handler = EntryPoint.parse(project.handler, project.folder).file
    model = project.folder / project.model_file if project.model_file else None
    names = []
    for file, key in ((handler, "handler"), (model, "model_file")):
        if file is None or not file.is_file():
            continue
        for module in local_modules(file, (file.parent, project.folder)):
            if not gathering.holds(module.name):
                beside = key == "handler" and not leads_out(module.path, file.parent)  # which may be anywhere
                gathering.add(module.name, module.path, where=project.place(key), anywhere=beside)
                names.append(module.name)
    return tuple(names)


def _add_samples(project: Project, gathering: MemberCollector) -> tuple[dict[str, Any], ...]:
    """Take the samples and return what marpack.json lists of them."""
    listed = []
    for index, sample in enumerate(project.samples):
        path = Path(sample.input)
        inside = not path.is_absolute() and ".." not in path.parts
        parts = path.parts[1:] if path.parts[:1] == ("samples",) and len(path.parts) > 1 else path.parts
        name = SAMPLES + (Path(*parts).as_posix() if inside else path.name)
        where = project.place(f"samples[{index}].input")
        gathering.add(name, project.folder / path, where=where, role=Role.META)
        _check_expectation(project, index, gathering)
        if sample.generated is not None and not re.fullmatch(GENERATED_MARK, sample.generated):
            hint = "Write sha256: and 64 lower-case hexadecimal digits, or delete the key."
            message = f"{quoted(sample.generated)} is not the SHA-256 of a generated sample"
            gathering.error("samples", message, project.place(f"samples[{index}].generated"), hint)
        try:  # as marpack.json will have it, so that a later look finds no difference
            listed.append(msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(sample, input=name))))
        except (TypeError, ValueError):
            hint = "put yes, no, on, off and dates in quotes where they are keys"
            gathering.error("samples", "this expectation holds a key that is no text", where, hint)
    return tuple(listed)


def _add_vendored(project: Project, gathering: MemberCollector, cache: Cache, bar: Bar) -> Vendored | UnsetType:
    """Take the files of the wheels in vendor.lock, and return what marpack.json says of them."""
    from marpack.project.vendoring import read_lock  # noqa: PLC0415 - it takes what fetches from elsewhere along

    if not gathering.check_inside(project.folder / LOCK_NAME, where=project.place("vendor")):
        return UNSET
    try:
        lock = read_lock(project)
        packages = tuple(_add_wheel(wheel, gathering, cache, bar) for wheel in lock.wheels)
    except MarpackError as error:
        gathering.findings.append(as_finding(error, "vendor"))
        return UNSET
    finally:
        cache.close()  # what was used just now is the last to be evicted
    return Vendored(python=lock.python, platform=lock.platform, packages=packages, server=lock.server)


def _add_wheel(wheel: "LockedWheel", gathering: MemberCollector, cache: Cache, bar: Bar) -> VendoredPackage:
    from marpack.project.vendoring import wheel_tree  # noqa: PLC0415 - as above

    tree = wheel_tree(wheel, cache, bar)
    gathering.findings += tree.findings
    for name in sorted(tree.names):
        path, before = tree.folder / name, gathering.source_of(name)
        top, _, rest = name.partition("/")
        if (not rest or rest.startswith("__init__.")) and _is_taken(top, is_file=not rest):
            message = f"{name} would take the place of what the worker itself needs, or never be found"
            gathering.error("vendor", message, wheel.file, "do without it")
        if before is None:
            gathering.add(name, path, where=wheel.file, anywhere=True)  # from the cache, held to its digest
            gathering.places[name] = f"{wheel.file}!{name}"
        elif (before if isinstance(before, bytes) else before.read_bytes()) != path.read_bytes():
            other = gathering.places.get(name, name)
            gathering.error(
                "name-collision", f"{name} comes from {other} and from {wheel.file}, and differs", wheel.file
            )
    tops = {name.partition("/")[0].partition(".")[0] for name in tree.names if ".dist-info/" not in name}
    return VendoredPackage(
        name=wheel.name, version=wheel.version, file=wheel.file, sha256=wheel.sha256, modules=tuple(sorted(tops))
    )


def _is_taken(top: str, *, is_file: bool) -> bool:
    module, _, suffix = top.partition(".")
    is_module = not is_file or suffix == "py" or suffix.endswith("so")
    return is_module and (breaks_worker(module) or never_found(module))


def _check_expectation(project: Project, index: int, gathering: MemberCollector) -> None:
    expected, key = project.samples[index].expect, f"samples[{index}].expect"
    for inner, message in mistakes(expected) if expected is not None else ():
        gathering.error("samples", message, project.place(f"{key}.{inner}"))


def _metadata(project: Project, gathering: MemberCollector) -> Metadata | UnsetType:
    """Return what the author says of the model; what cannot be recorded is reported."""
    wrong = list(metadata.mistakes(project.metadata))
    for key, message, hint in wrong:
        gathering.error("metadata", message, project.place(f"metadata.{key}"), hint)
    return UNSET if wrong else metadata.recorded(project.metadata)


def _manifest(project: Project, created_on: str | None) -> Manifest:
    config = project.config if project.config is None or isinstance(project.config, str) else CONFIG_NAME
    # The server would install them into the model folder, over what is vendored.
    requirements = None if project.is_vendored else project.requirements
    return make_manifest(
        name=project.name,
        version=project.version,
        handler=EntryPoint.parse(project.handler, project.folder).manifest,
        created_on=created_on,
        files=(project.weights, project.model_file, requirements, config),
    )


def _places(project: Project) -> dict[str, str]:
    """Return where in marpack.yaml the manifest's keys and the lines of an inline config come from."""
    # A key that is not there has no line; what is missing is missed where the handler asks for it.
    keys = ("name", "version", "handler", "weights", "model_file", "requirements", "config")
    places = manifest_places(map(project.place, keys))
    if isinstance(project.config, dict):
        made = parse_document(_config_text(project.config), file=CONFIG_NAME)
        places |= {f"{CONFIG_NAME}:{line}": project.place(f"config.{key}") for key, line in made.lines.items()}
    return places


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
    named = {
        "--serialized-file": (flags.serialized_file, Role.WEIGHTS),
        "--model-file": (flags.model_file, Role.FILE),
        "--requirements-file": (flags.requirements_file, Role.FILE),
        "--config-file": (flags.config_file, Role.FILE),
    }
    for flag, (text, role) in named.items():
        if text:
            gathering.add(Path(text).name, Path(text), where=flag, role=role)
    # Each entry is a file, a folder whose contents are packed at the root, or a pattern.
    for entry in filter(None, map(str.strip, (flags.extra_files or "").split(","))):
        found = matches(entry, Path())
        if not found and is_pattern(entry):
            gathering.warning("glob-without-match", f"{entry} matches no file", "--extra-files")
            continue
        for path in map(Path, found or [entry]):
            if path.is_dir():
                files = tree(path, hidden_files=True)
                gathering.add_tree("", files, folder=path, home=path, where="--extra-files")
            else:
                gathering.add(path.name, path, where="--extra-files")
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
