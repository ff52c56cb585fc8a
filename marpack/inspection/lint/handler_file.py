"""Which file, built-in or installed module the server takes a handler from, decided as the server decides it."""

from msgspec import Struct

from marpack.archive.manifest import Manifest
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files, Module
from marpack.inspection.lint.search import Found, Located
from marpack.inspection.lint.sources import NOT_LOOKED_INTO, broken
from marpack.inspection.lint.spelling import suggestion
from marpack.torchserve import stock as ts
from marpack.torchserve.stock import never_found

MANIFEST = "MAR-INF/MANIFEST.json: model.handler"

MISSING = Code(
    "Handler",
    "handler-missing",
    "The handler's file is not in the archive, and no built-in handler has its name; the worker dies.",
    "Pack the file at the archive's root, or name a built-in handler.",
)
UNKNOWN = Code(
    "Handler",
    "handler-unknown",
    "The handler is neither a packed module nor a built-in; it works only where it is installed on the server.",
    "Pack the module, or name a built-in handler.",
)
FILE_NAME = Code(
    "Handler",
    "handler-file-name",
    "The server imports the handler by its file's name up to `.py`, and a dot in it means a package.",
    "Rename the file to a plain name such as handler.py.",
)
SHADOWED = Code(
    "Handler",
    "handler-shadows-built-in",
    "A packed module has the name of a built-in handler and takes its place.",
    "Rename the module if the built-in is meant.",
)
OWN_MODULE = Code(
    "Handler",
    "handler-never-found",
    "A module of this name is loaded in every Python, so the packed file is never imported.",
    "Rename the file to a plain name such as handler.py.",
)
NO_HANDLER = Code(
    "Handler",
    "handler-not-a-handler",
    "The name is a module of the server's that holds no handler.",
    "Name a built-in handler, or a packed file.",
)
NEEDS = Code(
    "Handler",
    "handler-needs-engine",
    "The built-in handler needs a package that a stock server does not have.",
    "List the package in requirements.txt, or use a server image that has it.",
)


class HandlerFile(Struct, frozen=True, kw_only=True):
    """Where the handler comes from; with neither a module nor a built-in, nothing more can be told."""

    module: Module | None = None
    built_in: str | None = None  # the class that answers, by its dotted name
    function: str | None = None  # after the colon
    findings: tuple[Finding, ...] = ()


def search_path(manifest: Manifest) -> tuple[str, ...]:
    """Return the folders of the archive that the worker's search path begins with."""
    path, colon, _ = manifest.model.handler.partition(":")
    folder, slash, _ = path.rpartition("/")
    return (f"{folder}/", "") if colon and slash else ("",)


def find_handler(files: Files, manifest: Manifest) -> HandlerFile:
    """Find the handler of a manifest among the members and the built-ins."""
    path, _, function = manifest.model.handler.partition(":")
    dotted = path.removesuffix(".py").rpartition("/")[2]
    if never_found(dotted.partition(".")[0]):
        finding = OWN_MODULE.error(f"the server imports Python's own module '{dotted}' instead", MANIFEST)
        return HandlerFile(findings=(finding,))
    located = files.members.locate(dotted, files.roots) if dotted else None
    if located is None:
        return _not_packed(files, path, dotted)
    notes = []
    if dotted in ts.HANDLERS:
        message = f"the packed {located.member} takes the place of the built-in {dotted}"
        notes.append(SHADOWED.note(message, located.member))
    found = _packed(files, located)
    return HandlerFile(module=found.module, function=function or None, findings=(*notes, *found.findings))


def _packed(files: Files, located: Located) -> HandlerFile:
    if located.kind is Found.NAMESPACE:
        message = f"'{located.dotted}' is a folder without __init__.py, which holds no handler"
        return HandlerFile(findings=(MISSING.error(message, MANIFEST),))
    if located.kind is not Found.SOURCE:
        message = "it is compiled, so its entry point was not looked into"
        return HandlerFile(findings=(NOT_LOOKED_INTO.note(message, located.member),))
    module = files.module(located.dotted, located.member, package=located.package)
    if isinstance(module, Module):
        return HandlerFile(module=module)
    return HandlerFile(findings=(broken(located.member, module),) if module else ())


def _not_packed(files: Files, path: str, dotted: str) -> HandlerFile:
    if path == dotted and dotted in ts.HANDLERS:
        return _built_in(dotted)
    return HandlerFile(findings=(_missing(files, path, dotted),))


def _built_in(name: str) -> HandlerFile:
    needed = ts.needs_of(f"ts.torch_handler.{name}")
    message = f"the built-in {name} needs {needed}, which a stock server does not have"
    findings = (NEEDS.note(message, MANIFEST),) if needed else ()
    return HandlerFile(built_in=ts.HANDLERS[name], findings=findings)


def _missing(files: Files, path: str, dotted: str) -> Finding:
    base = path.rpartition("/")[2]
    if not dotted:
        return MISSING.error("the manifest names no handler", MANIFEST)
    if "." in dotted and base in files.members.files_in(""):
        return FILE_NAME.error(f"'{base}' cannot be imported: its name has a dot before .py", base)
    if ts.has_module(f"ts.torch_handler.{dotted}"):
        return NO_HANDLER.error(f"'{dotted}' is a module of the server's without a handler in it", MANIFEST)
    elsewhere = sorted(name for name in files.members.names if name.endswith(f"/{dotted}.py"))
    if elsewhere:
        message = f"'{path}' is packed as {elsewhere[0]}, where the server does not look"
        return MISSING.error(message, MANIFEST, "pack it at the archive's root")
    hint = _near(files, path, dotted)
    if path.endswith(".py") or hint or "." not in dotted:
        return MISSING.error(f"'{path}' is neither in the archive nor a built-in handler", MANIFEST, hint)
    return UNKNOWN.warning(f"'{path}' is not packed, and works only where it is installed", MANIFEST)


def _near(files: Files, path: str, dotted: str) -> str | None:
    packed = [name for name in files.members.files_in("") if name.endswith(".py")]
    choices = packed if path.endswith(".py") else [*ts.HANDLERS, *(name.removesuffix(".py") for name in packed)]
    return suggestion(path if path.endswith(".py") else dotted, choices)
