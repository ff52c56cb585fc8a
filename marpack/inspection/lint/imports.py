"""Every import, followed: packed, the server's `ts`, installed with it, or missing."""

import ast
from collections.abc import Iterator
from functools import cached_property

from marpack.findings import Finding, Severity
from marpack.inspection.lint.bindings import Imported, branches
from marpack.inspection.lint.classes import absolute
from marpack.inspection.lint.codes import Code, suggestion
from marpack.inspection.lint.entry_point import Absent, lookup
from marpack.inspection.lint.files import Found, Located, Module, broken
from marpack.inspection.lint.missing_modules import ImportSite, MissingModules
from marpack.inspection.lint.model_loading import LintContext
from marpack.inspection.lint.source import Broken, dotted_name, walk
from marpack.torchserve import server_modules as ts
from marpack.torchserve.server_modules import INSTALLED, is_standard, never_found, provided

NO_MODULE = Code(
    "ts-module-missing",
    "TorchServe 0.12 has no such module.",
    "Import it from where TorchServe 0.12 has it.",
)
NO_NAME = Code(
    "ts-name-missing",
    "TorchServe 0.12 has the module, but not the name.",
    "Import it from where TorchServe 0.12 has it.",
)
NEEDS = Code(
    "ts-needs-engine",
    "A module of the server's needs a package that a stock server does not have.",
    "List the package in requirements.txt, or use a server image that has it.",
)
RELATIVE = Code(
    "import-relative",
    "The server imports the handler and the model file as top-level modules, where relative imports have no package.",
    "Import the packed module by its own name: `from model import Net`.",
)
NAME_MISSING = Code(
    "import-name-missing",
    "A name is imported from a packed module that does not have it.",
    "Define the name there, or mend its spelling.",
)
SUBMODULE = Code(
    "import-submodule-missing",
    "A module is imported from a packed package that does not hold it.",
    "Pack the module, or mend its name.",
)

_CATCHING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError", "RuntimeError"})
_PATH_CHANGERS = frozenset(
    {"sys.path", "sys.meta_path", "sys.path_hooks", "sys.modules", "site.addsitedir", "os.system", "os.chdir"}
)
_UNPACKERS = frozenset({"extractall", "extract", "unpack_archive", "spec_from_file_location", "check_call"})


def imports_of(tree: ast.Module) -> list[tuple[Imported, bool]]:
    """Return a module's imports in the order of their lines, with whether they surely run, without those caught."""
    found: list[tuple[Imported, bool]] = []
    waiting: list[tuple[ast.stmt, bool]] = [(node, True) for node in tree.body]
    while waiting:
        node, sure = waiting.pop()
        if isinstance(node, ast.Import):
            found += [(Imported(alias.name, line=node.lineno), sure) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = (alias.name for alias in node.names)
            found += [(Imported(node.module or "", name, node.level, node.lineno), sure) for name in names]
        elif isinstance(node, ast.ClassDef):
            waiting += [(item, sure) for item in node.body]
        elif isinstance(node, ast.Try | ast.TryStar):
            waiting += _tried(node, sure=sure)
        else:
            waiting += [(item, sure and certain) for body, certain in branches(node) for item in body]
    return sorted(found, key=lambda item: item[0].line)


def _tried(node: ast.Try | ast.TryStar, *, sure: bool) -> list[tuple[ast.stmt, bool]]:
    caught = any(_catches(handler) for handler in node.handlers)
    unsure = [*(item for handler in node.handlers for item in handler.body), *node.orelse]
    tried = [(item, sure) for item in (*(() if caught else node.body), *node.finalbody)]
    return tried + [(item, False) for item in unsure]


def _catches(handler: ast.ExceptHandler) -> bool:
    """Say whether a handler lets the module go on without what could not be imported."""
    if any(isinstance(item, ast.Raise) for item in handler.body):
        return False
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any((dotted_name(item) or "").rpartition(".")[2] in _CATCHING for item in types)


def brings_modules(tree: ast.Module) -> bool:
    """Say whether a module changes where imports are looked for, or unpacks or installs what they may find."""
    names = (dotted_name(node) or f"?.{node.attr}" for node in walk(tree) if isinstance(node, ast.Attribute))
    return any(
        name in _PATH_CHANGERS or name.startswith("subprocess.") or name.rpartition(".")[2] in _UNPACKERS
        for name in names
    )


def check_ts_import(source: str, statement: Imported, severity: Severity, where: str) -> Iterator[Finding]:
    """Yield what is wrong with an import from `ts`."""
    if not ts.has_module(source):
        hint = suggestion(source, ts.modules())
        yield NO_MODULE.weigh(severity, f"TorchServe 0.12 has no module '{source}'", where, hint)
        return
    needed = ts.needs_of(source)
    if needed:
        message = f"'{source}' needs {needed}, which a stock server does not have"
        yield NEEDS.note(message, where)
    name = statement.name
    if name not in (None, "*", *ts.names_of(source)) and not str(name).startswith("__"):
        yield NO_NAME.weigh(severity, f"'{source}' has no '{name}' in TorchServe 0.12", where, _home(source, str(name)))


def _home(source: str, name: str) -> str | None:
    """Return where the server has this name, or which one was probably meant."""
    homes = sorted((m for m in ts.modules() if name in ts.names_of(m)), key=lambda m: (m.count("."), m))
    handler = ts.handler_class(name)
    if handler:
        homes.insert(0, handler.rpartition(".")[0])
    return f"it is in {homes[0]}" if homes else suggestion(name, ts.names_of(source))


class Imports:
    """Follows imports from module to module and asks of each whether the server will find it."""

    def __init__(self, context: LintContext) -> None:
        self._files = context.files
        self._library = context.library
        self._requirements = context.requirements
        self._starts = [module for module in (context.handler.module, context.model_file) if module is not None]
        self._imports: dict[str, list[tuple[Imported, bool]]] = {}
        self._missing_modules = MissingModules(context, [module.member for module in self._starts])
        self._missing: set[str] = set()  # modules that a finding tells of

    @cached_property
    def modules(self) -> list[Module]:
        """The packed modules that handler and model file lead to, those two first."""
        return [module for module, _ in self._follow(self._starts).values()]

    def check(self) -> Iterator[Finding]:
        """Yield what is wrong with the imports of handler and model file, and of the modules that they lead to.

        A module that is missing is told of once, at the place where that weighs most.
        """
        reached = self._follow(self._starts)
        sites = [
            ImportSite(module, statement, sure and runs)
            for module, sure in reached.values()
            for statement, runs in dict.fromkeys(self._imports_of(module))
        ]
        for site in sorted(sites, key=lambda site: not site.sure):
            yield from self._check(site)

    def _imports_of(self, module: Module) -> list[tuple[Imported, bool]]:
        if module.member not in self._imports:
            self._imports[module.member] = imports_of(module.tree)
        return self._imports[module.member]

    @cached_property
    def _bring_modules(self) -> bool:
        return any(brings_modules(module.tree) for module in self.modules)

    def _follow(self, starts: list[Module]) -> dict[str, tuple[Module, bool]]:
        """Return every packed module that is imported, with whether that is sure."""
        reached: dict[str, tuple[Module, bool]] = {}
        waiting = [(module, True) for module in starts]
        while waiting:
            module, sure = waiting.pop(0)
            if module.member in reached and reached[module.member][1] >= sure:
                continue
            reached[module.member] = (module, sure)
            for statement, runs in self._imports_of(module):
                waiting += [(inner, sure and runs) for inner in self._leads_to(module, statement)]
        return reached

    def _leads_to(self, module: Module, statement: Imported) -> Iterator[Module]:
        source = absolute(module, statement)
        for dotted in _prefixes(source, statement.name) if source else ():
            inner = None if _is_elsewhere(dotted) else self._library.packed(dotted)
            if inner is not None:
                yield inner

    def _check(self, need: ImportSite) -> Iterator[Finding]:
        source = absolute(need.module, need.statement)
        if source is None:
            yield self._relative(need)
        elif source.partition(".")[0] == "ts" and not self._locate("ts"):
            yield from check_ts_import(source, need.statement, need.severity, need.where)
        elif not _is_elsewhere(source):
            name = source.partition(".")[0]
            top = self._locate(name)
            finding = self._packed(need, source, top) if top else self._foreign(need, source)
            yield from [finding] if finding else []

    def _locate(self, dotted: str) -> Located | None:
        return self._files.locate(dotted)

    def _relative(self, need: ImportSite) -> Finding:
        dots = "." * need.statement.level + need.statement.module
        message = f"'{dots}' is a relative import, and {need.module.member} belongs to no package there"
        return RELATIVE.weigh(need.severity, message, need.where)

    def _packed(self, need: ImportSite, source: str, top: Located) -> Finding | None:
        located = self._locate(source)
        if located is None:
            return None if self._is_provided(top.dotted) else self._no_submodule(need, source)
        if located.kind is Found.SOURCE:
            module = self._files.module(located)
            if isinstance(module, Broken):
                return broken(located.member, module, need.severity)
            return self._check_name(need, source, module) if module else None
        name = need.statement.name
        if located.kind is Found.NAMESPACE and name not in (None, "*") and not self._locate(f"{source}.{name}"):
            return None if self._is_provided(top.dotted) else self._no_submodule(need, f"{source}.{name}")
        return None

    def _check_name(self, need: ImportSite, source: str, module: Module) -> Finding | None:
        name = need.statement.name
        if name is None or name == "*" or self._locate(f"{source}.{name}"):
            return None
        if not isinstance(lookup(self._library, module, name), Absent) or module is need.module:
            return None
        hint = suggestion(name, module.scope.names)
        return NAME_MISSING.weigh(need.severity, f"{module.member} has no '{name}'", need.where, hint)

    def _no_submodule(self, need: ImportSite, source: str) -> Finding | None:
        if source in self._missing:
            return None
        self._missing.add(source)
        message = f"'{source}' is not in the archive, though {source.partition('.')[0]} is"
        return SUBMODULE.weigh(need.severity, message, need.where)

    def _is_provided(self, top: str) -> bool:
        return top in INSTALLED or provided(top, self._requirements.names)

    def _foreign(self, need: ImportSite, source: str) -> Finding | None:
        """Judge an import that nothing packed answers."""
        top = source.partition(".")[0]
        if is_standard(top) or top in self._missing or self._is_provided(top):
            return None
        self._missing.add(top)
        return self._missing_modules.judge(need, source, anywhere=self._bring_modules)


def _prefixes(source: str, name: str | None) -> Iterator[str]:
    parts = source.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])
    if name and name != "*":
        yield f"{source}.{name}"


def _is_elsewhere(dotted: str) -> bool:
    """Say whether Python has this module loaded before it looks into the model folder."""
    return never_found(dotted.partition(".")[0])
