"""Imports and names: every import followed to a packed, installed or missing module; names that nothing defines."""

import ast
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive.manifest import Manifest
from marpack.archive.sagemaker import REQUIREMENTS, has_adapter
from marpack.errors import did_you_mean
from marpack.findings import Finding, Severity
from marpack.inspection.lint.handler import LintContext
from marpack.inspection.lint.source import (
    Broken,
    Files,
    Found,
    Imported,
    Module,
    broken_source,
    dotted_name,
    read_imports,
    walk,
)
from marpack.torchserve import server_modules as ts
from marpack.torchserve.server_modules import (
    INSTALLED,
    NEVER_FOUND,
    SERVER_LOADED,
    SINGLE_FILES,
    SUBSTITUTABLE,
    HandlerName,
    breaks_worker,
    find_by_name_part,
    is_known,
    is_standard,
    is_usual_file_name,
    provided,
    usual_provider,
)

_PATH_CHANGERS = frozenset(
    {"sys.path", "sys.meta_path", "sys.path_hooks", "sys.modules", "site.addsitedir", "os.system", "os.chdir"}
)
_UNPACKERS = frozenset({"extractall", "extract", "unpack_archive", "spec_from_file_location", "check_call"})
# Names by which a module can define names that its source does not show.
_DYNAMIC = frozenset({"exec", "globals", "locals", "vars", "builtins", "__builtins__"})
_GIVEN = frozenset({"__cached__", "get_ipython"})  # by Python and IPython; pyflakes does not know them
_MAX_GLOBALS = 500
# Packages import what the installed distributions list here: torch does so when it is imported.
_ENTRY_POINTS = re.compile(r"(?:.*/)?(?:[^/]+\.(?:dist|egg)-info|EGG-INFO)/entry_points\.txt", re.IGNORECASE)
_SCRIPTS = frozenset({"console_scripts", "gui_scripts"})  # groups of programs, which nothing imports
_MAX_ENTRY_POINTS = 1 << 16  # bytes
_AT_START = frozenset({"sitecustomize", "usercustomize"})
_ROOT = ("",)  # the model folder, whatever the handler's own


# Imports


class ImportSite(Struct, frozen=True):
    """One import in a module."""

    module: Module
    statement: Imported
    severity: Severity  # ERROR: the statement runs, and every import that leads to its module

    @property
    def where(self) -> str:
        """The statement's place."""
        return self.module.at(self.statement.line)


def check_imports(context: LintContext) -> Iterator[Finding]:
    """Yield the wrong imports of handler and model file, and of the modules that they import.

    A missing module is reported once, at its most serious place.
    """
    reached = reach_modules(context)
    sites = [
        ImportSite(module, statement, Severity.ERROR if sure and statement.sure else Severity.WARNING)
        for module, sure in reached.values()
        for statement in dict.fromkeys(read_imports(module.tree))
        if not statement.caught
    ]
    # Code that changes where modules are found makes every missing one uncertain.
    is_uncertain = context.requirements.unnamed or any(_brings_modules(module.tree) for module, _ in reached.values())
    reported: set[str] = set()
    for site in sorted(sites, key=lambda site: site.severity is not Severity.ERROR):
        source = site.module.absolute(site.statement)
        top = (source or "").partition(".")[0]
        if source is None:
            dots = "." * site.statement.level + site.statement.module
            yield codes.IMPORT_RELATIVE.at(site.where, severity=site.severity, name=dots, member=site.module.member)
        elif top == "ts" and not context.files.locate("ts"):
            yield from _check_ts_import(site, source)
        elif top in NEVER_FOUND:
            continue
        elif context.files.locate(top):
            yield from _check_packed(context, site, source, reported)
        elif not (is_standard(top) or top in reported or _is_provided(context, top)):
            reported.add(top)
            finding = _misplaced(context, site, source) or _unlisted(context, site, top)
            yield replace(finding, severity=Severity.NOTE) if is_uncertain else finding


def reach_modules(context: LintContext) -> dict[str, tuple[Module, bool]]:
    """Return every packed module that is imported, by member, with whether it certainly is."""
    reached: dict[str, tuple[Module, bool]] = {}
    waiting = [(module, True) for module in context.starts]
    while waiting:
        module, sure = waiting.pop(0)
        if module.member in reached and reached[module.member][1] >= sure:
            continue
        reached[module.member] = (module, sure)
        for statement in read_imports(module.tree):
            source = module.absolute(statement)
            if statement.caught or source is None or source.partition(".")[0] in NEVER_FOUND:
                continue
            parts = source.split(".") + ([statement.name] if statement.name not in (None, "*") else [])
            prefixes = (".".join(map(str, parts[:end])) for end in range(1, len(parts) + 1))
            found = filter(None, map(context.files.packed, prefixes))
            waiting += [(packed, sure and statement.sure) for packed in found]
    return reached


def _brings_modules(tree: ast.Module) -> bool:
    """Return whether a module changes the search path, or unpacks or installs modules."""
    names = (dotted_name(node) or f"?.{node.attr}" for node in walk(tree) if isinstance(node, ast.Attribute))
    return any(
        name in _PATH_CHANGERS or name.startswith("subprocess.") or name.rpartition(".")[2] in _UNPACKERS
        for name in names
    )


def _check_ts_import(site: ImportSite, source: str) -> Iterator[Finding]:
    """Yield the problems of an import from `ts`."""
    severity, where, name = site.severity, site.where, site.statement.name
    if not ts.has_module(source):
        hint = did_you_mean(source, ts.modules(), 0.7)
        yield codes.TS_MODULE_MISSING.at(where, severity=severity, hint=hint, module=source)
        return
    if needed := ts.needs_of(source):
        yield codes.TS_NEEDS_ENGINE.at(where, module=source, needed=needed)
    if name is None or name in ("*", *ts.names_of(source)) or name.startswith("__"):
        return
    homes = sorted((m for m in ts.modules() if name in ts.names_of(m)), key=lambda m: (m.count("."), m))
    if handler := ts.handler_class(name):
        homes.insert(0, handler.rpartition(".")[0])
    hint = f"Import it from {homes[0]}." if homes else did_you_mean(name, ts.names_of(source), 0.7)
    yield codes.TS_NAME_MISSING.at(where, severity=severity, hint=hint, module=source, name=name)


def _is_provided(context: LintContext, top: str) -> bool:
    return top in INSTALLED or provided(top, context.requirements.names)


def _check_packed(context: LintContext, site: ImportSite, source: str, reported: set[str]) -> Iterator[Finding]:
    """Yield a submodule or a name that a packed module does not have."""
    files, name = context.files, site.statement.name
    located = files.locate(source)
    missing = source if located is None else None
    if located and located.kind is Found.NAMESPACE and name not in (None, "*") and not files.locate(f"{source}.{name}"):
        missing = f"{source}.{name}"
    if missing:
        top = source.partition(".")[0]
        if missing not in reported and not _is_provided(context, top):
            reported.add(missing)
            yield codes.IMPORT_SUBMODULE_MISSING.at(site.where, severity=site.severity, name=missing, package=top)
        return
    module = files.module(located) if located and located.kind is Found.SOURCE else None
    if isinstance(module, Broken) and located:
        yield broken_source(located.member, module, site.severity)
    if not isinstance(module, Module) or name is None or name == "*" or module is site.module:
        return
    if module.lacks(name) and not files.locate(f"{source}.{name}"):
        hint, where = did_you_mean(name, module.scope.names, 0.7), site.where
        yield codes.IMPORT_NAME_MISSING.at(where, severity=site.severity, hint=hint, member=module.member, name=name)


def _misplaced(context: LintContext, site: ImportSite, source: str) -> Finding | None:
    """Return the finding for a module that is packed, or on the server, under another name."""
    files, severity, (top, _, rest) = context.files, site.severity, source.partition(".")
    # A folder's contents are packed without the folder, as torch-model-archiver's --extra-files does.
    flat = [rest or site.statement.name or "", "__init__" if is_usual_file_name(top) and not rest else ""]
    for located in (files.locate(dotted, _ROOT) for dotted in filter(None, flat)):
        if (
            located
            and located.kind is Found.SOURCE
            and located.member not in (module.member for module in context.starts)
            and not is_known(top)
        ):
            hint = (
                f"In marpack.yaml, files: [{top}] keeps the folder. With flags, name a folder that contains it:"
                f" mkdir parts && cp -r {top} parts/, then --extra-files parts."
            )
            severity = severity if is_usual_file_name(top) else Severity.WARNING
            return codes.IMPORT_FLATTENED.at(site.where, severity=severity, hint=hint, name=top, member=located.member)
    if top in ts.BUILT_INS:
        hint = f"Write ts.torch_handler.{top}."
        return codes.IMPORT_HANDLER_MODULE.at(site.where, severity=severity, hint=hint, name=top)
    # A packed file of that name, in a folder that is not a package.
    found = sorted(name for name in files.names if name.endswith((f"/{top}.py", f"/{top}/__init__.py")))
    loose = (name for name in found if "__init__.py" not in files.files_in(name.partition("/")[0] + "/"))
    if elsewhere := next(loose, None):
        severity = severity if is_usual_file_name(top) else Severity.WARNING
        return codes.IMPORT_ELSEWHERE.at(site.where, severity=severity, name=top, place=elsewhere)
    return codes.IMPORT_NOT_PACKED.at(site.where, severity=severity, name=top) if is_usual_file_name(top) else None


def _unlisted(context: LintContext, site: ImportSite, top: str) -> Finding:
    """Return the finding for a module of another distribution that the requirements do not list."""
    distribution = usual_provider(top) or "its distribution"  # an unknown one has no name: anyone could publish it
    if maybe := find_by_name_part(top, context.requirements.names):
        advice = f"If it does not, add {distribution} to them."
        return codes.IMPORT_MAYBE_LISTED.at(site.where, hint=advice, name=top, distribution=maybe)
    packed = {name.split("/")[0].removesuffix(".py") for name in context.files.names if name.endswith(".py")}
    packed -= {module.member.removesuffix(".py") for module in context.starts}
    hint = did_you_mean(top, [] if is_known(top) else sorted(packed), 0.7)
    if hint is None:
        yours = "." if is_known(top) else "; if it is a file of yours, pack it."
        is_sagemaker = has_adapter(context.manifest.model.handler, context.files.open)
        file = context.requirements.file or (REQUIREMENTS if is_sagemaker else None)
        listing = f"to {file}" if file else "in a requirements.txt, named by requirements: or --requirements-file"
        hint = f"{'Add' if file else 'List'} {distribution} {listing}{yours}"
    severity = Severity.WARNING if site.severity is Severity.ERROR else Severity.NOTE
    return codes.IMPORT_UNLISTED.at(site.where, severity=severity, hint=hint, name=top)


# Modules whose names are taken: the model folder comes first on the worker's search path


def check_shadows(files: Files, manifest: Manifest) -> Iterator[Finding]:
    """Yield the modules at the archive's root that replace others, or that others replace."""
    tops = {name.split(".")[0] for name in files.files_in("") if name.endswith(".py")}
    tops |= {name.split("/")[0] for name in files.names if name.count("/") == 1 and "/__init__." in name}
    named = {manifest.model.model_file, HandlerName.parse(manifest.model.handler).path}
    for top in sorted(tops):
        located = files.locate(top, _ROOT)
        if located is None or located.kind is Found.NAMESPACE:
            continue
        member, is_named = located.member, located.member in named
        if f"{top}.py" in files and member != f"{top}.py":
            yield codes.MODULE_HIDDEN.at(f"{top}.py", member=member)
        is_copy = top in SUBSTITUTABLE or (located.package and top in SERVER_LOADED)  # as `pip install -t` leaves it
        if top in _AT_START:
            yield codes.MODULE_AT_START.at(member, name=top)
        elif top in NEVER_FOUND:
            if not is_named:  # the rules of the handler and the model file report it
                yield codes.MODULE_NEVER_FOUND.at(member, name=top)
        elif breaks_worker(top) and (is_named or not is_copy):
            yield codes.MODULE_BREAKS_WORKER.at(member, name=top)
        elif is_standard(top):
            yield codes.MODULE_SHADOWS.at(member, name=top)
        elif top in INSTALLED and not located.package and top not in SINGLE_FILES:
            yield codes.MODULE_SHADOWS_PACKAGE.at(member, name=top)


def check_plugins(files: Files) -> Iterator[Finding]:
    """Yield the lists of plug-ins that packages import, although no module of the archive does."""
    for name in filter(_ENTRY_POINTS.fullmatch, files.names):
        data = files.read(name, _MAX_ENTRY_POINTS) or b""
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]  # as importlib.metadata does
        groups = {line.strip("[]") for line in lines if line.startswith("[")} - _SCRIPTS
        if groups or len(data) > _MAX_ENTRY_POINTS:
            hint = "Remove the file if no package has to find these plug-ins."
            yield codes.PLUGIN.at(name, hint=hint, groups=", ".join(sorted(groups))[:80] or "the file was not read")


# Names


def check_names(modules: Iterable[Module]) -> Iterator[Finding]:
    """Yield the undefined names of some modules, each at the line of its first use."""
    for module in modules:
        nodes = walk(module.tree)
        try:
            undefined = _find_undefined(module.tree, nodes)
        except RecursionError:
            yield codes.CHECK_GAVE_UP.at(module.member)
            continue
        is_dynamic = any(isinstance(node, ast.Name) and node.id in _DYNAMIC for node in nodes)
        for name, line in undefined.items():
            is_module = is_standard(name) or name in INSTALLED
            hint = f"Add the line: import {name}" if is_module else did_you_mean(name, module.scope.names, 0.7)
            code = codes.UNDEFINED_UNLESS if is_dynamic else codes.UNDEFINED_NAME
            yield code.at(module.at(line), hint=None if is_dynamic else hint, name=name)


def _find_undefined(tree: ast.Module, nodes: list[ast.AST]) -> dict[str, int]:
    """Return each undefined name with the line of its first use; `nodes` are the tree's."""
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in nodes):
        return {}
    # pyflakes takes time by the square of a module's global statements.
    if sum(len(node.names) for node in nodes if isinstance(node, ast.Global)) > _MAX_GLOBALS:
        return {}
    from pyflakes import checker, messages  # noqa: PLC0415 - an archive without Python files need not wait for it

    # pyflakes reports a name as undefined in functions that are called before it is deleted.
    deleted = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)}
    ignored = {(node.lineno, node.col_offset) for node in _unevaluated(nodes)}
    found: dict[str, int] = {}
    try:
        reported = checker.Checker(tree, builtins=_GIVEN, withDoctest=False).messages
    finally:
        for node in ast.walk(tree):  # pyflakes links every node to its parent, and other rules would walk in circles
            vars(node).pop("_pyflakes_parent", None)
            vars(node).pop("_pyflakes_depth", None)
    for message in sorted(reported, key=lambda message: message.lineno):
        is_name = isinstance(message, messages.UndefinedName | messages.UndefinedLocal)
        if is_name and (message.lineno, message.col) not in ignored and message.message_args[0] not in deleted:
            found.setdefault(message.message_args[0], message.lineno)
    return found


def _unevaluated(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """Yield the expressions that Python does not evaluate: in strings, in annotations."""
    futures = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    postponed = any(node.names[0].name == "annotations" for node in futures)
    pieces = {id(piece) for node in nodes if isinstance(node, ast.JoinedStr) for piece in node.values}
    for node in nodes:
        annotations: list[ast.expr | None] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):  # annotations of its own variables
            annotations = [each.annotation for each in walk(node) if isinstance(each, ast.AnnAssign)]
            annotations += [node.returns] if postponed else []
        elif postponed and isinstance(node, ast.arg | ast.AnnAssign):
            annotations = [node.annotation]
        for annotation in filter(None, annotations):
            yield from (each for each in walk(annotation) if isinstance(each, ast.expr))
