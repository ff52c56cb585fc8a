"""Imports of the server's own package, held against the names that TorchServe 0.12 has."""

from collections.abc import Iterator

from marpack.findings import Finding, Severity
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.import_statements import Import
from marpack.inspection.lint.spelling import suggestion
from marpack.torchserve import stock as ts

NO_MODULE = Code(
    "Imports",
    "ts-module-missing",
    "TorchServe 0.12 has no such module.",
    "Import it from where TorchServe 0.12 has it.",
)
NO_NAME = Code(
    "Imports",
    "ts-name-missing",
    "TorchServe 0.12 has the module, but not the name.",
    "Import it from where TorchServe 0.12 has it.",
)
NEEDS = Code(
    "Imports",
    "ts-needs-engine",
    "A module of the server's needs a package that a stock server does not have.",
    "List the package in requirements.txt, or use a server image that has it.",
)


def check_ts_import(source: str, statement: Import, severity: Severity, where: str) -> Iterator[Finding]:
    """Yield what is wrong with an import from `ts`.

    Args:
        source: The module's absolute name.
        statement: The import.
        severity: How much it weighs that the import fails.
        where: Where it stands.
    """
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
